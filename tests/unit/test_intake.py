"""Which dead-letter queues the strategies of a Classic broker fill."""

from __future__ import annotations

import pytest

from amqsidecar.engine.intake import dead_letter_queues_of
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)


def names_of(*entries: PolicyEntry, default_entry: PolicyEntry | None = None) -> list[str]:
    """Return what is read besides the broker's default dead-letter queue, without doubts."""
    found, doubts = dead_letter_queues_of(
        ClassicRules(dead_letter=DeadLetterRules(entries=entries, default_entry=default_entry))
    )
    assert doubts == ()
    first, *others = [one.destination.name for one in found]
    assert first == "ActiveMQ.DLQ"
    return others


def entry(pattern: Destination, strategy: DeadLetterStrategy | None) -> PolicyEntry:
    return PolicyEntry(destinations=(pattern,), dead_letter_strategy=strategy)


def test_shared_queues_are_read_by_name() -> None:
    shared = SharedDeadLetterStrategy(dead_letter_queue=queue("My.DLQ"))
    assert names_of(
        entry(queue("a.>"), shared),
        entry(queue("b"), DiscardingDeadLetterStrategy()),
        entry(queue("c"), None),
    ) == ["My.DLQ"]


def test_an_individual_strategy_of_one_name_is_read_by_name() -> None:
    strategy = IndividualDeadLetterStrategy(
        queue_prefix="D.", queue_suffix=".q", topic_prefix="T.", topic_suffix=".t"
    )
    assert names_of(entry(queue("orders"), strategy)) == ["D.orders.q"]
    assert names_of(entry(topic("news"), strategy)) == ["T.news.t"]


def test_an_individual_strategy_of_many_names_is_read_by_its_prefix() -> None:
    """A queue's messages may be a virtual topic's, and then lie where those of topics lie."""
    strategy = IndividualDeadLetterStrategy(queue_prefix="D.", topic_prefix="T.")
    assert names_of(entry(queue("orders.*"), strategy)) == ["D.>", "T.>"]
    assert names_of(entry(topic(">"), strategy)) == ["T.>"]


def test_a_default_entry_acts_on_queues_and_topics() -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix="D.", topic_prefix="T.")
    default = PolicyEntry(destinations=(), dead_letter_strategy=strategy)
    assert names_of(default_entry=default) == ["D.>", "T.>"]


@pytest.mark.parametrize("prefix", ["D-", ""])
def test_a_prefix_that_is_no_whole_segment_is_a_doubt(prefix: str) -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix=prefix, topic_prefix=prefix)
    found, [doubt] = dead_letter_queues_of(
        ClassicRules(dead_letter=DeadLetterRules(entries=(entry(queue("a.>"), strategy),)))
    )
    assert [one.destination.name for one in found] == ["ActiveMQ.DLQ"]
    assert f"{prefix!r} + name + ''" in doubt
    assert "intake.queues" in doubt


def test_dead_letters_in_a_topic_are_a_doubt() -> None:
    shared = SharedDeadLetterStrategy(dead_letter_queue=topic("dead"))
    found, [doubt] = dead_letter_queues_of(
        ClassicRules(dead_letter=DeadLetterRules(entries=(entry(queue("a"), shared),)))
    )
    assert [one.destination.name for one in found] == ["ActiveMQ.DLQ"]
    assert "topic://dead, not a queue" in doubt
