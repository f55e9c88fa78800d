"""Where the messages of a dead-letter queue died, by the queue's name and the rules.

Classic over AMQP shows no origin on a dead letter. An individual dead-letter strategy builds the
name of the queue out of the origin's, so that the name gives it, where one origin alone explains
the name; any other origin has to be named by the operator.

A virtual topic with `setOriginalDestination="false"` leaves its own name in the copies that wait in
the consumers' queues. A dead letter of such a queue names the topic, and a re-send to the topic
would reach every consumer; the name of an individual dead-letter queue is reliable.

Source: ActiveMQ Classic, IndividualDeadLetterStrategy.getDeadLetterQueueFor.
"""

from collections.abc import Callable, Mapping

from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    IndividualDeadLetterStrategy,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.destination_map import DestinationMap

_NO_NAME = frozenset("*>,?")
# Source: ActiveMQ Classic, IdGenerator: so begin the names of temporary destinations.
_TEMPORARY = "ID:"

TrueOrigin = Callable[[Destination, Destination], Destination]
"""Takes the origin that a dead letter names and the queue where it was found."""


def named_origin(origin: Destination, source: Destination) -> Destination:
    """Return the origin that the message names: right where there are no rules of Classic."""
    del source
    return origin


class DeadLetterNames:
    """Goes from dead-letter queue to origin and back, by rules and by the operator's word.

    Args:
        rules: None = there are none, so that only `origins` count.
        origins: by the name of the dead-letter queue; stands above the rules.
    """

    def __init__(
        self, rules: ClassicRules | None, origins: Mapping[str, Destination] | None = None
    ) -> None:
        self._named = {name.removeprefix("queue://"): to for name, to in (origins or {}).items()}
        entries = () if rules is None else rules.dead_letter.entries
        self._default = None if rules is None else rules.dead_letter.default_entry
        self._map = DestinationMap([(entry.destinations, entry) for entry in entries])
        all_entries = (*entries, *((self._default,) if self._default else ()))
        strategies = [entry.dead_letter_strategy for entry in all_entries]
        # Why the default: it acts wherever no entry of the policy does.
        self._shared = {SharedDeadLetterStrategy().dead_letter_queue} | {
            strategy.dead_letter_queue
            for strategy in strategies
            if isinstance(strategy, SharedDeadLetterStrategy)
        }
        # Why a dictionary: each once, in the order of the file.
        self._affixes = dict.fromkeys(
            affixes
            for strategy in strategies
            if isinstance(strategy, IndividualDeadLetterStrategy)
            for affixes in (
                (strategy.queue_prefix, strategy.queue_suffix),
                (strategy.topic_prefix, strategy.topic_suffix),
            )
        )

    @property
    def explains_patterns(self) -> bool:
        """Whether an origin of queues that a wildcard finds can be known at all."""
        return bool(self._affixes or self._named)

    def origin_of(self, dead_letter_queue: Destination) -> Destination | None:
        """Return where all messages of a dead-letter queue died; None = not in its name."""
        named = self._named.get(dead_letter_queue.name)
        if named is not None:
            return named
        if dead_letter_queue in self._shared:
            return None
        found: set[Destination] = set()
        for prefix, suffix in self._affixes:
            name = _middle(dead_letter_queue.name, prefix, suffix)
            if name and _NO_NAME.isdisjoint(name) and not name.startswith(_TEMPORARY):
                found.update(self._explaining(name, (prefix, suffix)))
        return found.pop() if len(found) == 1 else None

    def _explaining(self, name: str, affixes: tuple[str, str]) -> set[Destination]:
        """Return the destinations of this name whose dead letters get these affixes."""
        found: set[Destination] = set()
        strategy = self._strategy(queue(name))
        if strategy is not None and affixes in (
            _queue_affixes(strategy),
            # Why: the copy that a virtual topic with `setOriginalDestination="false"` puts there
            # counts as a topic's.
            _topic_affixes(strategy),
        ):
            found.add(queue(name))
        if _topic_affixes(self._strategy(topic(name))) == affixes:
            found.add(topic(name))
        # Why: with a queue per subscription the end of the name may be the subscription's.
        for at in [at for at, character in enumerate(name) if character == "."]:
            strategy = self._strategy(topic(name[:at]))
            if (
                strategy is not None
                and strategy.destination_per_durable_subscriber
                and _topic_affixes(strategy) == affixes
            ):
                found.update((topic(name[:at]), topic(name)))
        return found

    def queue_for(self, origin: Destination) -> Destination | None:
        """Return the dead-letter queue whose messages can only have died at this origin.

        None = there is none: the queue is shared, or its name has a second explanation.
        """
        for name, to in self._named.items():
            if to == origin:
                return queue(name)
        strategy = self._strategy(origin)
        if strategy is None or origin.is_temporary:
            return None
        is_queue = origin.kind is DestinationKind.QUEUE
        affixes = _queue_affixes(strategy) if is_queue else _topic_affixes(strategy)
        if affixes is None:
            return None
        found = queue(affixes[0] + origin.name + affixes[1])
        return found if self.origin_of(found) == origin else None

    def true_origin(self, origin: Destination, source: Destination) -> Destination:
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
            for affixes in self._affixes
            if (name := _middle(source.name, *affixes)) != origin.name
            and origin.name in name
            and _topic_affixes(self._strategy(queue(name))) == affixes
        }
        return found.pop() if len(found) == 1 else origin

    def _is_subscription(self, topic: Destination, source: Destination) -> bool:
        """Return whether the dead-letter queue may be that of a durable subscription."""
        strategy = self._strategy(topic)
        return (
            strategy is not None
            and strategy.use_queue_for_topic_messages
            and strategy.destination_per_durable_subscriber
            and source.name.startswith(f"{strategy.topic_prefix}{topic.name}.")
        )

    def _strategy(self, destination: Destination) -> IndividualDeadLetterStrategy | None:
        entry = self._map.find(destination) or self._default
        strategy = None if entry is None else entry.dead_letter_strategy
        return strategy if isinstance(strategy, IndividualDeadLetterStrategy) else None


def _queue_affixes(strategy: IndividualDeadLetterStrategy) -> tuple[str, str] | None:
    if not strategy.use_queue_for_queue_messages:
        return None
    return strategy.queue_prefix, strategy.queue_suffix


def _topic_affixes(strategy: IndividualDeadLetterStrategy | None) -> tuple[str, str] | None:
    if strategy is None or not strategy.use_queue_for_topic_messages:
        return None
    return strategy.topic_prefix, strategy.topic_suffix


def _middle(name: str, prefix: str, suffix: str) -> str:
    """Return the part between prefix and suffix; "" = none, or the name has others."""
    if not name.startswith(prefix) or not name.endswith(suffix):
        return ""
    return name[len(prefix) : len(name) - len(suffix)]
