"""On which destination a dead letter really died, where the message names another one.

A virtual topic with `setOriginalDestination="false"` leaves its own name in the copies that wait in
the consumers' queues. A dead letter of such a queue names the topic, and a re-send to the topic
would reach every consumer; the name of an individual dead-letter queue is reliable.
"""

from collections.abc import Callable

from amqsidecar.model.destination import Destination, DestinationKind, queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
)
from amqsidecar.policy.destination_map import DestinationMap

TrueOrigin = Callable[[Destination, Destination], Destination]
"""Takes the origin that a dead letter names and the queue where it was found."""


def named_origin(origin: Destination, source: Destination) -> Destination:
    """Return the origin that the message names: right where there are no rules of Classic."""
    del source
    return origin


def true_origins(rules: ClassicRules | None) -> TrueOrigin:
    """Return the finder of true origins under these rules of Classic; None = there are none."""
    return named_origin if rules is None else ClassicOrigins(rules.dead_letter).find


class ClassicOrigins:
    """Finds the consumer queue of a virtual topic by the name of the dead-letter queue."""

    def __init__(self, rules: DeadLetterRules) -> None:
        self._map = DestinationMap([(entry.destinations, entry) for entry in rules.entries])
        self._default = rules.default_entry
        entries = (*rules.entries, *((rules.default_entry,) if rules.default_entry else ()))
        # Why a dictionary: each pair once, in the order of the file.
        self._affixes = dict.fromkeys(
            (strategy.topic_prefix, strategy.topic_suffix)
            for entry in entries
            if (strategy := _individual(entry)) is not None
        )

    def find(self, origin: Destination, source: Destination) -> Destination:
        """Return the queue on which a message of a topic died, or the named origin.

        A queue is only named when it is the one explanation: the rules put its dead letters
        into `source`, its name holds the topic's, and no durable subscription explains it.

        Args:
            source: the dead-letter queue that it was found in.

        Source: ActiveMQ Classic, IndividualDeadLetterStrategy.getDeadLetterQueueFor: prefix and
            suffix go by the kind of the message's own destination, the name is the queue's.
        """
        if origin.kind is not DestinationKind.TOPIC or self._is_subscription(origin, source):
            return origin
        found = {
            queue(name)
            for prefix, suffix in self._affixes
            if (name := _middle(source.name, prefix, suffix)) != origin.name
            and origin.name in name
            and self._affixes_of(queue(name)) == (prefix, suffix)
        }
        return found.pop() if len(found) == 1 else origin

    def _strategy(self, destination: Destination) -> IndividualDeadLetterStrategy | None:
        return _individual(self._map.find(destination) or self._default)

    def _affixes_of(self, destination: Destination) -> tuple[str, str] | None:
        strategy = self._strategy(destination)
        return None if strategy is None else (strategy.topic_prefix, strategy.topic_suffix)

    def _is_subscription(self, topic: Destination, source: Destination) -> bool:
        """Return whether the dead-letter queue may be that of a durable subscription."""
        strategy = self._strategy(topic)
        return (
            strategy is not None
            and strategy.destination_per_durable_subscriber
            and source.name.startswith(f"{strategy.topic_prefix}{topic.name}.")
        )


def _individual(entry: PolicyEntry | None) -> IndividualDeadLetterStrategy | None:
    """Return the strategy that puts the dead letters of topics into queues of their own."""
    strategy = None if entry is None else entry.dead_letter_strategy
    if isinstance(strategy, IndividualDeadLetterStrategy) and strategy.use_queue_for_topic_messages:
        return strategy
    return None


def _middle(name: str, prefix: str, suffix: str) -> str:
    """Return the part between prefix and suffix; "" = none, or the name has others."""
    if not name.startswith(prefix) or not name.endswith(suffix):
        return ""
    return name[len(prefix) : len(name) - len(suffix)]
