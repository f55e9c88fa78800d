"""A session over AMQP on ActiveMQ Classic that only browses.

Source: ActiveMQ Classic, StatisticsBroker.send.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import count
from typing import Final

from typing_extensions import override

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.amqp.browser import Browser
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_classic.intake import MEANINGS, NOT_AMQP_MADE, NOT_CONVERTIBLE, OTHERS
from amqsidecar.brokers.amqp_classic.probe import Transformer, find_transformer
from amqsidecar.brokers.classic.consumers import await_heard
from amqsidecar.brokers.classic.foreign_tokens import (
    BROWSED_MAX,
    TOKEN_QUEUES,
    TOKENS_ONLY,
    BrowsedToken,
)
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import COUNT_MAX, EMPTIED, is_wildcard, pattern_of
from amqsidecar.brokers.classic.session import ClassicSession
from amqsidecar.brokers.classic.statistics import ClassicCounters, ask_nothing
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.errors import BrokerRefused, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_message import (
    DeadLetterParts,
    damage,
    is_native,
    mended,
    named_destination,
    read_provenance,
    take_apart,
)
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind, Loss
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST
from amqsidecar.trials import TrialFeatures

Browse = Callable[[IntakeQueue, int], Iterator[Delivery]]


class AmqpClassicTrials:
    """Trials over one AMQP connection.

    Attributes:
        can_remove: no: AMQP has no word for it.
    """

    can_remove = False

    def __init__(
        self,
        tried: AmqpTrials,
        browser: Browser,
        browse: Browse,
        find_transformer: Callable[[], Transformer],
        settings: ClassicLinkSettings,
    ) -> None:
        self._tried = tried
        self._browser = browser
        self._browse = browse
        self._find_transformer = find_transformer
        self._amqp_producers_only = settings.amqp_producers_only
        self._may_damage = Loss.BODY_TYPE in settings.allowed_losses

    @property
    def features(self) -> TrialFeatures:
        return TrialFeatures()

    def read(self, destination: Destination) -> str | None:
        return self._tried.read(str(destination), None)

    def write(self, destination: Destination) -> str | None:
        return self._tried.write(str(destination), "queue" if destination.is_queue else "topic")

    def remove(self, destination: Destination) -> str | None:
        """Empty a queue of this sidecar; return why it can't be removed."""
        return self._tried.empty(str(destination), None) or EMPTIED

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues of these names; of a wildcard those that hold messages."""
        found: dict[Destination, None] = {}
        for queue in queues:
            if is_wildcard(queue.name):
                seen = self._browse(IntakeQueue(queue), COUNT_MAX)
                found |= dict.fromkeys(one.source for one in seen if one.source != queue)
            else:
                found[queue] = None
        return tuple(found)

    def broker_ms(self) -> int | None:
        """Return None: the time in a message may be its sender's."""
        return None

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return messages that a run would leave, without those shown to no client."""
        transformer = self._find_transformer()
        counts: Counter[tuple[Destination, str]] = Counter()
        if transformer is Transformer.JMS:
            for seen in self._seen(queue):
                counts[seen.source, self._loss(seen)] += 1
        elif self._amqp_producers_only:
            others = self._browser.count(str(queue.destination), COUNT_MAX, OTHERS)
            counts[queue.destination, NOT_AMQP_MADE] = others
        else:
            raise BrokerRefused("a run does not read over this connector")
        return tuple(
            LeftBehind(source, reason, count, MEANINGS[reason], at_least=count >= COUNT_MAX)
            for (source, reason), count in counts.items()
            if reason and count
        )

    def _seen(self, queue: IntakeQueue) -> list[Delivery]:
        try:
            return list(self._browse(queue, COUNT_MAX))
        except BrokerRefused as refused:
            raise BrokerRefused(
                f"{refused} (doctor looks by that wildcard, so as to make no queue; a run does not)"
            ) from refused

    def _loss(self, seen: Delivery) -> str:
        try:
            found = take_apart(seen.message)
        except UndecodableMessage:
            return NOT_CONVERTIBLE
        is_damaged = not self._may_damage and damage(found, seen.source) is not None
        return Loss.BODY_TYPE.value if is_damaged else ""


# Bound: of all queues that a wildcard matches.
_BROWSED_MAX = 2_000_000


_CREATION_TIME = 9


def _sent_at_ms(found: DeadLetterParts) -> int:
    value = (
        amqp.scalar(found.properties[_CREATION_TIME])
        if len(found.properties) > _CREATION_TIME
        else 0
    )
    return value if isinstance(value, int) else 0


def _rules_digest(found: DeadLetterParts) -> str:
    name = amqp.string(PROPERTY_RULES_DIGEST)
    for key, value in zip(found.pairs[::2], found.pairs[1::2], strict=True):
        if key == name:
            return str(amqp.scalar(value))
    return ""


def _place(message: bytes) -> Destination | None:
    try:
        return named_destination(take_apart(message))
    except UndecodableMessage:
        return None


# Why not that of Artemis: each writes other things on a message, and takes other things off.
MAPPED: Final = "amqp/1.0 classic-jms"
NATIVE: Final = "amqp/1.0 classic-native"
# Why: Classic pages 200 messages at a time.
BATCH: Final = 200


class AmqpClassicLook(ClassicSession):
    """A session over one connection to one Classic broker; see `broker.LookSession`."""

    def __init__(self, connection: AmqpConnection, settings: ClassicLinkSettings) -> None:
        self.features = Features(preferred_batch=BATCH)
        self._connection = connection
        self._settings: ClassicLinkSettings = settings
        self._clock = settings.clock
        self._numbers = count(1)
        self._names = settings.names
        self._browser = Browser(connection, is_classic=True)
        self.description = self._described(is_native_wire=settings.amqp_producers_only)

    def _described(self, *, is_native_wire: bool) -> BrokerDescription:
        version = self._connection.remote_properties().get("version", "")
        encoding = NATIVE if is_native_wire else MAPPED
        return BrokerDescription(BrokerKind.CLASSIC, version, (encoding,))

    def close(self) -> None:
        self._connection.close()

    @cached_property
    def _counters(self) -> ClassicCounters:
        return ClassicCounters(self._settings.ask_counters or ask_nothing, self._shown)

    def _shown(self, destination: Destination, at_most: int) -> int:
        return self._browser.count(str(destination), at_most)

    @override
    def _browse_tokens(self) -> Iterable[BrowsedToken]:
        # A token that an older program left over AMQP does not report its queue.
        for message in self._browser.look(str(TOKEN_QUEUES), BROWSED_MAX, TOKENS_ONLY):
            with suppress(UndecodableMessage):
                found = take_apart(message)
                place = named_destination(found)
                yield BrowsedToken(place, _sent_at_ms(found), _rules_digest(found))

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return nothing: a browse shows all that it can."""
        self._connection.check()
        return ()

    def wait(self, timeout_s: float) -> None:
        connection = self._connection
        connection.run_until(lambda: connection.was_woken, timeout_s)
        connection.was_woken = False

    def wake(self) -> None:
        self._connection.wake()

    @override
    def _hear(self, advisories: Destination, at_most: int) -> Sequence[Destination | None]:
        connection = self._connection
        name = f"amqsidecar-subscribers-{next(self._numbers)}"
        receiver = Receiver(connection, name, str(advisories))
        try:
            connection.run_until(lambda: receiver.is_answered)
            if receiver.refusal is not None:
                raise RequestRefused(receiver.refusal)
            receiver.flow(at_most)
            await_heard(connection.run_until, receiver.arrived, at_most)
            heard = receiver.take_arrived(at_most)
            for in_hand, _ in heard:
                receiver.accept(in_hand)
            return [_place(message) for _, message in heard]
        finally:
            receiver.end()

    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost; Classic creates every lasting destination on demand."""
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over AMQP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        return None

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        return sum(1 for _ in self.browse(queue, min(at_most, COUNT_MAX)))

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        self._connection.check()
        asked = queue.destination
        # Why: a browser makes the queue that it names, but none that its wildcard matches; this
        # wildcard matches the queue itself, and those below it.
        pattern = asked.name if is_wildcard(asked.name) else f"{asked.name}.>"
        is_one = pattern != asked.name
        shown: Counter[Destination] = Counter()
        chosen = of_redelivery_ids(queue.redelivery_ids)
        for message in self._browser.look(f"queue://{pattern}", _BROWSED_MAX, chosen):
            delivery = self._delivery(message, queue, pattern)
            source = delivery.source
            if shown[source] < at_most and not (is_one and source != asked):
                shown[source] += 1
                yield delivery
            if is_one and shown[asked] >= at_most:
                return

    def _delivery(self, message: bytes, queue: IntakeQueue, pattern: str) -> Delivery:
        """Return a message that a wildcard browser showed, with its queue where it names it.

        A message that names no queue counts as one of the queue that was asked for.
        """
        source, names, encoding = queue.destination, self._names, self.description.encodings[0]
        try:
            found = take_apart(message)
        except UndecodableMessage as undecodable:
            problem = f"it can't be parsed: {undecodable}"
            return Delivery(None, source, message, Provenance(problem=problem), encoding)
        told = named_destination(found)
        if told is not None:
            is_there = told.is_queue and pattern_of(pattern).fullmatch(told.name)
            source = told if is_there else names.queue_for(told) or source
        origin = queue.origin if source == queue.destination else None
        is_native_made = is_native(found, source)
        if not is_native_made:
            found = mended(found) or found
        provenance = read_provenance(
            found,
            source,
            origin=origin or names.origin_of(source),
            now_ms=self._clock.now_ms(),
            is_native_made=is_native_made,
        )
        return Delivery(None, source, message, provenance, encoding)

    def trials(self) -> AmqpClassicTrials:
        return AmqpClassicTrials(
            AmqpTrials(self._connection),
            self._browser,
            self.browse,
            partial(find_transformer, self._connection),
            self._settings,
        )
