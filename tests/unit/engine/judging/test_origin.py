"""Where a dead letter really died, when it names a virtual topic."""

from __future__ import annotations

import pytest

from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames, named_origin
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)

TOPIC = topic("VirtualTopic.orders")
CONSUMER = "Consumer.A.VirtualTopic.orders"
DEFAULTS = IndividualDeadLetterStrategy()


def entry(pattern: Destination | None, strategy: DeadLetterStrategy | None) -> PolicyEntry:
    return PolicyEntry(
        destinations=() if pattern is None else (pattern,), dead_letter_strategy=strategy
    )


def find(
    source: str,
    *entries: PolicyEntry,
    origin: Destination = TOPIC,
    default: DeadLetterStrategy | None = None,
) -> Destination:
    rules = DeadLetterRules(
        entries=entries, default_entry=None if default is None else entry(None, default)
    )
    return DeadLetterNames(ClassicRules(dead_letter=rules)).true_origin(origin, queue(source))


@pytest.mark.parametrize(
    ("prefix", "suffix"), [("ActiveMQ.DLQ.Topic.", ""), ("DLT.", ".dead"), ("", "-dead")]
)
def test_the_consumer_queue_is_read_from_between_prefix_and_suffix(
    prefix: str, suffix: str
) -> None:
    strategy = IndividualDeadLetterStrategy(topic_prefix=prefix, topic_suffix=suffix)
    source = f"{prefix}{CONSUMER}{suffix}"
    assert find(source, entry(queue("Consumer.>"), strategy)) == queue(CONSUMER)
    assert find(source, default=strategy) == queue(CONSUMER)


def test_a_virtual_topic_with_prefix_and_postfix_of_its_own() -> None:
    name = "VT.A.prices.eu.copies"
    found = find(
        f"ActiveMQ.DLQ.Topic.{name}", entry(queue("VT.>"), DEFAULTS), origin=topic("prices.eu")
    )
    assert found == queue(name)


def test_a_topics_own_dead_letter_keeps_its_origin() -> None:
    assert find("ActiveMQ.DLQ.Topic.VirtualTopic.orders", default=DEFAULTS) == TOPIC


def test_a_durable_subscriptions_dead_letter_keeps_its_origin() -> None:
    """Its queue is named topic, client id and subscription; that is no queue's name."""
    strategy = IndividualDeadLetterStrategy(destination_per_durable_subscriber=True)
    source = "ActiveMQ.DLQ.Topic.VirtualTopic.orders.client:name"
    assert find(source, default=strategy) == TOPIC


def test_a_shared_queue_shows_no_origin() -> None:
    shared = SharedDeadLetterStrategy(dead_letter_queue=queue("My.DLQ"))
    assert find("My.DLQ", entry(queue(">"), shared)) == TOPIC
    assert find("ActiveMQ.DLQ") == TOPIC


def test_only_the_strategy_that_acts_on_the_queue_counts() -> None:
    """`DLQ.` would leave `T.Consumer.A...`, on which no such strategy acts."""
    outer = IndividualDeadLetterStrategy(topic_prefix="DLQ.")
    inner = IndividualDeadLetterStrategy(topic_prefix="DLQ.T.")
    found = find(
        f"DLQ.T.{CONSUMER}", entry(queue("orders.>"), outer), entry(queue("Consumer.>"), inner)
    )
    assert found == queue(CONSUMER)
    found = find(f"DLQ.T.{CONSUMER}", entry(queue("orders.>"), outer))
    assert found == TOPIC


def test_two_explanations_are_none() -> None:
    outer = IndividualDeadLetterStrategy(topic_prefix="DLQ.")
    inner = IndividualDeadLetterStrategy(topic_prefix="DLQ.T.")
    found = find(f"DLQ.T.{CONSUMER}", entry(queue("T.>"), outer), entry(queue("Consumer.>"), inner))
    assert found == TOPIC


def test_a_name_without_the_topics_is_no_consumer_queue() -> None:
    assert find("ActiveMQ.DLQ.Topic.Consumer.A.other", default=DEFAULTS) == TOPIC


def test_dead_letters_that_go_to_a_topic_are_no_sign() -> None:
    strategy = IndividualDeadLetterStrategy(use_queue_for_topic_messages=False)
    assert find(f"ActiveMQ.DLQ.Topic.{CONSUMER}", default=strategy) == TOPIC


@pytest.mark.parametrize(
    "origin", [queue("orders"), Destination(DestinationKind.TEMP_TOPIC, "ID:orders:1")]
)
def test_a_queue_and_a_temporary_topic_are_what_they_say(origin: Destination) -> None:
    source = f"ActiveMQ.DLQ.Topic.Consumer.A.{origin.name}"
    assert find(source, origin=origin, default=DEFAULTS) == origin


def test_without_rules_the_message_is_believed() -> None:
    assert named_origin(TOPIC, queue(f"ActiveMQ.DLQ.Topic.{CONSUMER}")) == TOPIC
