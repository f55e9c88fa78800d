"""A session over STOMP on ActiveMQ Classic that only browses.

Source: ActiveMQ Classic, StatisticsBroker.send; JmsFrameTranslator, whose advisories are JSON.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property
from typing import Final

from typing_extensions import override

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.classic.consumers import HEARD_WITHIN_S, await_heard
from amqsidecar.brokers.classic.foreign_tokens import (
    BROWSED_MAX,
    TOKEN_QUEUES,
    TOKENS_ONLY,
    BrowsedToken,
)
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH, QUEUE_ADVISORIES, ClassicQueues
from amqsidecar.brokers.classic.room import PATIENCE_S, of_a_trial
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.statistics import ClassicCounters, ask_nothing
from amqsidecar.brokers.connection.refusal import raised_as
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import IntakeLimits
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost
from amqsidecar.formats.stomp_classic_message import (
    RULES_DIGEST,
    StompResendEncoder,
    provenance,
    read_cycle,
    read_destination,
    shown,
)
from amqsidecar.formats.stomp_frame import ENCODING, Frame, first
from amqsidecar.model.destination import Destination

_TRANSACTION = b"trial"
_KNOWN_TIMEOUT_S = 5.0
_LISTED_WITHIN_S = 30.0
_REMOVED = 1


class StompQueueWatch(ClassicQueues):
    """The queues that the broker's advisories name."""

    def __init__(self, consumers: StompSubscriptions, final_suffix: str) -> None:
        super().__init__(consumers.connection.name, final_suffix)
        self._consumers = consumers

    @override
    def _listen(self, known: Destination | None) -> None:
        consumers, last = self._consumers, list[Frame]()
        consumers.add(QUEUE_ADVISORIES, ADVISORY_PREFETCH, self._take_in, acks=False)
        # Quirk (Classic): a new consumer gets the existing queues after the receipt, and none of
        # them says that it is the last. One connection's messages stay in order, so the first of a
        # second consumer comes after all of the first; without a queue there is none.
        fence = consumers.add(QUEUE_ADVISORIES, 1, last.append, acks=False)
        within_s = HEARD_WITHIN_S if known is None else _KNOWN_TIMEOUT_S
        if consumers.run_until(lambda: bool(self._names), within_s):
            consumers.run_until(lambda: bool(last), _LISTED_WITHIN_S)
        consumers.remove(fence)

    def _take_in(self, frame: Frame) -> None:
        told = read_destination_info(frame.body)
        if told is not None:
            self.told(told[0], is_removed=told[1])


def read_destination_info(body: bytes) -> tuple[str, bool] | None:
    """Return the queue of an advisory, and whether it was removed; None = none."""
    try:
        info = json.loads(body)["DestinationInfo"]
        destination = info["destination"]
        if destination["@class"] != "ActiveMQQueue":
            return None
        return str(destination["string"]), info["operationType"] == _REMOVED
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _place(frame: Frame) -> Destination | None:
    return read_destination(frame.first(b"destination") or b"")


_ANSWER_TIMEOUT_S = 5.0
# Bound: time while the link is down; the next lost link continues.
_BROKEN_QUEUES_S = 30.0
# Precedent: a consumer with a selector sees no more messages of a queue (maxPageSize).
_PAGE = 200

_CLOSE_TIMEOUT_S = 5.0
_CLOSE_TRIAL_TIMEOUT_S = 1.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400
# Why: Classic pages 200 messages at a time.
BATCH: Final = 200
PRODUCT: Final = "ActiveMQ/"


