"""The dead-letter queues that the intake reads, by rules and names."""

from collections.abc import Iterator, Sequence

import msgspec

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.model.destination import Destination, parse_destination, queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.destination_map import DestinationMap

DEFAULT_DEAD_LETTER_QUEUE = queue("ActiveMQ.DLQ")


class IntakeNames:
    """Returns whether the intake reads a destination.

    Classic: names may hold the broker's wildcards. Artemis: the address counts, not the queue.
    """

    def __init__(self, kind: BrokerKind) -> None:
        self.kind = kind
        self._map: DestinationMap[bool] = DestinationMap([])
        self._addresses: frozenset[str] = frozenset()
        self._queues: tuple[IntakeQueue, ...] | None = None

    @property
    def queues(self) -> tuple[IntakeQueue, ...] | None:
        """The queues that are read; None = not known yet."""
        return self._queues

    def replace(self, queues: Sequence[IntakeQueue]) -> None:
        """Read these from now on."""
        self._queues = tuple(queues)
        if self.kind is BrokerKind.CLASSIC:
            self._map = DestinationMap([((item.destination,), True) for item in queues])
            return
        addresses = {item.destination.address for item in queues}
        names = {item.destination.name.rsplit("::", 1)[-1] for item in queues}
        self._addresses = frozenset(addresses | names)

    def covers(self, destination: Destination) -> bool:
        """Return whether the intake reads this destination."""
        if self.kind is BrokerKind.CLASSIC:
            return self._map.find_index(destination) is not None
        return (
            destination.address in self._addresses
            or destination.name.rsplit("::", 1)[-1] in self._addresses
        )


def named_queues(names: Sequence[str]) -> tuple[IntakeQueue, ...]:
    """Return the queues that an operator named, `queue://` in front or not."""
    return tuple(IntakeQueue(parse_destination(name)) for name in names)


def dead_letter_queues_of(rules: ClassicRules) -> tuple[tuple[IntakeQueue, ...], tuple[str, ...]]:
    """Return the queues that the dead-letter strategies of a Classic broker fill, and doubts.

    Individual strategies give a wildcard for their prefix. Where prefix or suffix can't be written
    as a wildcard, see `name_patterns_of`; where neither distinguishes a dead-letter queue from any
    other, it is named among the doubts, one sentence each.
    """
    found: dict[Destination, None] = {DEFAULT_DEAD_LETTER_QUEUE: None}
    doubts: list[str] = []
    for entry in _entries(rules):
        match entry.dead_letter_strategy:
            case SharedDeadLetterStrategy(dead_letter_queue=destination):
                if destination.is_queue:
                    found[destination] = None
                else:
                    doubts.append(f"{entry.source}: dead letters go to {destination}, not a queue")
            case IndividualDeadLetterStrategy() as strategy:
                _add_individual(strategy, entry.destinations, found, doubts)
            case DiscardingDeadLetterStrategy() | None:
                pass
    return tuple(IntakeQueue(destination) for destination in found), tuple(doubts)


class NamePattern(msgspec.Struct, frozen=True):
    """Names of dead-letter queues that no wildcard of the broker covers.

    Attributes:
        prefix, suffix: around the name of the origin.
        origins: patterns that the origin must match; empty = any name.
        per_subscriber: the origin's name may go on with a point and a durable subscription.
        source: of the strategy, as text.
    """

    prefix: str
    suffix: str
    origins: tuple[Destination, ...]
    per_subscriber: bool
    source: str

    def __str__(self) -> str:
        return (
            f"{self.source}: dead-letter queues named {self.prefix!r} + name + {self.suffix!r}, "
            "which no wildcard covers,"
        )

    @property
    def is_telling(self) -> bool:
        """Whether it can't match the name of any other queue by accident."""
        return bool(self.prefix + self.suffix) and not (
            self.prefix[-1:].isalnum() or self.suffix[:1].isalnum()
        )

    def matching(self, names: Sequence[str]) -> list[str]:
        """Return the names that fit this pattern of dead-letter queues."""
        origins = DestinationMap([((one,), True) for one in self.origins])
        kind = self.origins[0].kind if self.origins else None
        found = []
        for name in names:
            origin = name[len(self.prefix) : len(name) - len(self.suffix)]
            if not origin or name != self.prefix + origin + self.suffix:
                continue
            if kind is None or any(
                origins.find_index(Destination(kind, one)) is not None
                for one in self._spelled(origin)
            ):
                found.append(name)
        return found

    def _spelled(self, origin: str) -> Iterator[str]:
        yield origin
        while self.per_subscriber and "." in origin:
            origin = origin.rpartition(".")[0]
            yield origin


