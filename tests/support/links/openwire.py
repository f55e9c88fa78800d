"""The harness of the OpenWire link to Classic."""

import struct
import uuid

from amqsidecar.broker import IntakeQueue, LookSession
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import MessageHandle, OpenWireConsumers, ack_fields
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.brokers.openwire.look import OpenWireQueueWatch
from amqsidecar.brokers.openwire.take import OpenWireTake
from amqsidecar.clock import SystemClock
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.model.destination import Destination, DestinationKind, queue
from support.brokers.real import Broker
from support.links.harness import Drained, LinkHarness
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

CAUSE = "java.lang.Throwable: Delivery[1] exceeds redelivery policy limit:..., cause:null"


class ClassicHarness(LinkHarness):
    """Own dead-letter queue per prefix; OpenWire clients send dead letters as the broker would."""

    name: str

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.dead_letter_queue = f"{prefix}.DLQ"
        self._sequence = 0
        self._connection = OpenWireConnection(
            broker.endpoint("OPENWIRE_PORT", idle_timeout_s=0), SystemClock()
        )
        name = self._connection.connection
        login = (broker.user, broker.password)
        info = codec.connection_info(name, f"harness-{uuid.uuid4().hex}", *login)
        self._connection.call(codec.CONNECTION_INFO, info)
        self._connection.call(codec.SESSION_INFO, codec.session_id(name))
        producer = codec.producer_info(codec.producer_id(name, 1, 1))
        self._connection.call(codec.PRODUCER_INFO, producer)
        self._consumers = OpenWireConsumers(self._connection, SystemClock())

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        """Put `n` dead letters of queue `origin` into the dead-letter queue; return their ids."""
        ids = [f"{origin}-{number}" for number in range(n)]
        dead = []
        for one in ids:
            body = one.ljust(size_bytes, ".").encode()
            dead.append(
                WireMessage(
                    content=struct.pack(">i", len(body)) + body,
                    properties=wire.property_map(wire.text_entry("testId", one)),
                    original_destination=(wire.QUEUE, origin),
                )
            )
        self._send_dead(dead)
        return ids

    def kill(self, queue_name: str) -> None:
        found = self.drain_raw(queue_name)
        dead = [one.with_(original_destination=(wire.QUEUE, queue_name)) for one in found]
        self._send_dead(dead, keeps_ids=True)

    def forward(self, queue_name: str, to: str) -> None:
        now_ms = SystemClock().now_ms()
        self.send(
            [
                one.with_(destination=(wire.QUEUE, to), transaction=codec.NULL, timestamp=now_ms)
                for one in self.drain_raw(queue_name)
            ]
        )

    def _send_dead(self, messages: list[WireMessage], *, keeps_ids: bool = False) -> None:
        dead = []
        for one in messages:
            entries = (
                wire.long_entry("originalExpiration", one.expiration),
                wire.text_entry("dlqDeliveryFailureCause", CAUSE),
            )
            count = struct.unpack(">i", (one.properties or b"\0\0\0\0")[:4])[0] + len(entries)
            map_ = struct.pack(">i", count) + (one.properties or b"")[4:] + b"".join(entries)
            dead.append(
                one.with_(
                    destination=(wire.QUEUE, self.dead_letter_queue),
                    properties=map_,
                    transaction=codec.NULL,
                    expiration=0,
                    redelivery_counter=0,
                )
            )
        self.send(dead, keeps_ids=keeps_ids)

    def send(self, messages: list[WireMessage], *, keeps_ids: bool = False) -> None:
        """Send messages outside of any transaction, each with an id of its own or as it has it."""
        numbers = []
        sender = (self._connection.connection, 1, 1)
        for one in messages:
            self._sequence += 1
            if keeps_ids:
                ours = one.with_(sender=sender)
            else:
                ours = one.with_(producer=sender, sequence=self._sequence)
            numbers.append(self._connection.ask(one.code, ours.encoded()[6:]))
        assert self._connection.answers(numbers) == [None] * len(numbers)

    def intake(self) -> IntakeQueue:
        return IntakeQueue(queue(self.dead_letter_queue))

    def drain(self, queue_name: str) -> list[Drained]:
        drained = []
        for one in self.drain_raw(queue_name):
            properties = wire.read_properties(one.properties)
            body = (one.content or b"\0\0\0\0")[4:].decode()
            drained.append(Drained(str(properties.get("testId")), body, properties))
        return drained

    def drain_raw(self, queue_name: str) -> list[WireMessage]:
        """Consume all that a queue holds and return it field by field."""
        found: list[bytes] = []
        taken: list[MessageHandle] = []

        def take(consumer: object, field: bytes, message: bytes | None) -> None:
            assert message is not None
            found.append(message)
            message_id = read_dead_letter(message, None, 0)[1]
            taken.append(MessageHandle(consumer, field, message_id, len(found)))  # type: ignore[arg-type]

        consumer = self._consumers.add(queue(queue_name), 1000, take=take)
        # Why both: under load a browser may end before it has seen what the consumer has got.
        while self.depth(queue_name) > 0 or taken:
            self._consumers.route()
            while not taken:
                self._connection.wait(10)
                self._consumers.route()
            fields = ack_fields(codec.NULL, taken[0], taken[-1])
            taken.clear()
            self._connection.call(codec.MESSAGE_ACK, fields)
        self._consumers.remove(consumer)
        return [wire.read_message(message) for message in found]

    def depth(self, queue_name: str) -> int:
        """Return how many messages a queue holds, handed out ones too; 400 = at least 400."""
        return sum(1 for _ in self._consumers.browse(queue(queue_name), 400))

    def exists(self, queue_name: str) -> bool:
        watch = OpenWireQueueWatch(self._consumers, ".exhausted")
        return bool(watch.existing(IntakeQueue(queue(queue_name))))

    def refusing_destination(self) -> Destination:
        """Return a destination to which the broker refuses sends."""
        return Destination(DestinationKind.TEMP_QUEUE, "ID:gone-1-1-0:1:1")

    def close(self) -> None:
        self._connection.close()


class OpenWireHarness(ClassicHarness):
    """The link itself speaks OpenWire, too."""

    name = "openwire-classic"

    def make_link(self, instance: str) -> OpenWireLink:
        return OpenWireLink(
            ClassicLinkSettings(
                self.broker.endpoint("OPENWIRE_PORT"),
                clock=SystemClock(),
                instance=f"{self.prefix}-{instance}",
            )
        )

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, OpenWireTake)
        link._connection._socket.shutdown(2)
