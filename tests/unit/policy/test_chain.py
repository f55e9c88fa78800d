"""The chain: the order in which plugins decide, and the path in the text of a decision."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import ConfigError
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Park, Redeliver, WrittenLine
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Chance, Decider, Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.chain import Chain, StoredDeadLetters, compile_classic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PluginRules,
    PolicyEntry,
    RedeliveryPolicy,
    RedeliveryRules,
)
from amqsidecar.policy.rule_source import RuleSource

DEAD = DeadLetter(queue("A"))


class _Always:
    def __init__(self, decision: Decision | None) -> None:
        self.decision = decision

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        return self.decision


def _at(line: int) -> RuleSource:
    return RuleSource("activemq.xml", line)


def _rules(*plugins: object) -> ClassicRules:
    strategy = IndividualDeadLetterStrategy(queue_prefix="DLQ.", source=_at(30))
    names = {RedeliveryRules: "redelivery", DiscardingRules: "discarding"}
    return ClassicRules(
        plugins=tuple(
            PluginRules(name=names[type(options)], options=options, source=_at(8))
            for options in plugins
        ),
        dead_letter=DeadLetterRules(
            entries=(PolicyEntry(destinations=(queue(">"),), dead_letter_strategy=strategy),)
        ),
    )


REDELIVERY = RedeliveryRules(
    default_entry=RedeliveryPolicy(maximum_redeliveries=1, source=_at(14)), source=_at(9)
)
DISCARDING = DiscardingRules(source=_at(20))


def test_row_17_last_plugin_is_asked_first() -> None:
    """Discarding after redelivery means that nothing is ever redelivered [R: both orders]."""
    plugins = load_plugins()
    outside = compile_classic(_rules(REDELIVERY, DISCARDING), plugins)
    inside = compile_classic(_rules(DISCARDING, REDELIVERY), plugins)
    exhausted = DeadLetter(queue("A"), 1)
    dropped = WrittenLine("discardingDLQBrokerPlugin dropAll=true", "activemq.xml:20")
    assert outside.decide(DEAD, None) == Discard(dropped)
    assert inside.decide(DEAD, None) == Redeliver(
        1000, 1, "redeliveryPolicy defaultEntry (activemq.xml:14)"
    )
    assert inside.decide(exhausted, None) == Discard(
        dropped, "redeliveryPolicy defaultEntry maximumRedeliveries=1 (activemq.xml:14)"
    )


def test_the_rule_names_the_whole_chain() -> None:
    plugins = load_plugins()
    no_policy = RedeliveryRules(source=_at(9))
    assert compile_classic(_rules(no_policy), plugins).decide(DEAD, None) == DeadLetterTo(
        queue("DLQ.A"),
        0,
        "redeliveryPlugin fallbackToDeadLetter=true (activemq.xml:9)"
        ' -> individualDeadLetterStrategy queue=">" (activemq.xml:30)',
    )
    assert compile_classic(_rules(), plugins).decide(DEAD, None) == DeadLetterTo(
        queue("DLQ.A"), 0, 'individualDeadLetterStrategy queue=">" (activemq.xml:30)'
    )


def test_a_plugin_may_stand_in_the_chain_twice() -> None:
    inner = RedeliveryRules(default_entry=RedeliveryPolicy(maximum_redeliveries=3))
    chain = compile_classic(_rules(inner, REDELIVERY), load_plugins())
    decision = chain.decide(DeadLetter(queue("A"), 2), None)
    assert isinstance(decision, Redeliver)
    assert decision.rule.startswith("redeliveryPolicy defaultEntry maximumRedeliveries=1")


@given(st.lists(st.booleans(), max_size=6))
def test_first_answer_from_the_end_wins(answers: list[bool]) -> None:
    deciders = [_Always(Park(str(i)) if a else None) for i, a in enumerate(answers)]
    expected = [i for i, answer in enumerate(answers) if answer]
    decision = Chain(deciders).decide(DEAD, None)
    assert decision == (Park(str(expected[-1])) if expected else None)


def test_missing_plugin_and_refused_options_are_reported_together() -> None:
    unknown = PluginRules(name="unheard", options=None, source=_at(5))
    broken = PluginRules(
        name="discarding", options=DiscardingRules(drop_only="A(", source=_at(6)), source=_at(6)
    )
    with pytest.raises(ConfigError) as caught:
        compile_classic(ClassicRules(plugins=(unknown, broken)), load_plugins())
    assert [problem.where for problem in caught.value.problems] == [
        "activemq.xml:5",
        "activemq.xml:6",
    ]
    assert "deadletter, discarding, redelivery" in caught.value.problems[0].what


def test_a_strangers_plugin_is_asked_like_ours() -> None:
    class Parks:
        name = "parks"

        def parse_options(self, options: Mapping[str, object], source: RuleSource) -> object:
            return dict(options)

        def compile(self, options: object) -> Decider:
            return _Always(Park(f"parks {options}"))

    plugins: dict[str, Plugin] = {**load_plugins(), "parks": Parks()}
    rules = ClassicRules(plugins=(PluginRules(name="parks", options={"x": 1}),))
    assert compile_classic(rules, plugins).decide(DEAD, None) == Park("parks {'x': 1}")


@pytest.mark.parametrize("keeps", [True, False])
def test_what_lies_in_a_queue_was_persistent_where_the_strategy_refuses_others(keeps: bool) -> None:
    """`originalDeliveryMode` may be left over from another death, or be a producer's own word."""

    class Asked(_Always):
        dead_letter = DEAD

        def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
            self.dead_letter = dead_letter
            return super().decide(dead_letter, chance)

    strategy = IndividualDeadLetterStrategy(process_non_persistent=keeps)
    entry = PolicyEntry(destinations=(queue("A"),), dead_letter_strategy=strategy)
    rules, discarded = Asked(Park("mine")), DeadLetter(queue("A"), 3, persistent=False)
    decider = StoredDeadLetters(rules, DeadLetterRules(entries=(entry,)))
    assert decider.decide(discarded, None) == Park("mine")
    assert rules.dead_letter == DeadLetter(queue("A"), 3, persistent=not keeps)
