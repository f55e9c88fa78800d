"""The decision of a `redeliveryPlugin`: whether and when a dead letter is redelivered.

Source: org.apache.activemq.broker.util.RedeliveryPlugin.sendToDeadLetterQueue.
"""

from functools import lru_cache

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Decision, Discard, Redeliver, WrittenLine
from amqsidecar.policy.classic_rules import RedeliveryPolicy, RedeliveryRules
from amqsidecar.policy.destination_map import DestinationMap, describe_pattern
from amqsidecar.policy.redelivery_policy import Chance, DelayTable
from amqsidecar.policy.rule_source import DEFAULTS, RuleSource, written_line

MEMO_SIZE = 1024
"""Decisions of one policy, by redelivery count, that are remembered."""


def describe_rule(what: str, source: RuleSource) -> str:
    """Return the text by which an operator finds a rule again.

    Example:
        >>> describe_rule('redeliveryPolicy queue="A"', RuleSource("activemq.xml", 14))
        'redeliveryPolicy queue="A" (activemq.xml:14)'
    """
    return f"{what} {source}" if source == DEFAULTS else f"{what} ({source})"


class _CompiledPolicy:
    """A policy with its texts and delays worked out."""

    __slots__ = (
        "_delays",
        "_rule",
        "exhausted",
        "exhausted_rule",
        "is_varied",
        "limit",
        "remembered",
    )

    def __init__(
        self, policy: RedeliveryPolicy, pattern: str, drops_exhausted: WrittenLine | None
    ) -> None:
        self.limit = policy.maximum_redeliveries
        self.is_varied = policy.use_collision_avoidance
        self._delays = DelayTable(policy)
        self._rule = describe_rule(f"redeliveryPolicy {pattern}", policy.source)
        self.exhausted_rule = describe_rule(
            f"redeliveryPolicy {pattern} maximumRedeliveries={self.limit}", policy.source
        )
        self.exhausted = (
            None if drops_exhausted is None else Discard(drops_exhausted, self.exhausted_rule)
        )
        self.remembered = lru_cache(maxsize=MEMO_SIZE)(self.redeliver)

    def redeliver(self, redelivery_count: int, chance: Chance | None = None) -> Redeliver:
        delay_ms = self._delays.delay_ms(redelivery_count, chance)
        return Redeliver(delay_ms, redelivery_count + 1, self._rule)


class RedeliveryDecider:
    """Redelivers while a redelivery policy allows it; then passes on or drops.

    Expired messages and duplicates from the store are passed on before any policy is asked.
    Persistence makes no difference.
    """

    def __init__(self, rules: RedeliveryRules) -> None:
        drops_exhausted = (
            None
            if rules.send_to_dlq_if_max_retries_exceeded
            else written_line("redeliveryPlugin sendToDlqIfMaxRetriesExceeded=false", rules.source)
        )
        self._map = DestinationMap(
            [
                (
                    entry.destinations,
                    _CompiledPolicy(
                        entry.policy, describe_pattern(entry.destinations), drops_exhausted
                    ),
                )
                for entry in rules.entries
            ]
        )
        self._default = (
            None
            if rules.default_entry is None
            else _CompiledPolicy(rules.default_entry, "defaultEntry", drops_exhausted)
        )
        self._unmatched = (
            None
            if rules.fallback_to_dead_letter
            else Discard(written_line("redeliveryPlugin fallbackToDeadLetter=false", rules.source))
        )
        self._unmatched_rule = describe_rule(
            "redeliveryPlugin fallbackToDeadLetter=true", rules.source
        )
        self._expired_rule = describe_rule("redeliveryPlugin expired", rules.source)
        self._duplicate_rule = describe_rule("redeliveryPlugin duplicate from store", rules.source)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the redelivery, or that the message is dropped; None = ask the next."""
        if dead_letter.expired or dead_letter.is_store_duplicate:
            return None
        policy = self._map.find(dead_letter.destination) or self._default
        if policy is None:
            return self._unmatched
        limit, count = policy.limit, dead_letter.redelivery_count
        if limit is None or count < limit:
            if chance is not None and policy.is_varied:
                return policy.redeliver(count, chance)
            return policy.remembered(count)
        return policy.exhausted

    def passing_rule(self, dead_letter: DeadLetter) -> str | None:
        """Return the rule by which `decide` passed a dead letter on."""
        if dead_letter.expired:
            return self._expired_rule
        if dead_letter.is_store_duplicate:
            return self._duplicate_rule
        policy = self._map.find(dead_letter.destination) or self._default
        return self._unmatched_rule if policy is None else policy.exhausted_rule
