"""Causes and delays that the brokers drop: the listener writes notes, which the sidecar obeys."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Delivery, Message, symbol, timestamp
from proton.reactor import Container, DurableSubscription
from proton.utils import BlockingConnection, BlockingReceiver

from support.brokers.real import Broker, ClassicBroker
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually
from support.wires.amqp_options import Anycast, Multicast

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
NO_STOCK = Condition("com.acme:no-stock", "article 4711")
DELAY_MS = 1_500


class Noted:
    """A consumer behind a listener, and a sidecar that would redeliver after an hour."""

    def __init__(self, broker: Broker, folder: Path, unique: str, url: str) -> None:
        is_artemis = broker.kind == "artemis"
        self.queue, self._notes = f"e2e.late.{unique}", f"amqsidecar.causes.{unique}"
        sets = [f"intake.cause_notes={self._notes}", "policy.verdicts=obey", copy_keys(folder)]
        policy = POLICIES / ("artemis.yaml" if is_artemis else "redelivery.yaml")
        self.sidecar = SidecarProcess(folder, url, policy=policy, sets=sets)
        self._options: Any = [Anycast()] if is_artemis else []
        port = broker.ports["PORT" if is_artemis else "AMQP_PORT"]
        self.listener = ListenerProcess(folder, port, sets)

    @contextmanager
    def running(self) -> Iterator[BlockingConnection]:
        """Run all of it; yield a connection through the listener."""
        with self.listener:
            connection = self.connect()
            # Why first: the queue of notes must exist.
            connection.create_sender(self._notes, options=self._options).link.close()
            with self.sidecar.start():
                yield connection
            connection.close()

    def connect(self, client_id: str | None = None) -> BlockingConnection:
        """Return a further connection through the listener."""
        container = Container()
        container.container_id = client_id
        login: Any = {"user": "admin", "password": "admin", "allowed_mechs": "PLAIN"}
        url = f"amqp://127.0.0.1:{self.listener.port}"
        return BlockingConnection(url, PATIENCE_S, container=container, **login)

    def send(self, connection: BlockingConnection, message: Message) -> None:
        sender = connection.create_sender(self.queue, options=self._options)
        sender.send(message)
        sender.link.close()

    def consume(self, connection: BlockingConnection) -> Any:
        return connection.create_receiver(self.queue, credit=1, options=self._options)

    def groups(self) -> str:
        found = self.sidecar.json_command("groups")
        return str([one for one in found if one["destination"] == f"queue://{self.queue}"])


def answer(receiver: BlockingReceiver, outcome: Any, **fields: Any) -> None:
    """Give up what was received last."""
    fetcher: Any = receiver.fetcher
    delivery = fetcher.unsettled.pop()
    for name, value in fields.items():
        setattr(delivery.local, name, value)
    delivery.update(outcome)
    delivery.settle()


ON_CLASSIC = pytest.param("classic_6 openwire_url", id="classic")


@pytest.fixture
def noted(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Noted:
    name, url = request.param.split()
    broker = request.getfixturevalue(name)
    return Noted(broker, tmp_path, unique, getattr(broker, url))


@pytest.mark.parametrize("noted", ["artemis pair_url", ON_CLASSIC], indirect=True)
def test_a_delay_that_a_consumer_chose_is_obeyed_and_never_early(noted: Noted) -> None:
    with noted.running() as connection:
        body = {"a": [1, b"b"]}
        noted.send(connection, Message(id="m1", body=body, durable=True, properties={"n": 7}))
        receiver = noted.consume(connection)
        chosen_ms = 0
        for failures_left in (2, 1, 0):
            message = receiver.receive(PATIENCE_S)
            assert time.time() * 1e3 >= chosen_ms, "never early"
            assert (message.id, message.body, message.durable) == ("m1", body, True)
            properties: Any = message.properties
            assert properties["n"] == 7
            chosen_ms = int(time.time() * 1e3) + DELAY_MS
            if failures_left:
                annotations = {symbol("x-opt-delivery-time"): timestamp(chosen_ms)}
                answer(receiver, Delivery.MODIFIED, failed=True, annotations=annotations)
        receiver.accept()


@pytest.mark.parametrize("noted", ["artemis pair_url"], indirect=True)
def test_a_delay_that_one_subscription_chose_is_not_another_s(noted: Noted) -> None:
    """Both copies of the message have one id; each note names the queue of its subscription."""
    topic = f"{noted.queue}.news"
    with noted.running() as connection, ExitStack() as stack:

        def subscribe(client_id: str) -> BlockingReceiver:
            own = noted.connect(client_id)
            stack.callback(own.close)
            options: Any = [Multicast(), DurableSubscription()]
            return own.create_receiver(topic, credit=1, name="s", options=options)

        soon, hour = subscribe(f"{noted.queue}.soon"), subscribe(f"{noted.queue}.hour")
        options: Any = [Multicast()]
        connection.create_sender(topic, options=options).send(
            Message(id="m1", body="x", durable=True)
        )
        assert {one.receive(PATIENCE_S).id for one in (soon, hour)} == {"m1"}
        chosen_ms = int(time.time() * 1e3) + DELAY_MS
        for receiver, at_ms in ((hour, chosen_ms + 3_600_000), (soon, chosen_ms)):
            annotations = {symbol("x-opt-delivery-time"): timestamp(at_ms)}
            answer(receiver, Delivery.MODIFIED, failed=True, annotations=annotations)
            # Why: proton writes nothing until it waits for something.
            receiver.connection.create_sender(topic, options=options).link.close()
        assert soon.receive(PATIENCE_S).id == "m1"
        assert time.time() * 1e3 >= chosen_ms, "never early"
        soon.accept()
        rows = noted.sidecar.rows()
        [other] = [one for one in rows if ".hour" in one["destination"].rpartition("::")[2]]
        assert other["due_at_ms"] >= chosen_ms + 3_600_000


@pytest.mark.parametrize("noted", [ON_CLASSIC], indirect=True)
def test_the_error_of_what_is_rejected_is_its_cause(noted: Noted) -> None:
    with noted.running() as connection:
        noted.send(connection, Message(id="m1", body="x", durable=True))
        receiver = noted.consume(connection)
        receiver.receive(PATIENCE_S)
        answer(receiver, Delivery.REJECTED, condition=NO_STOCK)
        receiver.close()
        eventually(lambda: "com.acme:no-stock" in noted.groups(), what="the group has the error")


@pytest.mark.proof
def test_without_the_right_to_notes_a_message_is_given_up_as_without_a_listener(
    tmp_path: Path,
) -> None:
    entries = """
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry queue="orders" read="admins" write="admins" admin="admins"/>
        <authorizationEntry queue="ActiveMQ.>" read="admins" write="admins" admin="admins"/>
        <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
        <authorizationEntry queue="amqsidecar.causes" read="none" write="none" admin="none"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>"""
    sets = ["intake.cause_notes=amqsidecar.causes", "policy.verdicts=obey"]
    with (
        ClassicBroker(authentication=True, plugins=entries) as broker,
        ListenerProcess(tmp_path, broker.ports["AMQP_PORT"], sets) as listener,
    ):
        url = f"amqp://127.0.0.1:{listener.port}"
        connection = BlockingConnection(
            url, PATIENCE_S, user="admin", password="admin", allowed_mechs="PLAIN"
        )
        sender = connection.create_sender("orders")
        for name in ("m1", "m2"):
            sender.send(Message(id=name, body="x", durable=True))
        receiver = connection.create_receiver("orders", credit=1)
        dead = connection.create_receiver("ActiveMQ.DLQ", credit=1)
        for name in ("m1", "m2"):
            assert receiver.receive(PATIENCE_S).id == name
            answer(receiver, Delivery.REJECTED, condition=NO_STOCK)
            assert dead.receive(PATIENCE_S).id == name
            dead.accept()
        eventually(lambda: "not_intercepted" in listener.log(), what="the listener says so")
        connection.close()
