"""Which dead-letter queues the intake reads, as far as rules and names tell."""

from collections.abc import Sequence

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.model.destination import Destination, parse_destination, queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.destination_map import DestinationMap

DEFAULT_DEAD_LETTER_QUEUE = queue("ActiveMQ.DLQ")


class IntakeNames:
    """Tells whether a destination is one that the intake reads.

    Classic: names may hold the wildcards of the broker. Artemis: what counts is the address.
    """

    def __init__(self, kind: BrokerKind) -> None:
        self._kind = kind
        self._map: DestinationMap[bool] = DestinationMap([])
        self._addresses: frozenset[str] = frozenset()
        self._queues: tuple[IntakeQueue, ...] | None = None

    @property
    def queues(self) -> tuple[IntakeQueue, ...] | None:
        """The queues that are read; None = nobody said yet."""
        return self._queues

    def replace(self, queues: Sequence[IntakeQueue]) -> None:
        """Read these from now on."""
        self._queues = tuple(queues)
        if self._kind is BrokerKind.CLASSIC:
            self._map = DestinationMap([((item.destination,), True) for item in queues])
            return
        addresses = {item.destination.address for item in queues}
        names = {item.destination.name.rsplit("::", 1)[-1] for item in queues}
        self._addresses = frozenset(addresses | names)

    def covers(self, destination: Destination) -> bool:
        """Tell whether the intake reads this destination."""
        if self._kind is BrokerKind.CLASSIC:
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

    Individual strategies give a wildcard for their prefix. A prefix that doesn't end at a name
    segment can't be written as a wildcard; it is named among the doubts, one sentence each.
    """
    found: dict[Destination, None] = {DEFAULT_DEAD_LETTER_QUEUE: None}
    doubts: list[str] = []
    entries = [*rules.dead_letter.entries]
    if rules.dead_letter.default_entry is not None:
        entries.append(rules.dead_letter.default_entry)
    for entry in entries:
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


def _add_individual(
    strategy: IndividualDeadLetterStrategy,
    patterns: Sequence[Destination],
    found: dict[Destination, None],
    doubts: list[str],
) -> None:
    for is_queue, prefix, suffix in (
        (True, strategy.queue_prefix, strategy.queue_suffix),
        (False, strategy.topic_prefix, strategy.topic_suffix),
    ):
        # Why `not patterns`: a default entry acts on queues and topics alike.
        of_kind = [pattern for pattern in patterns if pattern.is_queue is is_queue]
        names = [pattern.name for pattern in of_kind if not _is_wildcard(pattern)]
        for name in names:
            found[queue(prefix + name + suffix)] = None
        if len(names) < len(of_kind) or not patterns:
            if prefix.endswith(".") and prefix != ".":
                found[queue(prefix + ">")] = None
            else:
                doubts.append(
                    f"{strategy.source}: dead letters go to queues named {prefix!r} + name + "
                    f"{suffix!r}, which no wildcard covers; name them in intake.queues"
                )
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
    if strategy.use_queue_for_topic_messages and prefix.endswith(".") and prefix != ".":
        found[queue(prefix + ">")] = None


def _is_wildcard(pattern: Destination) -> bool:
    return not {"*", ">"}.isdisjoint(pattern.name.split("."))
