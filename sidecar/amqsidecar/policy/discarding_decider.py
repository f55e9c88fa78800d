"""The decisions of a `discardingDLQBrokerPlugin`.

Source: org.apache.activemq.plugin.DiscardingDLQBroker, DiscardingDLQBrokerPlugin.
"""

from functools import lru_cache

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Decision, Discard
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
    """Drops by kind and by name, whatever the cause; passes on the rest.

    A name is compared without `queue://` or `topic://`. A pattern whose comparison takes too long
    counts as not matching for that name: dropping is final, passing on is not.
    """

    def __init__(self, rules: DiscardingRules) -> None:
        def describe(what: str) -> str:
            return describe_rule(f"discardingDLQBrokerPlugin {what}", rules.source)

        self._all = Discard(describe("dropAll=true")) if rules.drop_all else None
        self._by_kind: dict[DestinationKind, Discard] = {}
        if rules.drop_temporary_topics:
            self._by_kind[DestinationKind.TEMP_TOPIC] = Discard(
                describe("dropTemporaryTopics=true")
            )
        if rules.drop_temporary_queues:
            self._by_kind[DestinationKind.TEMP_QUEUE] = Discard(
                describe("dropTemporaryQueues=true")
            )
        self._patterns = []
        problems = []
        for pattern in split_patterns(rules.drop_only):
            try:
                compiled = compile_java_regex(pattern)
            except JavaRegexError as error:
                problems.append(Problem(str(rules.source), f"dropOnly: {error}"))
            else:
                self._patterns.append(
                    (
                        compiled,
                        Discard(describe(f'dropOnly="{pattern}"')),
                        describe(f'dropOnly="{pattern}" took too long'),
                    )
                )
        if problems:
            raise ConfigError(problems)
        self._match = lru_cache(maxsize=MEMO_SIZE)(self._match_name)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return that a dead letter is dropped; None = ask the next."""
        del chance
        if self._all is not None:
            return self._all
        destination = dead_letter.destination
        by_kind = self._by_kind.get(destination.kind)
        if by_kind is not None:
            return by_kind
        return self._match(destination.name)[0] if self._patterns else None

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
