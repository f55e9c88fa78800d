"""The destination of a dead letter that is not redelivered, by the broker's strategies.

Source: org.apache.activemq.broker.region.RegionBroker.sendToDeadLetterQueue;
org.apache.activemq.broker.region.policy.{Abstract,Shared,Individual,Discarding}DeadLetterStrategy.
"""

from functools import lru_cache

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Exhaust
from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.policy.classic_rules import (
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.destination_map import MEMO_SIZE, DestinationMap, describe_pattern
from amqsidecar.policy.redelivery_decider import describe_rule
from amqsidecar.policy.redelivery_policy import LONG_MAX, Chance
from amqsidecar.policy.rule_source import DEFAULTS, written_line

LONGEST_EXPIRATION_MS = LONG_MAX - 253_402_300_799_000
"""The longest expiration that fits 64 bits when the time is added, up to the end of year 9999."""


def find_dead_letter_queue(
    strategy: DeadLetterStrategy, destination: Destination, subscription: str | None
) -> Destination | None:
    """Return the dead-letter destination that a strategy names; None = it keeps nothing.

    Args:
        destination: where the message died.
        subscription: `clientId:name` of the durable subscription it died on; None = none.

    Source: DeadLetterStrategy.getDeadLetterQueueFor.
    """
    match strategy:
        case SharedDeadLetterStrategy():
            return strategy.dead_letter_queue
        case DiscardingDeadLetterStrategy():
            return None
        case IndividualDeadLetterStrategy():
            return _individual_queue(strategy, destination, subscription)


def _individual_queue(
    strategy: IndividualDeadLetterStrategy, destination: Destination, subscription: str | None
) -> Destination:
    if destination.is_queue:
        prefix, suffix = strategy.queue_prefix, strategy.queue_suffix
        use_queue = strategy.use_queue_for_queue_messages
    else:
        prefix, suffix = strategy.topic_prefix, strategy.topic_suffix
        use_queue = strategy.use_queue_for_topic_messages
    name = prefix + destination.name
    if strategy.destination_per_durable_subscriber and subscription is not None:
        # Quirk (Classic 5.x): the subscription comes before the suffix.
        name += f".{subscription}"
    name += suffix
    # Quirk (Classic 5.x): the composed text is read as a destination name, so blanks at its ends
    # and everything from the first `?` are cut off.
    name = name.split("?", 1)[0].strip()
    return Destination(DestinationKind.QUEUE if use_queue else DestinationKind.TOPIC, name)


class _CompiledStrategy:
    """A strategy with its texts worked out."""

    __slots__ = (
        "_dead_letter",
        "_is_assumed",
        "_strategy",
        "_where",
        "_written",
        "find",
        "refused",
    )

    def __init__(
        self, entry: PolicyEntry | None, pattern: str, *, is_assumed: bool = False
    ) -> None:
        self._is_assumed = is_assumed
        strategy = (entry and entry.dead_letter_strategy) or SharedDeadLetterStrategy()
        self._strategy = strategy
        is_default = entry is None or entry.dead_letter_strategy is None
        # Why: an entry without a strategy has the broker's default: the rule's source is the entry.
        source = entry.source if entry is not None and is_default else strategy.source
        element = {
            SharedDeadLetterStrategy: "sharedDeadLetterStrategy",
            IndividualDeadLetterStrategy: "individualDeadLetterStrategy",
            DiscardingDeadLetterStrategy: "discarding",
        }[type(strategy)]
        if is_default:
            element += " (default)" if source != DEFAULTS else ""
        text = f"{element} {pattern}".strip()
        self._where = describe_rule(text, source)
        is_discarding = isinstance(strategy, DiscardingDeadLetterStrategy)
        self._written = Discard(written_line(text, source)) if is_discarding else None
        self.refused = {
            (persistent, expired): self._refuse(persistent=persistent, expired=expired)
            for persistent in (True, False)
            for expired in (True, False)
        }
        self.find = lru_cache(maxsize=MEMO_SIZE)(self._find)

    def _refuse(self, *, persistent: bool, expired: bool) -> Discard | Exhaust | None:
        """Return the refusal of a kind of message; None = it is wanted.

        Only the element `discarding` orders a discard: a message that lies in a dead-letter queue
        proves that the broker does not go by `processExpired` and `processNonPersistent`.

        Source: AbstractDeadLetterStrategy.isSendToDeadLetterQueue.
        """
        strategy = self._strategy
        if self._written is not None:
            return self._written
        if not persistent and not strategy.process_non_persistent:
            return self._keep("processNonPersistent=false")
        if expired and not strategy.process_expired:
            return self._keep("processExpired=false")
        return None

    def _keep(self, why: str) -> Exhaust:
        return Exhaust(f"{self._where} {why}", is_discard_of_broker=True)

    def _find(self, destination: Destination, subscription: str | None) -> Decision:
        dead_letter_queue = find_dead_letter_queue(self._strategy, destination, subscription)
        if dead_letter_queue is None or dead_letter_queue == destination:
            # Quirk (Classic 5.x): a message that dies in the very queue where its dead letters
            # belong is acknowledged away.
            return self._keep("died in its own dead-letter queue")
        # Quirk (Classic 5.x): a negative expiration means the same as 0, and so does one that
        # overflows when the broker adds the time of day.
        expiration_ms = max(0, self._strategy.expiration_ms)
        if expiration_ms > LONGEST_EXPIRATION_MS:
            expiration_ms = 0
        return DeadLetterTo(dead_letter_queue, expiration_ms, self._where, self._is_assumed)


class DeadLetterDecider:
    """Sends a dead letter to the destination of its strategy, or discards it; always answers.

    The broker's audit, which refuses a message id that the strategy has seen before, is no part of
    it: a message that the sidecar sends has a new id.
    """

    def __init__(self, rules: DeadLetterRules) -> None:
        self._map = DestinationMap(
            [
                (entry.destinations, _CompiledStrategy(entry, describe_pattern(entry.destinations)))
                for entry in rules.entries
            ]
        )
        self._default = _CompiledStrategy(
            rules.default_entry,
            "defaultEntry" if rules.default_entry is not None else "",
            is_assumed=not rules.is_known,
        )

    def keeps_non_persistent(self, destination: Destination) -> bool:
        """Return whether non-persistent messages that die at a destination are kept at all."""
        decision = self.decide(DeadLetter(destination, persistent=False), None)
        return isinstance(decision, DeadLetterTo)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision:
        """Return where a dead letter belongs, or that it is discarded."""
        del chance
        strategy = self._map.find(dead_letter.destination) or self._default
        refused = strategy.refused[dead_letter.persistent, dead_letter.expired]
        if refused is not None:
            return refused
        return strategy.find(dead_letter.destination, dead_letter.subscription)
