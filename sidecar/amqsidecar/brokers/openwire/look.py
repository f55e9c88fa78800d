"""A session over OpenWire on ActiveMQ Classic that only browses."""

import secrets
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property, partial

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.classic import foreign_tokens as classic_tokens
from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH
from amqsidecar.brokers.classic.room import PATIENCE_S, of_a_trial
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.brokers.openwire.queues import OpenWireQueueWatch
from amqsidecar.brokers.openwire.settings import OpenWireSettings
from amqsidecar.brokers.openwire.statistics import OpenWireStatistics
from amqsidecar.brokers.openwire.trials import OpenWireTrials
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.clock import Clock
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import (
    read_cycle,
    read_dead_letter,
    read_death,
    read_rules_digest,
    take_apart,
)
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination, topic
from amqsidecar.model.foreign_token import ForeignToken


def takes(endpoint: Endpoint, clock: Clock, destination: Destination) -> bool:
    """Send a message, roll it back, and return whether the broker did so without waiting for room.

    Raises:
        BrokerError: it can't be asked.
    """
    connection = OpenWireConnection(of_a_trial(endpoint), clock)
    try:
        return _takes(connection, endpoint, clock, destination)
    finally:
        connection.reset()


def _takes(
    connection: OpenWireConnection, endpoint: Endpoint, clock: Clock, destination: Destination
) -> bool:
    name = connection.connection
    owner = codec.connection_id(name)
    client_id = f"amqsidecar-room-{secrets.token_hex(6)}"
    info = codec.connection_info(name, client_id, endpoint.user, endpoint.credentials.secret())
    transaction = codec.transaction_id(name, 1)
    begin, rollback = (
        codec.transaction_info(owner, transaction, operation)
        for operation in (codec.BEGIN, codec.ROLLBACK)
    )
    asked = [
        connection.ask(codec.CONNECTION_INFO, info),
        connection.ask(codec.SESSION_INFO, codec.session_id(name, 1)),
        connection.ask(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1))),
        connection.ask(codec.TRANSACTION_INFO, begin),
    ]
    for reason in connection.answers(asked, endpoint.connect_timeout_s):
        if reason is not None:
            raise BrokerRefused(str(reason))
    # Why without an answer: the broker lays aside a send that asks for one, and never forgets it.
    encoder = OpenWireResendEncoder(name)
    connection.write_soon(
        encoder.token(destination, 0, transaction, clock.now_ms(), connection.next_number())
    )
    try:
        connection.answers([connection.ask(codec.TRANSACTION_INFO, rollback)], PATIENCE_S)
    except LinkLost:
        return False
    with suppress(LinkLost):
        goodbye = connection.ask(codec.REMOVE_INFO, codec.remove_info(owner))
        connection.answers([goodbye], PATIENCE_S)
        connection.send(codec.SHUTDOWN_INFO, b"")
        connection.flush()
    connection.close()
    return True


def foreign_tokens(
    consumers: OpenWireConsumers, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        CommandRefused: the broker does not allow it.
        LinkLost: the connection is gone.
    """
    tokens = classic_tokens.ForeignTokens(known)
    for field, message in consumers.look(classic_tokens.TOKEN_QUEUES, classic_tokens.BROWSED_MAX):
        if read_cycle(message) is not None:
            tokens.note(
                codec.read_destination(field),
                take_apart(message).timestamp_ms,
                read_rules_digest(message),
            )
    return tokens.found(_consumers(consumers) if tokens else ())


def _consumers(consumers: OpenWireConsumers) -> list[Destination | None]:
    found: list[Destination | None] = []

    def take(_consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is not None:
            found.append(codec.read_destination(field))

    consumer = consumers.add(
        classic_tokens.TOKEN_CONSUMERS,
        classic_tokens.CONSUMERS_MAX,
        take=take,
        asynchronous=False,
    )
    consumers.route()
    consumers.remove(consumer)
    return found


_ADVISORIES = "ActiveMQ.Advisory.MessageDLQd"
_PREFETCH = 1000
# Bound: what comes faster than anyone asks is lost, unless a browse finds it.
_HEARD_MAX = 10_000


class Deaths:
    """The deaths since the last call, as the broker's MessageDLQd advisories report them.

    Source: AdvisoryBroker.sendToDeadLetterQueue: after the dead letter is stored, a copy of the
    message as it was, without its body, is published on a topic of its destination.
    """

    def __init__(
        self, connection: OpenWireConnection, consumers: OpenWireConsumers, clock: Clock
    ) -> None:
        """Begin to listen.

        Raises:
            CommandRefused: the broker does not allow it.
        """
        self._connection = connection
        self._consumers = consumers
        self._clock = clock
        self._heard: deque[Delivery] = deque(maxlen=_HEARD_MAX)
        consumers.add(topic(f"{_ADVISORIES}.>"), _PREFETCH, take=self._take_in)

    def heard(self) -> list[Delivery]:
        """Return the deaths since the last call, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        self._connection.poll()
        self._consumers.route()
        found = list(self._heard)
        self._heard.clear()
        return found

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        provenance, message_id = read_death(message, self._clock.now_ms())
        handle = MessageHandle(consumer, field, message_id, 0)
        self._connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))
        origin = None if provenance is None else provenance.origin
        if provenance is None or origin is None:
            return
        # Why: a copy of a virtual topic names the topic; its dead-letter queue follows the queue.
        kind = "Queue" if origin.is_queue else "Topic"
        if codec.read_destination(field) == topic(f"{_ADVISORIES}.{kind}.{origin.name}"):
            self._heard.append(Delivery(None, origin, b"", provenance, codec.ENCODING))


