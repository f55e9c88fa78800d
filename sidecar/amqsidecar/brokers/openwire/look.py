"""A session over OpenWire on ActiveMQ Classic that only browses."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial

from typing_extensions import override

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.classic.browse_all import browse_all
from amqsidecar.brokers.classic.foreign_tokens import BROWSED_MAX, TOKEN_QUEUES, BrowsedToken
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH, QUEUE_ADVISORIES, ClassicQueues
from amqsidecar.brokers.classic.room import PATIENCE_S, of_a_trial
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.statistics import (
    ANSWER_S,
    BROKER_QUESTION,
    END_PROPERTY,
    FIELDS,
    QUESTION_MS,
    ClassicCounters,
    StatisticsReply,
)
from amqsidecar.brokers.connection.refusal import RequestRefused, raised_as
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import OpenWireConsumer, OpenWireConsumers
from amqsidecar.brokers.openwire.trials import OpenWireTrials
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.errors import BrokerRefused, LinkLost, UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import (
    map_content,
    read_cycle,
    read_dead_letter,
    read_destination_info,
    read_rules_digest,
    take_apart,
)
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.formats.openwire_properties import read_properties, string_entry
from amqsidecar.model.destination import Destination, DestinationKind

_PREFETCH = 1_000
_STATISTICS = frozenset(field.encode() for field in FIELDS)


def _name_of(shown: tuple[bytes, bytes]) -> tuple[bytes | None, int]:
    """Return the id and the timestamp of a message that a browse showed."""
    _, message = shown
    return read_dead_letter(message, None, 0)[1], take_apart(message).timestamp_ms


def _takes(
    settings: ClassicLinkSettings, connection: OpenWireConnection, destination: Destination
) -> bool:
    endpoint, clock = settings.endpoint, settings.clock
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
        connection.ask(codec.SESSION_INFO, codec.session_id(name)),
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


class OpenWireQueueWatch(ClassicQueues):
    """The queues that the broker's advisories name.

    Source: ActiveMQ Classic, DestinationInfoMarshaller.
    """

    def __init__(self, consumers: OpenWireConsumers, final_suffix: str) -> None:
        super().__init__(consumers.connection.name, final_suffix)
        self._consumers = consumers

    @override
    def _listen(self, known: Destination | None) -> None:
        self._consumers.add(
            QUEUE_ADVISORIES, ADVISORY_PREFETCH, take=self._take_in, asynchronous=False
        )
        self._consumers.route()

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        self._consumers.acknowledge(consumer, field, message)
        told = read_destination_info(message)
        if told is not None and told[0].kind is DestinationKind.QUEUE:
            self.told(told[0].name, is_removed=told[1])


class OpenWireStatistics:
    """Asks over one connection, with a temporary queue for the answers.

    Source: ActiveMQ Classic, StatisticsBroker.send.
    """

    def __init__(self, consumers: OpenWireConsumers, encoder: OpenWireResendEncoder) -> None:
        self._is_begun = False
        self._answers: list[StatisticsReply] = []
        self._consumers = consumers
        self._encoder = encoder
        name = f"{consumers.connection.connection}:1"
        self._reply_to = Destination(DestinationKind.TEMP_QUEUE, name)

    def ask(self, questions: Sequence[Destination]) -> list[StatisticsReply] | None:
        """Ask about these destinations; None = no answer."""
        try:
            if not self._is_begun:
                self._begin()
                if not self._answered([BROKER_QUESTION]):
                    return None
        except RequestRefused:
            return None
        self._is_begun = True
        return [told for told in self._answered(questions, has_end=True) if told]

    def _answered(
        self, questions: Sequence[Destination], *, has_end: bool = False
    ) -> list[StatisticsReply]:
        """Return the answers until each question had its last one, or the time is over."""
        self._answers.clear()
        self._put(questions, has_end=has_end)

        def is_done() -> bool:
            ends = [told for told in self._answers if not (has_end and told)]
            return len(ends) >= len(questions)

        self._consumers.run_until(is_done, ANSWER_S)
        return list(self._answers)

    def _begin(self) -> None:
        connection, name = self._consumers.connection, self._consumers.connection.connection
        producer = codec.producer_info(codec.producer_id(name, 1, 1))
        made = codec.destination_info(
            codec.connection_id(name), codec.destination_field(self._reply_to), is_removed=False
        )
        connection.call(codec.PRODUCER_INFO, producer)
        connection.call(codec.DESTINATION_INFO, made)
        self._consumers.add(self._reply_to, _PREFETCH, take=self._take)

    def _put(self, questions: Sequence[Destination], *, has_end: bool) -> None:
        connection, now_ms = self._consumers.connection, self._consumers.clock.now_ms()
        entries = [string_entry(END_PROPERTY, "true")] if has_end else []
        for question in questions:
            number = connection.next_number()
            frame = self._encoder.question(
                question, self._reply_to, entries, now_ms, now_ms + QUESTION_MS, number
            )
            connection.write_soon(frame)

    def _take(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        self._consumers.acknowledge(consumer, field, message)
        with suppress(UndecodableMessage):
            found = read_properties(map_content(message), _STATISTICS)
            self._answers.append({name.decode(): value for name, value in found.items()})


_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400


class OpenWireLook(ListingSession):
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    _consumers: OpenWireConsumers
    _connection: OpenWireConnection

    def __init__(self, connection: OpenWireConnection, settings: ClassicLinkSettings) -> None:
        version = connection.wire_format.provider_version
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, (codec.ENCODING,))
        consumers = OpenWireConsumers(connection, settings.clock)
        watch = OpenWireQueueWatch(consumers, settings.final_suffix)
        super().__init__(consumers, watch, settings)
        self.features = Features(listing=self)
        self._encoder = OpenWireResendEncoder(connection.connection, settings.keeps_non_persistent)

    def close(self) -> None:
        """Give everything back uncounted and disconnect; never raises, safe to call twice."""
        hang_up(self._connection)

    @property
    @override
    def _has_arrived(self) -> bool:
        return self._consumers.has_arrived

    @override
    def _takes(self, destination: Destination) -> bool:
        """Send a message, roll it back; see the base."""
        connection = OpenWireConnection(of_a_trial(self._settings.endpoint), self._clock)
        try:
            return _takes(self._settings, connection, destination)
        finally:
            connection.reset()

    @override
    def _hear(self, advisories: Destination, at_most: int) -> Sequence[Destination | None]:
        heard: list[Destination | None] = []
        consumer = self._consumers.add(
            advisories,
            at_most,
            take=lambda _consumer, field, _message: heard.append(codec.read_destination(field)),
            asynchronous=False,
        )
        self._consumers.route()
        self._consumers.remove(consumer)
        return heard

    @override
    def _browse_tokens(self) -> Iterable[BrowsedToken]:
        for field, message in self._consumers.browse(TOKEN_QUEUES, BROWSED_MAX):
            if read_cycle(message) is not None:
                place, sent_at_ms = codec.read_destination(field), take_apart(message).timestamp_ms
                yield BrowsedToken(place, sent_at_ms, read_rules_digest(message))

    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost or block us; Classic creates lasting destinations.

        Classic refuses messages to a temporary destination whose owner is gone.

        Source: AbstractRegion.addDestination, DestinationDoesNotExistException.
        """
        return self._rooms.problem(destination, self._takes)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        with raised_as(f"can't browse {queue.destination}: {{}}"):
            return sum(
                1 for _ in self._consumers.browse(queue.destination, min(at_most, _COUNT_MAX))
            )

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return the messages of a dead-letter queue; see `browse_all`."""
        selector = of_redelivery_ids(queue.redelivery_ids)
        for source in self._existing(queue):
            with raised_as(f"can't browse {source}: {{}}"):
                browse = partial(self._consumers.browse, source)
                for _, message in browse_all(browse, _name_of, at_most, selector):
                    provenance = read_dead_letter(message, source, self._clock.now_ms())[0]
                    yield Delivery(None, source, message, provenance, codec.ENCODING)

    @cached_property
    def _counters(self) -> ClassicCounters:
        statistics = OpenWireStatistics(self._consumers, self._encoder)
        return ClassicCounters(
            self._settings.ask_counters or statistics.ask,
            lambda one, at_most: self.count(IntakeQueue(one), at_most),
        )

    def _trials(self, token_queue: Destination | None) -> OpenWireTrials:
        return OpenWireTrials(self._consumers, self._encoder, self._queues, token_queue)

    def trials(self) -> OpenWireTrials:
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
