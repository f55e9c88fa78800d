"""What an AMQP consumer rejects is saved by the listener with its error, and comes back."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from proton import Condition, ConnectionException, Delivery, Message
from proton.reactor import Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from support.brokers.broker_xml import artemis_xml
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.machine.ports import free_port
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually
from support.wires.amqp_options import Anycast
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
INTERCEPTED = "amqsidecar.intercepted"
NO_STOCK = Condition("com.acme:no-stock", "article 4711")


def connect(port: int) -> BlockingConnection:
    url = f"amqp://127.0.0.1:{port}"
    return BlockingConnection(
        url, PATIENCE_S, user="admin", password="admin", allowed_mechs="PLAIN"
    )


def send(connection: BlockingConnection, queue: str, message: Message) -> None:
    sender = connection.create_sender(queue, options=Anycast())
    sender.send(message)
    sender.link.close()


def receiver_of(connection: BlockingConnection, queue: str, credit: int = 1) -> BlockingReceiver:
    return connection.create_receiver(queue, credit=credit, options=Anycast())


def newest(receiver: BlockingReceiver) -> Any:
    """Return the delivery that was received last."""
    fetcher: Any = receiver.fetcher
    return fetcher.unsettled.pop()


def properties(message: Message) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", message.properties)


def reject(receiver: BlockingReceiver, *, settles: bool = True) -> Any:
    """Reject the newest message, and wait for nothing."""
    delivery = newest(receiver)
    delivery.local.condition = NO_STOCK
    delivery.update(Delivery.REJECTED)
    if settles:
        delivery.settle()
    return delivery


def test_what_is_rejected_comes_back_with_the_error_in_its_history(
    artemis: ArtemisBroker, listener: ListenerProcess, tmp_path: Path
) -> None:
    queue = f"e2e.back.{uuid.uuid4().hex[:8]}"
    consumer = connect(listener.port)
    with SidecarProcess(
        tmp_path, artemis.pair_url, policy=POLICY, sets=[copy_keys(tmp_path)]
    ) as sidecar:
        sidecar.start()
        sent = Message(id="m1", body={"a": [1, b"b"]}, durable=True, properties={"n": 7})
        send(consumer, queue, sent)
        receiver = receiver_of(consumer, queue)
        assert receiver.receive(PATIENCE_S).body == sent.body
        reject(receiver)
        again = receiver.receive(PATIENCE_S)
        receiver.accept()
        assert (again.id, again.body, again.durable) == ("m1", sent.body, True)
        assert properties(again)["n"] == 7
        assert properties(again)["amqsidecarRedeliveryCount"] == 1
        assert not {"amqsidecarCause", "_AMQ_ORIG_ADDRESS"}.intersection(properties(again))

        def groups() -> list[Mapping[str, object]]:
            found = sidecar.json_command("groups")
            return [one for one in found if one["destination"] == f"queue://{queue}"]

        (group,) = eventually(groups, what="the failure has a group")
        assert "intercepted at the reject of admin: com.acme:no-stock" in str(group)
    consumer.close()


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_without_a_dead_letter_address_it_is_saved_whole(tmp_path: Path, size: int) -> None:
    """Artemis alone destroys it. The second one passes through the spool, in many frames."""
    nowhere = (
        '<address-setting match="nowhere"><dead-letter-address/></address-setting>'
        "</address-settings>"
    )
    broker_xml = artemis_xml().replace("</address-settings>", nowhere)
    with (
        ArtemisBroker(broker_xml) as broker,
        ListenerProcess(tmp_path, broker.ports["PORT"]) as listener,
    ):
        consumer = connect(listener.port)
        body = bytes(range(250)) * (size // 250) or b"small"
        send(consumer, "nowhere", Message(body=body, durable=True, ttl=600))
        receiver = receiver_of(consumer, "nowhere")
        receiver.receive(PATIENCE_S)
        delivery = reject(receiver, settles=False)
        consumer.wait(lambda: delivery.settled, PATIENCE_S)
        assert delivery.remote_state == Delivery.REJECTED, "the client sees what it said"
        consumer.close()
        other = connect(broker.ports["PORT"])
        saved = receiver_of(other, INTERCEPTED).receive(PATIENCE_S)
        assert saved.body == body
        assert (saved.ttl, saved.durable) == (0, True)
        assert properties(saved)["_AMQ_ORIG_QUEUE"] == "nowhere"
        other.close()


def test_a_client_without_the_right_to_send_keeps_its_message(tmp_path: Path) -> None:
    restricted = f"""
      <security-setting match="{INTERCEPTED}">
        <permission type="send" roles="nobody"/>
      </security-setting>
    </security-settings>"""
    broker_xml = artemis_xml().replace("</security-settings>", restricted.strip())
    with (
        ArtemisBroker(broker_xml) as broker,
        ListenerProcess(tmp_path, broker.ports["PORT"]) as listener,
    ):
        other, consumer = connect(broker.ports["PORT"]), connect(listener.port)
        send(other, "refused", Message(body="precious", durable=True))
        receiver = receiver_of(consumer, "refused")
        receiver.receive(PATIENCE_S)
        reject(receiver)
        with pytest.raises((ConnectionException, LinkDetached)):
            receiver.receive(PATIENCE_S)
        assert receiver_of(other, "refused").receive(PATIENCE_S).body == "precious"
        eventually(lambda: "refused" in listener.log(), what="the log says so")
        other.close()


def test_all_that_one_disposition_of_a_jms_client_rejects_is_saved(
    artemis: ArtemisBroker, listener: ListenerProcess
) -> None:
    """qpid-jms, which rejects without an error what it has redelivered too often."""
    queue = f"e2e.late.{uuid.uuid4().hex[:8]}"
    JmsPeer.of(artemis, "qpid").produce(queue, ["Text", "Map", "Bytes"], test_id=queue)
    peer = JmsPeer("qpid", f"amqp://127.0.0.1:{listener.port}")
    assert peer.fail(queue, messages=3, deliveries=1, how="reject")
    other = connect(artemis.ports["PORT"])
    receiver = other.create_receiver(
        INTERCEPTED, credit=10, options=[Anycast(), Selector(f"_AMQ_ORIG_ADDRESS = '{queue}'")]
    )
    saved = [receiver.receive(PATIENCE_S) for _ in range(3)]
    for _ in saved:
        receiver.accept()
    assert {properties(one)["amqsidecarCause"] for one in saved} == {
        "intercepted at the reject of admin"
    }
    other.close()


def test_what_the_brokers_do_with_the_other_outcomes_is_not_changed(
    artemis: ArtemisBroker, listener: ListenerProcess
) -> None:
    """They come back at once, whatever time `modified` names."""
    queue = f"e2e.late.{uuid.uuid4().hex[:8]}"
    consumer = connect(listener.port)
    send(consumer, queue, Message(body="x", durable=True))
    receiver = receiver_of(consumer, queue)
    counts = []
    for outcome in (Delivery.RELEASED, Delivery.MODIFIED, Delivery.ACCEPTED):
        counts.append(receiver.receive(PATIENCE_S).delivery_count)
        delivery = newest(receiver)
        delivery.local.failed = True
        delivery.update(outcome)
        delivery.settle()
    assert counts == [0, 0, 1]
    consumer.close()


def test_classic_dead_letters_what_is_rejected_by_itself(tmp_path: Path) -> None:
    """The listener passes it on, and costs nothing but its way."""
    with (
        ClassicBroker() as broker,
        ListenerProcess(tmp_path, broker.ports["AMQP_PORT"]) as listener,
    ):
        consumer = connect(listener.port)
        send(consumer, "stock", Message(id="m1", body="x", durable=True))
        receiver = receiver_of(consumer, "stock")
        receiver.receive(PATIENCE_S)
        reject(receiver)
        assert receiver_of(consumer, "ActiveMQ.DLQ").receive(PATIENCE_S).id == "m1"
        consumer.close()


def test_the_broker_sees_the_address_of_the_client(tmp_path: Path) -> None:
    """An acceptor with the PROXY protocol takes the listener's connections, and no others."""
    port = free_port()
    acceptors = {
        "artemis": "tcp://127.0.0.1:@PORT@",
        "behind": f"tcp://127.0.0.1:{port}?proxyProtocolEnabled=true;protocols=AMQP,STOMP",
    }
    with (
        ArtemisBroker(artemis_xml(acceptors=acceptors)) as broker,
        ListenerProcess(tmp_path, port, ["listener.proxy_protocol=true"]) as listener,
        StompPeer(listener.port) as client,
        StompPeer(broker.ports["PORT"]) as other,
    ):
        other.subscribe("e2e.answers", headers={"subscription-type": "ANYCAST"})
        other.send(
            "activemq.management",
            {
                "_AMQ_ResourceName": "broker",
                "_AMQ_OperationName": "listConnectionsAsJSON",
                "reply-to": "e2e.answers",
            },
            b"[]",
        )
        assert client.address in other.receive().body.decode()