_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_BROWSED_BYTES_MAX = 128 * 1024 * 1024
_COUNT_MAX = 400


class OpenWireLook(ListingSession):
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    _connection: OpenWireConnection
    _queues: OpenWireQueueWatch

    def __init__(
        self,
        connection: OpenWireConnection,
        settings: OpenWireSettings,
    ) -> None:
        """Look over a connection that is logged in."""
        version, clock = connection.wire_format.provider_version, settings.clock
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, (codec.ENCODING,))
        self._consumers = OpenWireConsumers(connection, clock)
        super().__init__(
            connection,
            OpenWireQueueWatch(connection, self._consumers, settings.final_suffix),
            clock,
            settings.rooms,
            partial(takes, settings.endpoint, clock),
        )
        self._settings = settings
        self._encoder = OpenWireResendEncoder(connection.connection, settings.keeps_non_persistent)

    @property
    def features(self) -> Features:
        """The optional features of this wire."""
        return Features(deaths=self, listing=self)

    def close(self) -> None:
        """Give everything back uncounted and disconnect; never raises, safe to call twice."""
        hang_up(self._connection)

    def _route(self) -> None:
        self._consumers.route()

    @property
    def _has_arrived(self) -> bool:
        return self._consumers.has_arrived

    def _hears(self, advisories: Destination) -> bool:
        heard: list[bytes] = []
        consumer = self._consumers.add(
            advisories,
            ADVISORY_PREFETCH,
            take=lambda _consumer, field, _message: heard.append(field),
            asynchronous=False,
        )
        self._consumers.route()
        self._consumers.remove(consumer)
        return bool(heard)

    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one.

        Classic refuses what is sent to a temporary one whose owner is gone.

        Source: AbstractRegion.addDestination, DestinationDoesNotExistException.
        """
        return self._rooms.problem(destination, self._takes)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        try:
            return self._consumers.count(queue.destination, max(1, min(at_most, _COUNT_MAX)))
        except CommandRefused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return messages of a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Raises:
            BrokerRefused: the user may not read it.
            LinkLost: the connection is gone.
        """
        found = []
        held_bytes = 0
        selector = of_redelivery_ids(queue.redelivery_ids)
        for source in self._existing(queue):
            try:
                messages = self._consumers.browse(source, at_most, selector=selector)
            except CommandRefused as cause:
                raise BrokerRefused(f"can't browse {source}: {cause}") from cause
            now_ms = self._clock.now_ms()
            for message in messages:
                held_bytes += len(message)
                # Why: each queue of a wildcard shows as many bytes as one alone may.
                kept = message if held_bytes <= _BROWSED_BYTES_MAX else b""
                provenance = read_dead_letter(message, source, now_ms)[0]
                found.append(Delivery(None, source, kept, provenance, codec.ENCODING))
        return found

    def listen(self) -> Deaths:
        """Subscribe to the broker's advisories of deaths.

        Raises:
            BrokerRefused: the user may not read them.
            LinkLost: the connection is gone.
        """
        try:
            return Deaths(self._connection, self._consumers, self._clock)
        except CommandRefused as cause:
            raise BrokerRefused(
                f"can't hear of deaths: {cause}; allow the user to read and admin (create) topic "
                "ActiveMQ.Advisory.>"
            ) from cause

    @cached_property
    def _counters(self) -> ClassicCounters:
        statistics = OpenWireStatistics(
            self._connection, self._consumers, self._encoder, self._clock
        )
        return ClassicCounters(
            self._settings.ask_counters or statistics.ask,
            lambda one, at_most: self.count(IntakeQueue(one), at_most),
        )

    def _find_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        return foreign_tokens(self._consumers, known)

    def _trials(self, token_queue: Destination | None) -> OpenWireTrials:
        return OpenWireTrials(
            self._connection,
            self._consumers,
            self._encoder,
            self._queues,
            self._clock,
            token_queue,
        )

    def trials(self) -> OpenWireTrials:
        """Return the trials of the user's permissions over this connection."""
        return self._trials(None)


def hang_up(connection: OpenWireConnection) -> None:
    """Log out and disconnect; never raises, safe to call twice."""
    connection.silence.ask = ask_nobody
    if connection.is_open:
        with suppress(LinkLost):
            # Why: it removes session and consumers as well, none of whose messages count as
            # delivered; with its answer the client id is free again.
            info = codec.remove_info(codec.connection_id(connection.connection))
            connection.answers([connection.ask(codec.REMOVE_INFO, info)], _CLOSE_TIMEOUT_S)
            connection.send(codec.SHUTDOWN_INFO, b"")
            connection.flush()
        connection.close()
