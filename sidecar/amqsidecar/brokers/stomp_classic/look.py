"""A session over STOMP on ActiveMQ Classic that only browses."""

from collections.abc import Collection
from contextlib import suppress
from functools import cached_property, partial
from typing import Final

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.classic.subscribers import HEARD_WITHIN_S, TopicSubscribers
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.bad_message_proof import breaks_connections
from amqsidecar.brokers.stomp_classic.bad_message_search import note_breakers
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.foreign_tokens import foreign_tokens
from amqsidecar.brokers.stomp_classic.intake import (
    IntakeLimits,
)
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.brokers.stomp_classic.queues import StompQueueWatch
from amqsidecar.brokers.stomp_classic.room import takes
from amqsidecar.brokers.stomp_classic.settings import StompClassicSettings
from amqsidecar.brokers.stomp_classic.statistics import StompStatistics
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats.stomp_classic_message import (
    provenance,
    read_destination,
    shown,
)
from amqsidecar.formats.stomp_frame import ENCODING, Frame, first
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken

_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400
# Why: Classic pages 200 messages at a time.
BATCH: Final = 200
PRODUCT: Final = "ActiveMQ/"


class StompClassicLook(ListingSession[StompConnection, StompQueueWatch]):
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    def __init__(self, connection: StompConnection, settings: StompClassicSettings) -> None:
        """Look over a connection that is logged in."""
        version = connection.server.removeprefix(PRODUCT)
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, (ENCODING,))
        clock = settings.clock
        self._consumers = StompSubscriptions(connection, clock)
        super().__init__(
            connection,
            StompQueueWatch(connection, self._consumers, clock, settings.final_suffix),
            clock,
            settings.rooms,
            partial(takes, settings.endpoint, clock),
        )
        self._is_closed = False
        self._endpoint = settings.endpoint
        self._settings = settings
        self._ask_counters = settings.ask_counters
        self._unreadable = settings.unreadable
        self._rules = IntakeLimits(
            settings.allowed_losses, dict(settings.unreadable), _writes_modified_utf8(version)
        )
        self._left = Leftovers(self._consumers, self._rules)

    @property
    def features(self) -> Features:
        """The optional features of this wire."""
        return Features(preferred_batch=BATCH, listing=self)

    def close(self) -> None:
        """Give everything back and disconnect; never raises, safe to call twice.

        Quirk (Classic): the broker counts each message as redelivered; no limit of its looks at
        the count of a STOMP consumer, and it restarts with every send.
        """
        connection = self._connection
        if self._is_closed:
            return
        self._is_closed = True
        connection.silence.ask = ask_nobody
        was_ended = connection.was_ended
        # Why: a body that goes on for too long shows itself by swallowing this answer.
        with suppress(LinkLost):
            connection.ask("BEGIN", [(b"transaction", b"goodbye")])
        connection.disconnect(_CLOSE_TIMEOUT_S)
        self._note_end(was_ended)

    def _note_end(self, was_ended: bool) -> None:
        """Remember the message that ended the connection, or was suspected, if one did."""
        if self._connection.suspect is not None:
            self._note_suspect(self._connection.suspect)
        elif was_ended:
            note_breakers(
                self._endpoint, self._clock, self._consumers.queues, self._rules, self._unreadable
            )

    def _note_suspect(self, frame: Frame) -> None:
        suspect = shown(frame)
        name = suspect.message_id.decode(errors="replace")
        source = read_destination(first(suspect.headers, b"destination") or b"")
        if source is not None and breaks_connections(self._endpoint, self._clock, source, name):
            self._unreadable[name] = source.name

    @cached_property
    def _counters(self) -> ClassicCounters:
        statistics = StompStatistics(self._connection, self._consumers, self._clock)
        # Why no browse: an application's body with a NUL in it would end the connection.
        return ClassicCounters(self._ask_counters or statistics.ask, lambda _, at_most: at_most)

    def _find_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        return foreign_tokens(self._connection, self._consumers, self._clock, known)

    def _trials(self, token_queue: Destination | None) -> StompClassicTrials:
        return StompClassicTrials(
            self._connection, self._consumers, self._queues, self._left, self._clock, token_queue
        )

    def trials(self) -> StompClassicTrials:
        """Return the trials of the user's permissions over this connection."""
        return self._trials(None)

    @property
    def _has_arrived(self) -> bool:
        return False

    def _route(self) -> None:
        self._consumers.route()

    @cached_property
    def _subscribers(self) -> TopicSubscribers:
        return self._settings.subscribers(self._hears)

    def _hears(self, advisories: Destination) -> bool:
        heard: list[Frame] = []
        name = self._consumers.add(advisories, ADVISORY_PREFETCH, heard.append, acks=False)
        deadline_s = self._clock.monotonic_s() + HEARD_WITHIN_S
        # Quirk (Classic): a new consumer gets the existing ones after the receipt.
        while not heard and (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            self._connection.wait(left_s)
            self._consumers.route()
        self._consumers.remove(name)
        return bool(heard)

    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one."""
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over STOMP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        return self._rooms.problem(destination, self._takes)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default.

        What is known to break connections is not counted.
        """
        try:
            at_most = max(1, min(at_most, _COUNT_MAX))
            readable = selectors.readable(self._rules.unreadable_in(queue.destination))
            return len(self._consumers.browse(queue.destination, at_most, readable))
        except FrameRefused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return messages of a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Where each says that it died is not proven, unlike that of what is taken.

        Raises:
            BrokerRefused: the user may not read it.
            LinkLost: the connection is gone.
        """
        found = []
        for source in self._existing(queue.destination):
            try:
                readable = selectors.readable(self._rules.unreadable_in(source))
                frames = self._consumers.browse(source, at_most, readable)
            except FrameRefused as cause:
                raise BrokerRefused(f"can't browse {source}: {cause}") from cause
            now_ms = self._clock.now_ms()
            for message in map(shown, frames):
                told = provenance(message, source, message.origin, now_ms)
                found.append(Delivery(None, source, message.kept, told, ENCODING))
        return found


def _writes_modified_utf8(version: str) -> bool:
    """Return whether the broker writes Text as it lies in its memory.

    Source: ActiveMQ Classic, AMQ-8398, fixed in 6.2.0.
    """
    numbers = []
    for part in version.split(".")[:2]:
        with suppress(ValueError):
            numbers.append(int(part))
    return tuple(numbers) < (6, 2)
