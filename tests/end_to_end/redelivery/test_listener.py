"""What a STOMP consumer gives up is saved by the listener, and comes back by the broker's rules."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stomp

from support.brokers.broker_xml import artemis_xml
from support.brokers.real import ArtemisBroker
from support.machine.ports import free_port
from support.sidecar.listener import ListenerProcess, copy_keys, metric_at
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.wires.stomp_peer import Frame, StompError, StompPeer

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
ANYCAST = {"subscription-type": "ANYCAST"}
TO_ANYCAST = {"destination-type": "ANYCAST"}
INTERCEPTED = "amqsidecar.intercepted"


@pytest.fixture(params=["pair_url", "stomp_url"])
def sidecar(
    artemis: ArtemisBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[SidecarProcess]:
    sets = ["intake.allow_lossy=[body_type, property_types]", copy_keys(tmp_path)]
    with SidecarProcess(
        tmp_path, getattr(artemis, request.param), policy=POLICY, sets=sets
    ) as started:
        yield started.start()


def fresh(policy: str) -> str:
    """Return the name of a new queue below a policy of `artemis.yaml`."""
    return f"e2e.{policy}.{uuid.uuid4().hex[:8]}"


def own(message: Frame) -> dict[str, str]:
    """Return the headers that a producer wrote."""
    return {name: value for name, value in message.headers.items() if name.startswith("app-")}


def send_guarded(peer: StompPeer, queue: str, body: bytes) -> None:
    """Send a message behind another one.

    Why: when a connection dies, Artemis 2.44 may keep its first message (`StuckMessages`).
    """
    for one in (b"guard", body):
        peer.send(queue, TO_ANYCAST, one)


def receive_guarded(peer: StompPeer) -> Frame:
    """Return the message behind its guard, which may be there no more."""
    message = peer.receive()
    return peer.receive() if message.body == b"guard" else message


def test_what_is_nacked_comes_back_to_its_consumer_with_a_history(
    artemis: ArtemisBroker, listener: ListenerProcess, sidecar: SidecarProcess
) -> None:
    queue = fresh("back")
    headers = {**TO_ANYCAST, "app-a": "b:c\\", "content-type": "text/plain", "priority": "7"}
    with StompPeer(listener.port) as consumer, StompPeer(artemis.ports["PORT"]) as producer:
        producer.send(queue, headers, "Grüße".encode())
        consumer.subscribe(queue, headers=ANYCAST)
        first = consumer.receive()
        consumer.nack(first, reason="com.acme.OutOfStock: article 4711")
        again = consumer.receive()
        consumer.ack(again)
    assert (again.body, own(again)) == (first.body, own(first))
    assert (again.headers["content-type"], again.headers["priority"]) == ("text/plain", "7")
    assert again.headers["persistent"] == "true"
    assert again.headers["amqsidecarRedeliveryCount"] == "1"
    left = {"_AMQ_DUPL_ID", "amqsidecarCause", "_AMQ_ORIG_ADDRESS"}
    assert not left.intersection(again.headers)

    def groups() -> list[dict[str, object]]:
        found = sidecar.json_command("groups")
        return [one for one in found if one["destination"] == f"queue://{queue}"]

    (group,) = eventually(groups, what="the failure has a group")
    assert "intercepted at the NACK of admin" in str(group)


def test_the_policy_of_the_origin_counts(
    artemis: ArtemisBroker, listener: ListenerProcess, sidecar: SidecarProcess
) -> None:
    """Two attempts, of which the listener sees both; then the final queue has it."""
    queue = fresh("gone")
    with StompPeer(listener.port) as consumer, StompPeer(artemis.ports["PORT"]) as producer:
        producer.send(queue, {**TO_ANYCAST, "app-n": "1"}, b"twice")
        consumer.subscribe(queue, headers=ANYCAST)
        consumer.nack(consumer.receive())
        consumer.nack(consumer.receive())
        producer.subscribe("DLQ.exhausted", selector="\"app-n\" = '1'", headers=ANYCAST)
        dead = producer.receive()
        producer.ack(dead)
    assert dead.body == b"twice"
    del sidecar


@pytest.mark.parametrize("mode", ["mode=manual", "manual=[e2e.back.#]"])
def test_what_is_nacked_is_held_where_a_person_decides(
    artemis: ArtemisBroker, listener: ListenerProcess, tmp_path: Path, mode: str
) -> None:
    """Its copy is proved, seen and retried as any other message."""
    queue, sets = fresh("back"), [f"redelivery.{mode}", copy_keys(tmp_path)]
    with (
        SidecarProcess(tmp_path, artemis.pair_url, policy=POLICY, sets=sets) as sidecar,
        StompPeer(listener.port) as consumer,
    ):
        sidecar.start()
        consumer.send(queue, TO_ANYCAST, b"pay")
        consumer.subscribe(queue, headers=ANYCAST)
        consumer.nack(consumer.receive(), reason="com.acme.OutOfStock: article 4711")

        def rows() -> list[dict[str, object]]:
            found = sidecar.rows()
            return [one for one in found if one["destination"] == f"queue://{queue}"]

        [row] = eventually(rows, what="the copy is seen")
        assert (row["state"], row["source"]) == ("held", f"queue://{INTERCEPTED}")
        sidecar.run_command("retry", str(row["id"]), "--yes")
        again = consumer.receive()
        assert again.body == b"pay"
        consumer.ack(again)
        eventually(lambda: not rows(), what="nothing is left")


def test_metrics_count_connections_bytes_and_what_was_saved_by_kind(
    artemis: ArtemisBroker, tmp_path: Path
) -> None:
    queue, http = fresh("late"), f"127.0.0.1:{free_port()}"
    sets = [f"listener.http_listen={http}"]

    def metric(name: str) -> float:
        return metric_at(http, name)

    with ListenerProcess(tmp_path, artemis.ports["PORT"], sets) as listener:
        with StompPeer(listener.port) as consumer:
            consumer.send(queue, TO_ANYCAST, b"x" * 1000)
            consumer.subscribe(queue, headers=ANYCAST)
            consumer.nack(consumer.receive())
            assert metric("amqsidecar_listener_connections") == 1
            for sender in ("client", "broker"):
                assert metric(f'amqsidecar_listener_bytes_total{{sender="{sender}"}}') > 1000
            given_up = "amqsidecar_listener_given_up_total"
            assert metric(f'{given_up}{{how="nack",outcome="intercepted"}}') == 1
            assert metric(f'{given_up}{{how="rejected",outcome="intercepted"}}') == 0
            assert metric("amqsidecar_listener_relay_seconds_count") > 0
            consumer.unsubscribe()
        ended = "amqsidecar_listener_connections"
        eventually(lambda: metric(ended) == 0, what="the end of the connection is counted")


@pytest.mark.parametrize("version", [stomp.StompConnection11, stomp.StompConnection12])
def test_stomp_py_sees_nothing_of_the_listener(
    artemis: ArtemisBroker, listener: ListenerProcess, version: type
) -> None:
    """In and out of a transaction, with receipts and heart-beats."""
    queue = fresh("late")
    client = _Client(version, listener.port)
    client.connection.subscribe(queue, "s", ack="client-individual", headers=ANYCAST)
    for number in range(4):
        client.connection.send(queue, f"m{number}", headers={**TO_ANYCAST, "n": str(number)})
    messages = eventually(client.all_of(4), what="four have come")
    client.give_up(messages[0])
    client.connection.begin(transaction="t1")
    client.give_up(messages[1], transaction="t1")
    client.connection.abort("t1")
    client.connection.begin(transaction="t2")
    client.give_up(messages[2], transaction="t2")
    client.connection.commit("t2", receipt="committed")
    eventually(
        lambda: "committed" in client.receipts or client.errors, what="the commit is confirmed"
    )
    assert not client.errors
    client.connection.unsubscribe("s", receipt="unsubscribed")
    eventually(lambda: "unsubscribed" in client.receipts, what="the broker has the rest again")
    client.connection.disconnect()
    with StompPeer(artemis.ports["PORT"]) as other:
        other.subscribe(INTERCEPTED, f"_AMQ_ORIG_ADDRESS = '{queue}'", headers=ANYCAST)
        saved = [other.receive(), other.receive()]
        for one in saved:
            other.ack(one)
        assert sorted(one.body for one in saved) == [b"m0", b"m2"]
        other.subscribe(queue, name="2", headers=ANYCAST)
        left = [other.receive(), other.receive()]
        for one in left:
            other.ack(one)
        assert sorted(one.body for one in left) == [b"m1", b"m3"]
    assert not client.errors


class _Client(stomp.ConnectionListener):  # type: ignore[misc]
    """An application with stomp.py."""

    def __init__(self, version: type, port: int) -> None:
        self.messages: list[stomp.utils.Frame] = []
        self.receipts: set[str] = set()
        self.errors: list[stomp.utils.Frame] = []
        # Why generous: on a busy machine neither side may take the other one's silence for its end.
        self.connection = version(
            [("127.0.0.1", port)], heartbeats=(5_000, 500), heart_beat_receive_scale=100
        )
        self.connection.set_listener("", self)
        self.connection.connect("admin", "admin", wait=True)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.messages.append(frame)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.errors.append(frame)

    def all_of(self, count: int) -> Callable[[], list[stomp.utils.Frame] | None]:
        return lambda: self.messages if len(self.messages) == count else None

    def give_up(self, frame: stomp.utils.Frame, **more: str) -> None:
        """NACK, and wait until the broker has it."""
        receipt = uuid.uuid4().hex
        if isinstance(self.connection, stomp.StompConnection12):
            self.connection.nack(frame.headers["ack"], receipt=receipt, **more)
        else:
            headers = frame.headers
            self.connection.nack(
                headers["message-id"], headers["subscription"], receipt=receipt, **more
            )
        eventually(lambda: receipt in self.receipts or self.errors, what="the NACK is confirmed")
        assert not self.errors


def test_a_client_without_the_right_to_send_keeps_its_message(tmp_path: Path) -> None:
    """The client sees the broker's words, and the message is delivered again."""
    restricted = f"""
      <security-setting match="{INTERCEPTED}">
        <permission type="send" roles="nobody"/>
      </security-setting>
    </security-settings>"""
    broker_xml = artemis_xml().replace("</security-settings>", restricted.strip())
    with (
        ArtemisBroker(broker_xml) as broker,
        ListenerProcess(tmp_path, broker.ports["PORT"]) as listener,
        StompPeer(broker.ports["PORT"]) as other,
    ):
        send_guarded(other, "refused", b"precious")
        with StompPeer(listener.port) as consumer:
            consumer.subscribe("refused", headers=ANYCAST)
            message = receive_guarded(consumer)
            with pytest.raises(StompError, match="ERROR"):
                consumer.nack(message)
        other.subscribe("refused", headers=ANYCAST)
        assert receive_guarded(other).body == b"precious"
        eventually(lambda: "not_intercepted" in listener.log(), what="the log says so")
