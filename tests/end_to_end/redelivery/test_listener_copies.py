"""Whoever may send to the queue of the listener can't make the sidecar send in their name."""

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.sidecar.doctor import run_doctor
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.wires.stomp_peer import Frame, StompPeer

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
ANYCAST = {"subscription-type": "ANYCAST"}
TO_ANYCAST = {"destination-type": "ANYCAST"}
INTERCEPTED = "amqsidecar.intercepted"
NOT_ITS_OWN = ("message-id", "destination", "ack", "subscription", "receipt", "content-length")


def sidecar(artemis: ArtemisBroker, folder: Path, url: str, *sets: str) -> SidecarProcess:
    return SidecarProcess(
        folder,
        getattr(artemis, url),
        policy=POLICY,
        sets=["intake.allow_lossy=[body_type, property_types]", *sets],
    )


def fresh() -> str:
    return f"e2e.back.{uuid.uuid4().hex[:8]}"


def give_up(listener: ListenerProcess, artemis: ArtemisBroker, queue: str, body: bytes) -> Frame:
    """Have a consumer give a message up; take its copy out of the listener's queue."""
    with StompPeer(listener.port) as consumer, StompPeer(artemis.ports["PORT"]) as other:
        other.send(queue, {**TO_ANYCAST, "app-n": "1"}, body)
        consumer.subscribe(queue, headers=ANYCAST)
        consumer.nack(consumer.receive(), reason="no stock")
        other.subscribe(INTERCEPTED, f"_AMQ_ORIG_ADDRESS = '{queue}'", headers=ANYCAST)
        copy = other.receive()
        other.ack(copy)
    return copy


def put(
    artemis: ArtemisBroker, copy: Frame, changed: Mapping[str, str] = {}, body: bytes | None = None
) -> None:
    """Send a copy as a client could that may send to the listener's queue."""
    headers = {name: text for name, text in copy.headers.items() if name not in NOT_ITS_OWN}
    headers |= {"_AMQ_DUPL_ID": uuid.uuid4().hex, **TO_ANYCAST, **changed}
    with StompPeer(artemis.ports["PORT"]) as stranger:
        stranger.send(INTERCEPTED, headers, copy.body if body is None else body)


def parked(running: SidecarProcess, queue: str, count: int) -> str:
    def rows() -> list[dict[str, object]]:
        found = running.rows("--state", "parked")
        own = [one for one in found if str(one["destination"]).endswith(queue)]
        return own if len(own) == count else []

    return str(eventually(rows, what=f"{count} of {queue} are parked"))


@pytest.mark.parametrize("url", ["pair_url", "stomp_url"])
def test_only_what_the_listener_wrote_is_redelivered(
    artemis: ArtemisBroker, listener: ListenerProcess, tmp_path: Path, url: str
) -> None:
    queue, secret = fresh(), fresh()
    copies = [give_up(listener, artemis, queue, b"body %d" % n) for n in range(3)]
    forged = {"_AMQ_ORIG_ADDRESS": secret, "_AMQ_ORIG_QUEUE": secret}
    with sidecar(artemis, tmp_path, url, copy_keys(tmp_path)).start() as running:
        put(artemis, copies[0], forged)
        put(artemis, copies[1], body=b"another body")
        put(artemis, copies[2], {"amqsidecarRedeliveryCount": "0"})
        put(artemis, copies[2], {**forged, "amqsidecarSeal": ""})
        assert "seal" in parked(running, queue, 2)
        assert "seal" in parked(running, secret, 2)
        with StompPeer(artemis.ports["PORT"]) as consumer:
            consumer.subscribe(queue, headers=ANYCAST)
            for copy in copies:
                put(artemis, copy)
                again = consumer.receive()
                assert again.body == copy.body
                assert "amqsidecarSeal" not in again.headers
                consumer.ack(again)
            put(artemis, copies[0])
            eventually(
                lambda: [one for one in running.log_lines() if one["event"] == "discarded"],
                what="what was taken before is discarded",
            )


def test_without_keys_each_copy_waits_for_a_person(
    artemis: ArtemisBroker, listener: ListenerProcess, tmp_path: Path
) -> None:
    queue = fresh()
    copy = give_up(listener, artemis, queue, b"kept")
    with sidecar(artemis, tmp_path, "pair_url").start() as running:
        put(artemis, copy)
        assert "listener.copy_key_file" in parked(running, queue, 1)
        [row] = running.rows("--state", "parked")
        running.run_command("retry", str(row["redelivery_id"]))
        with StompPeer(artemis.ports["PORT"]) as consumer:
            consumer.subscribe(queue, headers=ANYCAST)
            assert consumer.receive().body == b"kept"


@pytest.mark.parametrize("url", ["pair_url", pytest.param("stomp_url", marks=pytest.mark.proof)])
def test_doctor_names_who_may_write_copies(
    artemis: ArtemisBroker, tmp_path: Path, url: str
) -> None:
    """Where a run reads them; without keys it would park each."""

    def findings(*sets: str) -> list[tuple[str, bool]]:
        found = run_doctor(getattr(artemis, url), tmp_path, *sets, policy=POLICY).of("permissions")
        own = [one for one in found if one["subject"] == f"queue://{INTERCEPTED}"]
        return [(one["severity"], "send: amq, consume: amq," in one["what"]) for one in own]

    with StompPeer(artemis.ports["PORT"]) as peer:
        peer.subscribe(INTERCEPTED, headers=ANYCAST)
    assert findings() == [("warning", True)]
    assert findings(copy_keys(tmp_path)) == [("note", True)]
    assert findings("intake.queues=DLQ") == []


def test_keys_are_rotated_by_replacing_the_file(
    artemis: ArtemisBroker, listener: ListenerProcess, tmp_path: Path
) -> None:
    """Old copies are accepted as long as the old key is in the sidecar's file."""
    queue, path = fresh(), Path(copy_keys(tmp_path).partition("=")[2])
    before = give_up(listener, artemis, queue, b"before")
    former = path.read_text(encoding="utf-8")
    with sidecar(artemis, tmp_path, "pair_url", copy_keys(tmp_path)).start() as running:
        path.write_text("0" * 64 + "\n" + former, encoding="utf-8")
        put(artemis, before)
        with StompPeer(listener.port) as consumer:
            consumer.subscribe(queue, headers=ANYCAST)
            again = consumer.receive()
            assert again.body == b"before"
            consumer.ack(again)
            consumer.send(queue, TO_ANYCAST, b"after")
            consumer.nack(consumer.receive())
            again = consumer.receive()
            assert (again.body, again.headers["amqsidecarRedeliveryCount"]) == (b"after", "1")
            consumer.ack(again)
        path.write_text("0" * 64 + "\n", encoding="utf-8")
        put(artemis, before)
        assert "not in listener.copy_key_file" in parked(running, queue, 1)
