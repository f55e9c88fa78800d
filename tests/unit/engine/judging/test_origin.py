"""Where a dead letter really died, when it names a virtual topic."""

from __future__ import annotations

from collections.abc import Mapping

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


INDIVIDUAL = IndividualDeadLetterStrategy
SUBSCRIBER = INDIVIDUAL(destination_per_durable_subscriber=True)
OUTER, INNER = INDIVIDUAL(topic_prefix="DLQ."), INDIVIDUAL(topic_prefix="DLQ.T.")
SHARED = SharedDeadLetterStrategy(dead_letter_queue=queue("My.DLQ"))
IN_TOPIC = INDIVIDUAL(use_queue_for_topic_messages=False)


def find(
    source: str, strategies: Mapping[str, DeadLetterStrategy], origin: Destination = TOPIC
) -> Destination:
    """Return the true origin of what is found in a queue, by strategies; "" = the default one."""
    entries = {
        name: PolicyEntry(
            destinations=(queue(name),) if name else (), dead_letter_strategy=strategy
        )
        for name, strategy in strategies.items()
    }
    default = entries.pop("", None)
    rules = DeadLetterRules(entries=tuple(entries.values()), default_entry=default)
    return DeadLetterNames(ClassicRules(dead_letter=rules)).true_origin(origin, queue(source))


@pytest.mark.parametrize(
    ("prefix", "suffix"), [("ActiveMQ.DLQ.Topic.", ""), ("DLT.", ".dead"), ("", "-dead")]
)
@pytest.mark.parametrize("acts_on", ["Consumer.>", ""])
def test_the_consumer_queue_is_read_from_between_prefix_and_suffix(
    prefix: str, suffix: str, acts_on: str
) -> None:
    strategy = INDIVIDUAL(topic_prefix=prefix, topic_suffix=suffix)
    assert find(f"{prefix}{CONSUMER}{suffix}", {acts_on: strategy}) == queue(CONSUMER)


def test_a_virtual_topic_with_prefix_and_postfix_of_its_own() -> None:
    name = "VT.A.prices.eu.copies"
    found = find(f"ActiveMQ.DLQ.Topic.{name}", {"VT.>": DEFAULTS}, topic("prices.eu"))
    assert found == queue(name)


def test_only_the_strategy_that_acts_on_the_queue_counts() -> None:
    """`DLQ.` would leave `T.Consumer.A...`, on which no such strategy acts."""
    found = find(f"DLQ.T.{CONSUMER}", {"orders.>": OUTER, "Consumer.>": INNER})
    assert found == queue(CONSUMER)


@pytest.mark.parametrize(
    ("source", "strategies"),
    [
        ("ActiveMQ.DLQ.Topic.VirtualTopic.orders", {"": DEFAULTS}),
        # It is named topic, client id and subscription; that is no queue's name.
        ("ActiveMQ.DLQ.Topic.VirtualTopic.orders.client:name", {"": SUBSCRIBER}),
        ("My.DLQ", {">": SHARED}),
        ("ActiveMQ.DLQ", {}),
        (f"DLQ.T.{CONSUMER}", {"orders.>": OUTER}),
        (f"DLQ.T.{CONSUMER}", {"T.>": OUTER, "Consumer.>": INNER}),
        ("ActiveMQ.DLQ.Topic.Consumer.A.other", {"": DEFAULTS}),
        (f"ActiveMQ.DLQ.Topic.{CONSUMER}", {"": IN_TOPIC}),
    ],
    ids=[
        *("the topic's own", "a durable subscription's", "a shared queue", "no rule"),
        *("another strategy", "two explanations", "without the topic's name", "in a topic"),
    ],
)
def test_any_other_dead_letter_keeps_its_origin(
    source: str, strategies: Mapping[str, DeadLetterStrategy]
) -> None:
    assert find(source, strategies) == TOPIC


@pytest.mark.parametrize(
    "origin", [queue("orders"), Destination(DestinationKind.TEMP_TOPIC, "ID:orders:1")]
)
def test_a_queue_and_a_temporary_topic_are_what_they_say(origin: Destination) -> None:
    source = f"ActiveMQ.DLQ.Topic.Consumer.A.{origin.name}"
    assert find(source, {"": DEFAULTS}, origin) == origin


def test_without_rules_the_message_is_believed() -> None:
    source = queue(f"ActiveMQ.DLQ.Topic.{CONSUMER}")
    assert DeadLetterNames(None).true_origin(TOPIC, source) == TOPIC
    assert named_origin(TOPIC, source) == TOPIC
