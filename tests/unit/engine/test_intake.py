"""Which dead-letter queues the strategies of a Classic broker fill."""

from __future__ import annotations

import pytest

from amqsidecar.engine.intake import dead_letter_queues_of, name_patterns_of
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


def rules_of(pattern: Destination, strategy: DeadLetterStrategy) -> ClassicRules:
    return ClassicRules(dead_letter=DeadLetterRules(entries=(entry(pattern, strategy),)))


@pytest.mark.parametrize(
    ("prefix", "suffix"), [("", ""), ("DLQ", ""), ("", "dead"), ("D-", "x"), ("DLQ", ".x")]
)
def test_names_that_others_may_have_by_accident_are_a_doubt(prefix: str, suffix: str) -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix=prefix, queue_suffix=suffix)
    rules = rules_of(queue("a.>"), strategy)
    found, [doubt] = dead_letter_queues_of(rules)
    assert [one.destination.name for one in found] == ["ActiveMQ.DLQ", "ActiveMQ.DLQ.Topic.>"]
    assert f"{prefix!r} + name + {suffix!r}" in doubt
    assert "intake.queues" in doubt
    assert name_patterns_of(rules) == ()


@pytest.mark.parametrize(("prefix", "suffix"), [("D-", ""), ("", ".DLQ"), ("D-", "-x"), (".", "")])
def test_names_that_no_wildcard_covers_are_known_by_a_pattern(prefix: str, suffix: str) -> None:
    """It matches the dead-letter queues of what the entry names, and no others."""
    strategy = IndividualDeadLetterStrategy(queue_prefix=prefix, queue_suffix=suffix)
    rules = rules_of(queue("a.>"), strategy)
    assert dead_letter_queues_of(rules)[1] == ()
    [pattern] = name_patterns_of(rules)
    dead = f"{prefix}a.b{suffix}"
    assert pattern.matching([dead, f"{prefix}b{suffix}", "a.b", prefix + suffix]) == [dead]


def test_a_name_is_not_prefix_and_suffix_at_the_same_place() -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix="x-", queue_suffix="-x")
    [pattern] = name_patterns_of(rules_of(queue(">"), strategy))
    assert pattern.matching(["x-x", "x-a-x"]) == ["x-a-x"]


def test_a_default_entry_has_patterns_for_queues_and_topics() -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix="D-", topic_prefix="T-")
    default = PolicyEntry(destinations=(), dead_letter_strategy=strategy)
    rules = ClassicRules(dead_letter=DeadLetterRules(default_entry=default))
    assert [one.matching(["D-a", "T-a"]) for one in name_patterns_of(rules)] == [["D-a"], ["T-a"]]


def test_queues_of_durable_subscriptions_are_found() -> None:
    """The subscription stands behind the topic's name, by wildcard and by pattern."""
    strategy = IndividualDeadLetterStrategy(
        topic_prefix="T.", topic_suffix=".t", destination_per_durable_subscriber=True
    )
    assert names_of(entry(topic("news"), strategy)) == ["T.news.t", "T.news.>"]
    strategy = IndividualDeadLetterStrategy(
        topic_prefix="T-", topic_suffix=".t", destination_per_durable_subscriber=True
    )
    [pattern] = name_patterns_of(rules_of(topic("news.*"), strategy))
    names = ["T-news.eu.client.a:sub.t", "T-olds.eu.client.a:sub.t"]
    assert pattern.matching(names) == names[:1]


def test_dead_letters_in_a_topic_are_a_doubt() -> None:
    shared = SharedDeadLetterStrategy(dead_letter_queue=topic("dead"))
    found, [doubt] = dead_letter_queues_of(
        ClassicRules(dead_letter=DeadLetterRules(entries=(entry(queue("a"), shared),)))
    )
    assert [one.destination.name for one in found] == ["ActiveMQ.DLQ"]
    assert "topic://dead, not a queue" in doubt