def name_patterns_of(rules: ClassicRules) -> tuple[NamePattern, ...]:
    """Return the name patterns of individual dead-letter queues that no wildcard covers."""
    patterns = (
        pattern
        for entry in _entries(rules)
        if isinstance(entry.dead_letter_strategy, IndividualDeadLetterStrategy)
        for pattern in _patterns(entry.dead_letter_strategy, entry.destinations)
    )
    return tuple(pattern for pattern in patterns if pattern.is_telling)


def _entries(rules: ClassicRules) -> list[PolicyEntry]:
    default = rules.dead_letter.default_entry
    return [*rules.dead_letter.entries, *([] if default is None else [default])]


def _patterns(
    strategy: IndividualDeadLetterStrategy, destinations: Sequence[Destination]
) -> Iterator[NamePattern]:
    """Return the name patterns that a strategy gives to destinations with wildcards."""
    for is_queue, prefix, suffix in _affixes(strategy):
        # Why `not destinations`: a default entry acts on queues and topics alike.
        of_kind = tuple(
            one for one in destinations if one.is_queue is is_queue and _is_wildcard(one)
        )
        if (of_kind or not destinations) and not _has_wildcard(prefix):
            per_subscriber = not is_queue and strategy.destination_per_durable_subscriber
            yield NamePattern(prefix, suffix, of_kind, per_subscriber, str(strategy.source))


def _affixes(strategy: IndividualDeadLetterStrategy) -> tuple[tuple[bool, str, str], ...]:
    return (
        (True, strategy.queue_prefix, strategy.queue_suffix),
        (False, strategy.topic_prefix, strategy.topic_suffix),
    )


def _has_wildcard(prefix: str) -> bool:
    """Return whether the names with this prefix can be written as one of the broker's wildcards."""
    return prefix.endswith(".") and prefix != "."


def _add_individual(
    strategy: IndividualDeadLetterStrategy,
    patterns: Sequence[Destination],
    found: dict[Destination, None],
    doubts: list[str],
) -> None:
    for is_queue, prefix, suffix in _affixes(strategy):
        of_kind = [pattern for pattern in patterns if pattern.is_queue is is_queue]
        per_subscriber = not is_queue and strategy.destination_per_durable_subscriber
        for name in (pattern.name for pattern in of_kind if not _is_wildcard(pattern)):
            found[queue(prefix + name + suffix)] = None
            if per_subscriber:
                found[queue(f"{prefix}{name}.>")] = None
        if _has_wildcard(prefix) and (not patterns or any(map(_is_wildcard, of_kind))):
            found[queue(prefix + ">")] = None
    doubts += [
        f"{pattern.source}: dead letters go to queues named {pattern.prefix!r} + name + "
        f"{pattern.suffix!r}, which can't be recognised; name them in intake.queues"
        for pattern in _patterns(strategy, patterns)
        if not pattern.is_telling
    ]
    if any(pattern.is_queue and _is_wildcard(pattern) for pattern in patterns):
        _add_virtual_topics(strategy, found)


def _add_virtual_topics(
    strategy: IndividualDeadLetterStrategy, found: dict[Destination, None]
) -> None:
    """Add where queues of virtual topics with `setOriginalDestination="false"` leave dead letters.

    Their messages count as a topic's, so that the topics' prefix acts (see `origin.py`). Nothing is
    added, and nothing said, where that takes a name: most brokers have no such virtual topic.
    """
    prefix = strategy.topic_prefix
    if strategy.use_queue_for_topic_messages and _has_wildcard(prefix):
        found[queue(prefix + ">")] = None


def _is_wildcard(pattern: Destination) -> bool:
    return not {"*", ">"}.isdisjoint(pattern.name.split("."))
