"""The dead-letter decider: `spec-classic.md` 4, strategy by strategy."""

import pytest

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Discard, Exhaust, WrittenLine
from amqsidecar.model.destination import Destination, parse_destination, queue, topic
from amqsidecar.policy.classic_rules import (
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy.rule_source import RuleSource

SOURCE = RuleSource("activemq.xml", 30)


def _decide(
    strategy: DeadLetterStrategy | None, dead_letter: DeadLetter | str
) -> DeadLetterTo | Discard | Exhaust:
    if isinstance(dead_letter, str):
        dead_letter = DeadLetter(parse_destination(dead_letter))
    rules = DeadLetterRules(
        default_entry=PolicyEntry(destinations=(), dead_letter_strategy=strategy, source=SOURCE)
    )
    decision = DeadLetterDecider(rules).decide(dead_letter, None)
    assert isinstance(decision, DeadLetterTo | Discard | Exhaust)
    return decision


def _destination(strategy: DeadLetterStrategy, dead_letter: DeadLetter | str) -> Destination:
    decision = _decide(strategy, dead_letter)
    assert isinstance(decision, DeadLetterTo)
    return decision.destination


def test_without_rules_everything_goes_to_the_shared_default() -> None:
    """No policy map at all: ActiveMQ.DLQ, kept for ever."""
    decider = DeadLetterDecider(DeadLetterRules())
    assert decider.decide(DeadLetter(topic("T")), None) == DeadLetterTo(
        queue("ActiveMQ.DLQ"), 0, "sharedDeadLetterStrategy (defaults)"
    )


def test_entry_without_strategy_has_the_default_and_is_named() -> None:
    """An entry that says nothing about dead letters still wins over a less specific one."""
    individual = IndividualDeadLetterStrategy(source=SOURCE)
    rules = DeadLetterRules(
        entries=(
            PolicyEntry(destinations=(queue(">"),), dead_letter_strategy=individual),
            PolicyEntry(destinations=(queue("A"),), source=RuleSource("activemq.xml", 12)),
        )
    )
    decider = DeadLetterDecider(rules)
    assert decider.decide(DeadLetter(queue("A")), None) == DeadLetterTo(
        queue("ActiveMQ.DLQ"), 0, 'sharedDeadLetterStrategy (default) queue="A" (activemq.xml:12)'
    )
    assert decider.decide(DeadLetter(queue("B")), None) == DeadLetterTo(
        queue("ActiveMQ.DLQ.Queue.B"), 0, 'individualDeadLetterStrategy queue=">" (activemq.xml:30)'
    )


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (SharedDeadLetterStrategy(source=SOURCE), "ActiveMQ.DLQ"),
        (IndividualDeadLetterStrategy(queue_prefix="", source=SOURCE), "A"),
    ],
)
def test_message_that_dies_in_its_own_dead_letter_queue_is_gone_in_the_broker(
    strategy: DeadLetterStrategy, name: str
) -> None:
    """The broker's loop guard acknowledges the message away (spec 4.1)."""
    decision = _decide(strategy, name)
    assert isinstance(decision, Exhaust)
    assert decision.is_discard_of_broker
    assert "died in its own dead-letter queue" in decision.rule
    assert "activemq.xml:30" in decision.rule


def test_row_16_non_persistent_are_discarded_unless_wanted() -> None:
    """processNonPersistent=false, the default, loses them in the broker; the rule says so."""
    dead = DeadLetter(queue("A"), persistent=False)
    refused = _decide(SharedDeadLetterStrategy(source=SOURCE), dead)
    assert refused == Exhaust(
        "sharedDeadLetterStrategy defaultEntry (activemq.xml:30) processNonPersistent=false",
        is_discard_of_broker=True,
    )
    assert _destination(SharedDeadLetterStrategy(process_non_persistent=True), dead)


def test_expired_are_kept_unless_unwanted() -> None:
    """processExpired=true is the default; with false the broker discards them."""
    dead = DeadLetter(queue("A"), expired=True)
    assert _destination(SharedDeadLetterStrategy(), dead) == queue("ActiveMQ.DLQ")
    refused = _decide(SharedDeadLetterStrategy(process_expired=False), dead)
    assert isinstance(refused, Exhaust)
    assert refused.is_discard_of_broker


def test_discarding_strategy_keeps_nothing() -> None:
    strategy = DiscardingDeadLetterStrategy(process_non_persistent=True, source=SOURCE)
    assert _decide(strategy, "A") == Discard(
        WrittenLine("discarding defaultEntry", "activemq.xml:30")
    )


@pytest.mark.parametrize(("written", "expected"), [(5000, 5000), (0, 0), (-1, 0), (2**63 - 1, 0)])
def test_row_11_expiration_of_the_strategy(written: int, expected: int) -> None:
    """Above 0 it is the time a dead letter may stay; else, or when it overflows, for ever."""
    decision = _decide(SharedDeadLetterStrategy(expiration_ms=written), "A")
    assert isinstance(decision, DeadLetterTo)
    assert decision.expiration_ms == expected


def test_row_15_the_audit_is_no_part_of_the_decision() -> None:
    """The same dead letter gets the same answer twice, with the audit on."""
    decider = DeadLetterDecider(DeadLetterRules())
    dead = DeadLetter(queue("A"))
    assert decider.decide(dead, None) == decider.decide(dead, None)
