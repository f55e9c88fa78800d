"""The decisions of a `discardingDLQBrokerPlugin`.

Source: org.apache.activemq.plugin.DiscardingDLQBroker, DiscardingDLQBrokerPlugin.
"""

from functools import lru_cache

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Decision, Discard, Exhaust
from amqsidecar.model.destination import DestinationKind
from amqsidecar.policy.classic_rules import DiscardingRules
from amqsidecar.policy.destination_map import MEMO_SIZE
from amqsidecar.policy.java_regex.java_regex import (
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)
from amqsidecar.policy.redelivery_decider import describe_rule
from amqsidecar.policy.redelivery_policy import Chance
from amqsidecar.policy.rule_source import written_line

_BLANKS = "".join(map(chr, range(0x21)))


def split_patterns(drop_only: str | None) -> tuple[str, ...]:
    r"""Return the patterns of a `dropOnly`: split at the space character and at nothing else.

    Source: DiscardingDLQBrokerPlugin.getDestFilter.

    Example:
        >>> split_patterns(r"A\..*  B ")
        ('A\\..*', 'B')
    """
    # Quirk (Classic 5.x): a tab or line feed inside a token belongs to the pattern, while a token
    # of nothing but such characters is skipped.
    return tuple(token for token in (drop_only or "").split(" ") if token.strip(_BLANKS))


class DiscardingDecider:
    """Drops by kind and by name, for any cause; passes on the rest.

    A name is compared without `queue://` or `topic://`. A pattern whose comparison takes too long
    counts as not matching for that name: dropping is final, passing on is not.
    """

    def __init__(self, rules: DiscardingRules) -> None:
        def describe(what: str) -> str:
            return describe_rule(f"discardingDLQBrokerPlugin {what}", rules.source)

        def drop(what: str) -> Discard:
            return Discard(written_line(f"discardingDLQBrokerPlugin {what}", rules.source))

        def drop_where(name: str, is_written: bool | None) -> Discard | Exhaust | None:
            if is_written is False:
                return None
            if is_written or is_bare:
                return drop(f"{name}=true")
            rule = describe(f"{name}=true is the default")
            return Exhaust(rule, is_discard_of_broker=True)

        patterns = split_patterns(rules.drop_only)
        # Why: without any option the element itself orders to drop all.
        is_bare = rules.drop_all is None and not patterns
        self._all = drop_where("dropAll", rules.drop_all)
        self._by_kind = {
            DestinationKind.TEMP_TOPIC: drop_where(
                "dropTemporaryTopics", rules.drop_temporary_topics
            ),
            DestinationKind.TEMP_QUEUE: drop_where(
                "dropTemporaryQueues", rules.drop_temporary_queues
            ),
        }
        self._patterns = []
        problems = []
        for pattern in patterns:
            try:
                compiled = compile_java_regex(pattern)
            except JavaRegexError as error:
                problems.append(Problem(str(rules.source), f"dropOnly: {error}"))
            else:
                self._patterns.append(
                    (
                        compiled,
                        drop(f'dropOnly="{pattern}"'),
                        describe(f'dropOnly="{pattern}" took too long'),
                    )
                )
        if problems:
            raise ConfigError(problems)
        self._match = lru_cache(maxsize=MEMO_SIZE)(self._match_name)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return that a dead letter is dropped; None = ask the next.

        A written line is asked before a default of the broker, which drops nothing.
        """
        del chance
        if isinstance(self._all, Discard):
            return self._all
        destination = dead_letter.destination
        by_kind = self._by_kind.get(destination.kind)
        if isinstance(by_kind, Discard):
            return by_kind
        written = self._match(destination.name)[0] if self._patterns else None
        return written or self._all or by_kind

    def passing_rule(self, dead_letter: DeadLetter) -> str | None:
        """Return the pattern that took too long for a dead letter; None = there was none."""
        return self._match(dead_letter.destination.name)[1] if self._patterns else None

    def _match_name(self, name: str) -> tuple[Discard | None, str | None]:
        gave_up = None
        for pattern, dropped, too_long in self._patterns:
            try:
                if pattern.matches(name):
                    return dropped, None
            except JavaRegexTimeout:
                gave_up = too_long
        return None, gave_up
