"""The broker's chain of interceptors: the order in which plugins decide about a dead letter.

Source: org.apache.activemq.broker.BrokerService.addInterceptors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver, Redirect
from amqsidecar.model.message import MessageEdit
from amqsidecar.policy.classic_rules import ClassicRules, DeadLetterRules, PluginRules
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy.redelivery_policy import Chance

INNERMOST = "deadletter"
"""Name of the plugin that stands for the broker's own dead-letter handling."""


class ChainDecider(Protocol):
    """A decider of the chain; see `amqsidecar.plugin.Decider`.

    A decider may also have a method `passing_rule(dead_letter) -> str | None`: the rule by which it
    passed a dead letter on. The chain writes it before the rule that decided in the end. And a
    method `passing_edit(dead_letter) -> MessageEdit | None`: its edit of the later re-send.
    """

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision on a dead letter; None = the next decider is asked."""
        ...


class CompilesOptions(Protocol):
    """The part of `amqsidecar.plugin.Plugin` that the chain uses."""

    def compile(self, options: object) -> ChainDecider:
        """Return a decider for the options of one use of the plugin."""
        ...


class Chain:
    """Asks the decider listed last first, as in the broker; the first answer wins.

    Attributes:
        innermost: the decider that is asked last; None = the chain is empty.
        asks: the `DeadLetter.facts` that they read; see `amqsidecar.plugin.Plugin`.

    Args:
        deciders: innermost first, so the dead-letter decider stands before all others.
    """

    def __init__(self, deciders: Sequence[ChainDecider]) -> None:
        asked = list(reversed(deciders))
        self._asked = [it.decide for it in asked]
        self._passing: list[Callable[[DeadLetter], str | None] | None] = [
            getattr(it, "passing_rule", None) for it in asked
        ]
        self._editing: list[Callable[[DeadLetter], MessageEdit | None] | None] = [
            getattr(it, "passing_edit", None) for it in asked
        ]
        self.innermost = deciders[0] if deciders else None
        self.asks = frozenset(name for it in deciders for name in getattr(it, "asks", ()))
        self._prefixed = lru_cache(maxsize=4096)(_prefix_rule)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the first answer; None = there was none."""
        for position, decide in enumerate(self._asked):
            decision = decide(dead_letter, chance)
            if decision is not None:
                return decision if not position else self._explain(dead_letter, decision, position)
        return None

    def _explain(self, dead_letter: DeadLetter, decision: Decision, position: int) -> Decision:
        passed = []
        for passing_rule in self._passing[:position]:
            rule = None if passing_rule is None else passing_rule(dead_letter)
            if rule is not None:
                passed.append(rule)
        if not passed:
            return decision
        if isinstance(decision, DeadLetterTo | Discard):
            return self._prefixed(decision, " -> ".join(passed))
        if isinstance(decision, Redeliver | Redirect):
            edits = (edit(dead_letter) for edit in self._editing[:position] if edit is not None)
            edit = next((one for one in edits if one is not None), decision.edit)
            decision = replace(decision, edit=edit)
        return _prefix_rule(decision, " -> ".join(passed))


def _prefix_rule(decision: Decision, passed: str) -> Decision:
    if isinstance(decision, Discard):
        before = f"{passed} -> {decision.passed}" if decision.passed else passed
        return replace(decision, passed=before)
    return replace(decision, rule=f"{passed} -> {decision.rule}")


class StoredDeadLetters:
    """Asks about messages of a dead-letter queue, on the assumption that a strategy put them there.

    The broker notes on a dead letter that the message was not persistent, and any producer can
    write the same words. Where the strategy refuses such messages, none of them is in a queue.
    """

    def __init__(self, decider: ChainDecider, rules: DeadLetterRules) -> None:
        self._decider = decider
        self.asks = getattr(decider, "asks", frozenset[str]())
        self._strategies = DeadLetterDecider(rules)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decider's answer for the only possible form of the message."""
        if not (
            dead_letter.persistent or self._strategies.keeps_non_persistent(dead_letter.destination)
        ):
            dead_letter = replace(dead_letter, persistent=True)
        return self._decider.decide(dead_letter, chance)


def compile_classic(rules: ClassicRules, plugins: Mapping[str, CompilesOptions]) -> Chain:
    """Return the chain of an `activemq.xml`: its plugins around its dead-letter strategies.

    Raises:
        ConfigError: a plugin is missing or refuses its options; with every problem found.
    """
    innermost = PluginRules(
        name=INNERMOST, options=rules.dead_letter, source=rules.dead_letter.source
    )
    return Chain(compile_plugins((innermost, *rules.plugins), plugins))


def compile_plugins(
    links: Sequence[PluginRules], plugins: Mapping[str, CompilesOptions]
) -> list[ChainDecider]:
    """Return the deciders of links of a chain, in their order.

    Raises:
        ConfigError: as `compile_classic`.
    """
    deciders: list[ChainDecider] = []
    problems: list[Problem] = []
    for link in links:
        plugin = plugins.get(link.name)
        if plugin is None:
            known = ", ".join(sorted(plugins)) or "none"
            what = f"there is no plugin named {link.name!r}; installed: {known}"
            problems.append(Problem(str(link.source), what))
            continue
        try:
            deciders.append(plugin.compile(link.options))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return deciders
