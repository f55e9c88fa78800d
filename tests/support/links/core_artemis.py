"""The harness of the Core link to Artemis: its producers and consumers speak Core."""

from collections.abc import Sequence
from contextlib import nullcontext
from io import BytesIO
from uuid import uuid1

from amqsidecar.broker import LookSession
from amqsidecar.brokers.artemis.left_behind import MADE_BY_OTHERS
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.session import is_forced
from amqsidecar.brokers.core_artemis.link import CoreArtemisLink
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.clock import SystemClock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    PIECE_BYTES,
    TEXT_MESSAGE,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
    read_core_properties,
)
from amqsidecar.formats.core.primitives import NULLABLE_SIMPLE_STRING, CoreReader
from support.links.artemis import ArtemisHarness
from support.links.harness import Drained
from support.waiting import PATIENCE_S

_WINDOW_BYTES = 1 << 20


def text_message(address: str, body: str, **properties: str | int) -> CoreMessage:
    """Return a persistent text message as a JMS producer makes it; whole numbers are long."""
    kinds = {str: CorePropertyType.STRING, int: CorePropertyType.LONG}
    found = {name: CoreProperty(kinds[type(value)], value) for name, value in properties.items()}
    found["_AMQ_ROUTING_TYPE"] = CoreProperty(CorePropertyType.BYTE, packets.ANYCAST)
    return new_message(
        address,
        found,
        timestamp_ms=SystemClock().now_ms(),
        kind=TEXT_MESSAGE,
        body=NULLABLE_SIMPLE_STRING.write(body),
    )._replace(user_id=uuid1().bytes)


class CoreArtemisHarness(ArtemisHarness):
    """Own dead-letter address per prefix; dead letters made by Core and killed by management."""

    name = "core-artemis"

    def connect(self) -> None:
        """Connect the harness itself."""
        super().connect()
        self.core = self.management.connection
        self.session = self.core.create_session(is_transacted=True)
        self.session.start()

    def make_link(
        self,
        instance: str,
        *,
        selector: str = MADE_BY_OTHERS,
        crash_point: CrashPoint = no_crash,
    ) -> CoreArtemisLink:
        return CoreArtemisLink(
            ArtemisLinkSettings(
                self.broker.endpoint("PORT"),
                clock=SystemClock(),
                instance=instance,
                selector=selector,
                crash_point=crash_point,
            )
        )

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        ids = [f"{origin}-{number}" for number in range(n)]
        self.put([text_message(origin, one.ljust(size_bytes, "."), testId=one) for one in ids])
        self.kill(origin)
        return ids

    def put(self, messages: Sequence[CoreMessage]) -> None:
        """Send messages to their queues, which are made where they are missing."""
        for name in {one.address or "" for one in messages}:
            if not self.session.ask_queue(name).exists:
                self.session.create_queue(name, address=name, routing_type=packets.ANYCAST)
        sent = [
            self.session.ask_send_large(one, BytesIO(one.body), len(one.body))
            if len(one.body) > PIECE_BYTES
            else self.session.ask_send(one)
            for one in messages
        ]
        assert self.session.answers(sent) == [None] * len(sent)
        self.session.commit()

    def forward(self, queue_name: str, to: str) -> None:
        copies = []
        for message in self.drain_core(queue_name):
            copy = text_message(to, "")
            copies.append(copy._replace(body=message.body, properties=message.properties))
        self.put(copies)

    def drain(self, queue_name: str) -> list[Drained]:
        found = []
        for message in self.drain_core(queue_name):
            values = {
                name: one.value for name, one in read_core_properties(message.properties).items()
            }
            body = NULLABLE_SIMPLE_STRING.read(CoreReader(message.body)) or ""
            found.append(Drained(str(values.get("testId")), body, values))
        return found

    def drain_core(self, queue_name: str) -> list[CoreMessage]:
        """Consume all that a queue holds and return it with its bodies."""
        if not self.depth(queue_name):
            return []
        session = self.session
        consumer = session.create_consumer(
            queue_name.rpartition("::")[2], window_bytes=_WINDOW_BYTES
        )
        session.force_delivery(consumer)
        found: list[CoreDelivery] = []
        counted, has_come = 0, True
        while has_come:
            self.core.wait(PATIENCE_S)
            for one in session.take_from(consumer):
                session.give_back(one)
                if is_forced(one.message):
                    has_come = len(found) > counted or session.is_receiving(consumer)
                    counted = len(found)
                    session.force_delivery(consumer)
                else:
                    found.append(one)
        bodies = []
        for one in found:
            with one.large_body or nullcontext() as large:
                bodies.append(one.whole().body if large is None else large.read())
        if found:
            session.acknowledge(found[-1])
            session.commit()
        session.close_consumer(consumer)
        return [one.message._replace(body=body) for one, body in zip(found, bodies, strict=True)]

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, CoreArtemisTake)
        link._connection._socket.shutdown(2)