class StompClassicLook(ListingSession):
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    _consumers: StompSubscriptions
    _connection: StompConnection
    _settings: ClassicLinkSettings

    def __init__(self, connection: StompConnection, settings: ClassicLinkSettings) -> None:
        version = connection.server.removeprefix(PRODUCT)
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, (ENCODING,))
        consumers = StompSubscriptions(connection, settings.clock)
        super().__init__(consumers, StompQueueWatch(consumers, settings.final_suffix), settings)
        self.features = Features(preferred_batch=BATCH, listing=self)
        self._is_closed = False
        self._endpoint = settings.endpoint
        self._rules = IntakeLimits(
            settings.allowed_losses, dict(settings.unreadable), _writes_modified_utf8(version)
        )
        self._left = Leftovers(consumers, self._rules)

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
            self._note_broken_queues()

    def _note_suspect(self, frame: Frame) -> None:
        suspect = shown(frame)
        name = suspect.message_id.decode(errors="replace")
        source = read_destination(first(suspect.headers, b"destination") or b"")
        if source is None:
            return
        # Why: an error of the broker's own, such as an unasked ERROR while a queue is full or a
        # right is taken away, comes after some message, too.
        tried = self._tried(source, 1, selectors.only(name))
        if tried is not None and tried.suspect is not None:
            self._settings.unreadable[name] = source.name

    def _note_broken_queues(self) -> None:
        """Note the queues with a message that ends each connection before it is seen.

        A message that the broker can't convert for STOMP does so, such as a body that is marked as
        compressed and is not, and the error names no message. A connection that ends without a
        message proves nothing.
        """
        deadline_s = self._clock.monotonic_s() + _BROKEN_QUEUES_S
        for source in self._consumers.queues:
            if self._clock.monotonic_s() < deadline_s and str(source) not in self._rules.unreadable:
                with suppress(FrameRefused):
                    self._note_broken_queue(source)

    def _note_broken_queue(self, source: Destination) -> None:
        ids = self._rules.unreadable_in(source)
        # Why both: messages that we only count may be too large to reach it.
        for selector in (selectors.takes(self._rules.allowed_losses, ids), selectors.readable(ids)):
            tried = self._tried(source, _PAGE, selector)
            if tried is not None and tried.was_ended and not tried.errors:
                idle = self._tried(source, 1, "1 = 0")
                if idle is not None and not idle.was_ended:
                    self._settings.unreadable[str(source)] = source.name
                    return

    def _tried(self, source: Destination, at_most: int, selector: str) -> StompConnection | None:
        """Receive messages on a separate connection, and return it closed; None = there is none."""
        client_id = f"amqsidecar-suspects-{secrets.token_hex(6)}"
        try:
            connection = StompConnection(self._endpoint, self._clock, client_id=client_id)
        except BrokerError:
            return None
        with closing(connection), suppress(BrokerError):
            with suppress(BrokerError, FrameRefused):
                consumers = StompSubscriptions(connection, self._clock)
                consumers.browse(source, at_most, selector)
            # Why: the rest of a body that ended early comes before this answer; and a body that is
            # too long swallows it.
            begin = connection.ask("BEGIN", [(b"transaction", b"1")])
            connection.answers([begin], _ANSWER_TIMEOUT_S)
        return connection

    @cached_property
    def _counters(self) -> ClassicCounters:
        # Why no browse: an application's body with a NUL in it would end the connection.
        ask = self._settings.ask_counters or ask_nothing
        return ClassicCounters(ask, lambda _, at_most: at_most)

    def _trials(self, token_queue: Destination | None) -> StompClassicTrials:
        return StompClassicTrials(self._consumers, self._left, self._queues, token_queue)

    def trials(self) -> StompClassicTrials:
        return self._trials(None)

    @override
    def _takes(self, destination: Destination) -> bool:
        client_id = f"amqsidecar-room-{secrets.token_hex(6)}"
        endpoint = self._endpoint
        connection = StompConnection(of_a_trial(endpoint), self._clock, client_id=client_id)
        transaction = (b"transaction", _TRANSACTION)
        try:
            begin = connection.ask("BEGIN", [transaction])
            answer = connection.answers([begin], endpoint.connect_timeout_s)[0]
            if answer.command == "ERROR":
                raise BrokerRefused(error_text(answer))
            # Why without a receipt: the broker lays aside a send that asks for one, and never
            # forgets it.
            connection.put(StompResendEncoder.token(destination, 0, _TRANSACTION, []))
            abort = connection.ask("ABORT", [transaction])
            try:
                connection.answers([abort], PATIENCE_S)
            except LinkLost:
                return False
            connection.disconnect(_CLOSE_TRIAL_TIMEOUT_S)
        finally:
            connection.reset()
        return True

    @override
    def _hear(self, advisories: Destination, at_most: int) -> Sequence[Destination | None]:
        heard: list[Destination | None] = []
        consumers = self._consumers
        name = consumers.add(
            advisories, at_most, lambda frame: heard.append(_place(frame)), acks=False
        )
        await_heard(consumers.run_until, heard, at_most)
        consumers.remove(name)
        return heard

    @override
    def _browse_tokens(self) -> Iterable[BrowsedToken]:
        for frame in self._consumers.browse(TOKEN_QUEUES, BROWSED_MAX, TOKENS_ONLY):
            if read_cycle(frame) is not None:
                sent_at = frame.first(b"timestamp") or b""
                digest = (frame.first(RULES_DIGEST) or b"").decode(errors="replace")
                sent_at_ms = int(sent_at) if sent_at.isdigit() else 0
                yield BrowsedToken(_place(frame), sent_at_ms, digest)

    def _send_problem(self, destination: Destination) -> str | None:
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over STOMP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        return self._rooms.problem(destination, self._takes)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default.

        Messages known to break connections are not counted.
        """
        with raised_as(f"can't browse {queue.destination}: {{}}"):
            at_most = max(1, min(at_most, _COUNT_MAX))
            readable = selectors.readable(self._rules.unreadable_in(queue.destination))
            return len(self._consumers.browse(queue.destination, at_most, readable))

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return messages of a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Their origins are not proven, unlike those of messages taken.
        """
        for source in self._existing(queue):
            with raised_as(f"can't browse {source}: {{}}"):
                readable = selectors.readable(self._rules.unreadable_in(source))
                chosen = both(of_redelivery_ids(queue.redelivery_ids), readable)
                frames = self._consumers.browse(source, at_most, chosen)
            now_ms = self._clock.now_ms()
            for message in map(shown, frames):
                told = provenance(message, source, message.origin, now_ms)
                yield Delivery(None, source, message.kept, told, ENCODING)


def _writes_modified_utf8(version: str) -> bool:
    """Return whether the broker writes Text as it lies in its memory.

    Source: ActiveMQ Classic, AMQ-8398, fixed in 6.2.0.
    """
    numbers = []
    for part in version.split(".")[:2]:
        with suppress(ValueError):
            numbers.append(int(part))
    return tuple(numbers) < (6, 2)
