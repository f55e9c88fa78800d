"""A session over STOMP on ActiveMQ Classic that only browses.

Source: ActiveMQ Classic, StatisticsBroker.send; JmsFrameTranslator.
"""

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Final

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.classic import foreign_tokens as classic_tokens
from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.statistics import (
    END_PROPERTY,
    QUESTION_MS,
    ClassicCounters,
    StatisticsQuestions,
)
from amqsidecar.brokers.classic.subscribers import HEARD_WITHIN_S
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.bad_message_search import note_breakers
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import (
    IntakeLimits,
)
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.brokers.stomp_classic.queues import StompQueueWatch
from amqsidecar.brokers.stomp_classic.room import takes
from amqsidecar.brokers.stomp_classic.settings import StompClassicSettings
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.clock import Clock
from amqsidecar.errors import (
    BrokerError,
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats.stomp_classic_message import (
    RULES_DIGEST,
    destination_header,
    provenance,
    read_cycle,
    read_destination,
    shown,
)
from amqsidecar.formats.stomp_frame import ENCODING, Frame, first
from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.model.foreign_token import ForeignToken

_PREFETCH = 1_000
_REPLIES = Destination(DestinationKind.TEMP_QUEUE, "statistics")
_ADDRESS = b"/temp-queue/statistics"


class StompStatistics(StatisticsQuestions):
    """Asks over one connection."""

    def __init__(
        self, connection: StompConnection, consumers: StompSubscriptions, clock: Clock
    ) -> None:
        super().__init__(connection, consumers, clock)
        self._connection = connection
        self._consumers = consumers

    def _begin(self) -> None:
        options = ((b"transformation", b"jms-map-json"),)
        self._consumers.add(
            _REPLIES, _PREFETCH, self._take, acks=False, options=options, address=_ADDRESS
        )

    def _put(self, questions: Sequence[Destination], *, has_end: bool) -> None:
        expires_at_ms = self._clock.now_ms() + QUESTION_MS
        for question in questions:
            headers = [
                destination_header(question),
                (b"reply-to", _ADDRESS),
                (b"expires", b"%d" % expires_at_ms),
            ]
            if has_end:
                headers.append((END_PROPERTY.encode(), b"true"))
            self._connection.send("SEND", headers)

    def _take(self, frame: Frame) -> None:
        told = read_map(frame.body)
        if told is not None:
            self._answers.append(told)


def read_map(body: bytes) -> Mapping[str, object] | None:
    """Return the map that the broker's JSON holds; None = it holds none.

    An entry is `{"string": name, type: value}`, or `{"string": [name, value]}` for a text.
    """
    try:
        held = json.loads(body)["map"]
        entries = held["entry"] if held else []
        found: dict[str, object] = {}
        for entry in entries if isinstance(entries, list) else [entries]:
            values = [one for value in entry.values() for one in _as_list(value)]
            found[str(values[0])] = values[1]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
    return found


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


_QUIET_S = 0.25


def foreign_tokens(
    connection: StompConnection, consumers: StompSubscriptions, clock: Clock, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        FrameRefused: the broker does not allow it.
        LinkLost: the connection is gone.
    """
    tokens = classic_tokens.ForeignTokens(known)
    for frame in consumers.browse(
        classic_tokens.TOKEN_QUEUES, classic_tokens.BROWSED_MAX, classic_tokens.TOKENS_ONLY
    ):
        sent_at = frame.first(b"timestamp") or b""
        if read_cycle(frame) is not None:
            digest = (frame.first(RULES_DIGEST) or b"").decode(errors="replace")
            tokens.note(_place(frame), int(sent_at) if sent_at.isdigit() else 0, digest)
    return tokens.found(_consumers(connection, consumers, clock) if tokens else ())


def _place(frame: Frame) -> Destination | None:
    return read_destination(frame.first(b"destination") or b"")


def _consumers(
    connection: StompConnection, consumers: StompSubscriptions, clock: Clock
) -> list[Destination | None]:
    """Return the advisories' topics, once the broker has sent all.

    Quirk (Classic): the broker sends a new subscriber its advisories after the receipt.
    """
    found: list[Destination | None] = []
    name = consumers.add(
        classic_tokens.TOKEN_CONSUMERS,
        classic_tokens.CONSUMERS_MAX,
        lambda frame: found.append(_place(frame)),
        acks=False,
    )
    count = -1
    while count != len(found):
        count, until_s = len(found), clock.monotonic_s() + _QUIET_S
        while (left_s := until_s - clock.monotonic_s()) > 0:
            connection.wait(left_s)
            consumers.route()
    consumers.remove(name)
    return found


_ANSWER_TIMEOUT_S = 5.0


def breaks_connections(
    endpoint: Endpoint, clock: Clock, destination: Destination, message_id: str
) -> bool:
    """Receive one message alone on a separate connection; return whether that ends it.

    Why: an error of the broker's own, such as an unasked ERROR while a queue is full or a right is
    taken away, comes after some message, too. False also when the broker can't be asked: who
    breaks connections will break the next one.
    """
    client_id = f"amqsidecar-suspects-{secrets.token_hex(6)}"
    try:
        connection = StompConnection(endpoint, clock, client_id=client_id)
    except BrokerError:
        return False
    try:
        with suppress(BrokerError, FrameRefused):
            StompSubscriptions(connection, clock).browse(destination, 1, selectors.only(message_id))
        # Why: what follows a body that ended early comes before this answer; and one that goes on
        # for too long swallows it.
        connection.answers([connection.ask("BEGIN", [(b"transaction", b"1")])], _ANSWER_TIMEOUT_S)
    except BrokerError:
        pass
    finally:
        connection.close()
    return connection.suspect is not None


_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400
# Why: Classic pages 200 messages at a time.
BATCH: Final = 200
PRODUCT: Final = "ActiveMQ/"


class StompClassicLook(ListingSession):
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    _connection: StompConnection
    _queues: StompQueueWatch

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
        return ClassicCounters(
            self._settings.ask_counters or statistics.ask, lambda _, at_most: at_most
        )

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
        for source in self._existing(queue):
            try:
                readable = selectors.readable(self._rules.unreadable_in(source))
                chosen = both(of_redelivery_ids(queue.redelivery_ids), readable)
                frames = self._consumers.browse(source, at_most, chosen)
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
