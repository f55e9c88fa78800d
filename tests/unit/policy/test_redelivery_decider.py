"""The redelivery decider: `spec-classic.md` 2.2, branch by branch."""

import random
from typing import TypedDict, Unpack

import pytest

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Discard, Redeliver, WrittenLine
from amqsidecar.model.destination import Destination, parse_destination, queue
from amqsidecar.policy.classic_rules import RedeliveryEntry, RedeliveryPolicy, RedeliveryRules
from amqsidecar.policy.redelivery_decider import RedeliveryDecider
from amqsidecar.policy.rule_source import RuleSource

PLUGIN = RuleSource("activemq.xml", 9)
ENTRY = RuleSource("activemq.xml", 14)


def _decider(maximum: int | None = 2, *, default: bool = False, **flags: bool) -> RedeliveryDecider:
    policy = RedeliveryPolicy(
        maximum_redeliveries=maximum,
        initial_redelivery_delay_ms=4000,
        redelivery_delay_ms=2000,
        source=ENTRY,
    )
    return RedeliveryDecider(
        RedeliveryRules(
            entries=()
            if default
            else (RedeliveryEntry(destinations=(queue("A.>"),), policy=policy),),
            default_entry=policy if default else None,
            source=PLUGIN,
            **flags,
        )
    )


class Flags(TypedDict, total=False):
    expired: bool
    persistent: bool
    is_store_duplicate: bool


def _dead(name: str = "A.B", count: int = 0, **fields: Unpack[Flags]) -> DeadLetter:
    return DeadLetter(parse_destination(name), count, **fields)


def test_redelivers_up_to_the_maximum_and_then_passes_on() -> None:
    """A maximum of 2 gives two redeliveries with counts 1 and 2, then the next is asked [R]."""
    rule = 'redeliveryPolicy queue="A.>" (activemq.xml:14)'
    decider = _decider(2)
    assert decider.decide(_dead(count=0), None) == Redeliver(4000, 1, rule)
    assert decider.decide(_dead(count=1), None) == Redeliver(2000, 2, rule)
    assert decider.decide(_dead(count=2), None) is None
    assert decider.passing_rule(_dead(count=2)) == (
        'redeliveryPolicy queue="A.>" maximumRedeliveries=2 (activemq.xml:14)'
    )


def test_row_5_exhausted_message_is_dropped_when_configured() -> None:
    """sendToDlqIfMaxRetriesExceeded=false discards the exhausted, and says by which rule."""
    decision = _decider(2, send_to_dlq_if_max_retries_exceeded=False).decide(_dead(count=2), None)
    assert decision == Discard(
        WrittenLine("redeliveryPlugin sendToDlqIfMaxRetriesExceeded=false", "activemq.xml:9"),
        'redeliveryPolicy queue="A.>" maximumRedeliveries=2 (activemq.xml:14)',
    )
    assert decision.rule == (
        'redeliveryPolicy queue="A.>" maximumRedeliveries=2 (activemq.xml:14)'
        " -> redeliveryPlugin sendToDlqIfMaxRetriesExceeded=false (activemq.xml:9)"
    )


def test_row_5_unmatched_message_is_dropped_when_configured() -> None:
    decider = _decider(fallback_to_dead_letter=False)
    assert decider.decide(_dead("B"), None) == Discard(
        WrittenLine("redeliveryPlugin fallbackToDeadLetter=false", "activemq.xml:9")
    )
    assert _decider().decide(_dead("B"), None) is None
    assert _decider().passing_rule(_dead("B")) == (
        "redeliveryPlugin fallbackToDeadLetter=true (activemq.xml:9)"
    )


@pytest.mark.parametrize("kind", ["expired", "is_store_duplicate"])
def test_expired_and_store_duplicates_are_passed_on_before_anything_else(kind: str) -> None:
    """Neither is redelivered nor dropped by the plugin, whatever its flags (AMQ-4166, AMQ-7062)."""
    decider = _decider(fallback_to_dead_letter=False, send_to_dlq_if_max_retries_exceeded=False)
    for name in ("A.B", "B"):
        assert decider.decide(_dead(name, 9, **{kind: True}), None) is None
        assert "activemq.xml:9" in str(decider.passing_rule(_dead(name, 9, **{kind: True})))


def test_row_16_persistence_makes_no_difference() -> None:
    assert isinstance(_decider().decide(_dead(persistent=False), None), Redeliver)


@pytest.mark.parametrize(
    "name", ["topic://T", "temp-queue://x:1", "ActiveMQ.DLQ", "topic://ActiveMQ.Advisory.X"]
)
def test_row_8_default_entry_catches_everything(name: str) -> None:
    """The decision for topics, temporary ones, DLQs and advisories is the broker's own."""
    decision = _decider(default=True).decide(_dead(name), None)
    assert decision == Redeliver(4000, 1, "redeliveryPolicy defaultEntry (activemq.xml:14)")


def test_row_25_topic_is_decided_by_the_topics_own_rules() -> None:
    """A dead letter of a topic isn't matched by queue entries."""
    assert _decider().decide(_dead("topic://A.B"), None) is None


def test_row_4_only_the_count_it_is_given_counts() -> None:
    decider = _decider(2)
    assert {decider.decide(_dead(count=1), None) for _ in range(3)} == {
        decider.decide(_dead(count=1), None)
    }


def test_chance_is_used_only_where_the_policy_asks_for_it() -> None:
    """With collision avoidance equal chance gives equal delays; without it chance is untouched."""

    def never() -> float:
        raise AssertionError("a policy without collision avoidance drew")

    assert isinstance(_decider().decide(_dead(count=1), never), Redeliver)
    policy = RedeliveryPolicy(use_collision_avoidance=True, redelivery_delay_ms=100_000)
    decider = RedeliveryDecider(RedeliveryRules(default_entry=policy))
    first, second = (
        decider.decide(DeadLetter(queue("A"), 1), random.Random(3).random) for _ in range(2)
    )
    assert first == second
    assert first != decider.decide(DeadLetter(queue("A"), 1), None)
    assert decider.decide(DeadLetter(queue("A"), 1), None) == Redeliver(
        100_000, 2, "redeliveryPolicy defaultEntry (defaults)"
    )


def test_destination_may_be_any_text() -> None:
    for name in (".", "..", "*", ">", "A.*", "a,b", "\ud800", "x" * 10_000):
        destination = Destination(queue("A").kind, name)
        _decider().decide(DeadLetter(destination), None)
