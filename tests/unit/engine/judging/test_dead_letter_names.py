"""The name of a dead-letter queue shows an origin only if one alone explains it."""

import pytest

from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.model.destination import Destination, parse_destination, queue, topic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)

Individual = IndividualDeadLetterStrategy


def rules(*entries: tuple[str, DeadLetterStrategy | None]) -> ClassicRules:
    return ClassicRules(
        dead_letter=DeadLetterRules(
            entries=tuple(
                PolicyEntry(
                    destinations=(parse_destination(pattern),), dead_letter_strategy=strategy
                )
                for pattern, strategy in entries
            )
        )
    )


DLQ = Individual(queue_prefix="DLQ.")
SUFFIXED = Individual(queue_prefix="Dead.", queue_suffix=".failed")
NESTED = rules((">", DLQ), ("orders.>", Individual(queue_prefix="DLQ.orders.")))


@pytest.mark.parametrize(
    ("given", "dead_letter_queue", "origin"),
    [
        (rules((">", DLQ)), "DLQ.a", queue("a")),
        (rules((">", DLQ)), "DLQ.a.b", queue("a.b")),
        (rules((">", DLQ)), "DLQ.", None),
        (rules((">", DLQ)), "DLQ", None),
        (rules((">", DLQ)), "a", None),
        (rules((">", DLQ)), "DLQ.a,b", None),
        (rules((">", DLQ)), "DLQ.a.>", None),
        (rules((">", DLQ)), "ActiveMQ.DLQ", None),
        (rules(("a.>", DLQ)), "DLQ.b", None),
        (rules((">", SUFFIXED)), "Dead.a.failed", queue("a")),
        (rules((">", SUFFIXED)), "Dead.a", None),
        (rules((">", SUFFIXED)), "Dead.failed", None),
        (rules((">", Individual(queue_prefix="", queue_suffix=".DLQ"))), "a.DLQ", queue("a")),
        # A dead-letter queue of a dead-letter queue.
        (rules((">", DLQ)), "DLQ.DLQ.a", queue("DLQ.a")),
        # The more specific entry has the name that the general one would give to another queue.
        (NESTED, "DLQ.orders.orders.a", queue("orders.a")),
        (NESTED, "DLQ.orders.a", None),
        (NESTED, "DLQ.bills", queue("bills")),
        # An exception from the pattern.
        (rules((">", DLQ), ("a", SharedDeadLetterStrategy())), "DLQ.a", None),
        (rules((">", DLQ), ("a", SharedDeadLetterStrategy())), "DLQ.b", queue("b")),
        (
            rules((">", Individual(use_queue_for_queue_messages=False))),
            "ActiveMQ.DLQ.Queue.a",
            None,
        ),
        # Topics.
        (rules(("topic://>", Individual())), "ActiveMQ.DLQ.Topic.t", topic("t")),
        (rules(("topic://>", DLQ), (">", DLQ)), "ActiveMQ.DLQ.Topic.t", None),
        (
            rules(
                ("topic://>", Individual(topic_prefix="D.")), (">", Individual(queue_prefix="D."))
            ),
            "D.a",
            None,
        ),
        (
            rules(("topic://>", Individual(destination_per_durable_subscriber=True))),
            "ActiveMQ.DLQ.Topic.t.client:sub",
            None,
        ),
        # A subscription of one topic, where another one would have the whole name.
        (
            rules(
                (
                    "topic://t",
                    Individual(topic_prefix="D.", destination_per_durable_subscriber=True),
                ),
                (">", Individual(queue_prefix="D.")),
            ),
            "D.t.client:sub",
            None,
        ),
        # A shared queue whose name looks like one of an individual strategy.
        (
            rules(
                (">", DLQ), ("a", SharedDeadLetterStrategy(dead_letter_queue=queue("DLQ.shared")))
            ),
            "DLQ.shared",
            None,
        ),
        (rules((">", Individual(queue_prefix="ActiveMQ."))), "ActiveMQ.DLQ", None),
        # What died in a temporary queue.
        (rules((">", DLQ)), "DLQ.ID:host-37021-1699999999000-1:1:1", None),
        # What a virtual topic with setOriginalDestination="false" leaves in a consumer's queue.
        (rules((">", DLQ)), "ActiveMQ.DLQ.Topic.Consumer.A.v", queue("Consumer.A.v")),
        (rules(), "DLQ.a", None),
    ],
)
def test_the_origin_that_alone_explains_a_name(
    given: ClassicRules, dead_letter_queue: str, origin: Destination | None
) -> None:
    """And none where two do, or none does."""
    assert DeadLetterNames(given).origin_of(queue(dead_letter_queue)) == origin


@pytest.mark.parametrize(
    ("given", "origin", "dead_letter_queue"),
    [
        (rules((">", DLQ)), "a.b", "DLQ.a.b"),
        (rules((">", SUFFIXED)), "a", "Dead.a.failed"),
        (NESTED, "orders.a", "DLQ.orders.orders.a"),
        (rules(("topic://>", Individual())), "topic://t", "ActiveMQ.DLQ.Topic.t"),
        (rules((">", DLQ)), "topic://t", None),
        (rules((">", SharedDeadLetterStrategy())), "a", None),
        (rules((">", DLQ)), "temp-queue://a", None),
        # The name has a second explanation.
        (
            rules(
                ("topic://>", Individual(topic_prefix="D.")), (">", Individual(queue_prefix="D."))
            ),
            "a",
            None,
        ),
    ],
)
def test_the_queue_of_an_origin(
    given: ClassicRules, origin: str, dead_letter_queue: str | None
) -> None:
    """It is only named when its own name leads back."""
    found = DeadLetterNames(given).queue_for(parse_destination(origin))
    assert found == (None if dead_letter_queue is None else queue(dead_letter_queue))


def test_the_operators_word_stands_above_the_rules() -> None:
    """Both ways, with `queue://` in front of a name or without."""
    given = {"queue://ActiveMQ.DLQ": queue("orders"), "DLQ.a": queue("b")}
    told = DeadLetterNames(rules((">", DLQ)), given)
    assert told.origin_of(queue("ActiveMQ.DLQ")) == queue("orders")
    assert told.origin_of(queue("DLQ.a")) == queue("b")
    assert told.queue_for(queue("orders")) == queue("ActiveMQ.DLQ")
    assert told.explains_patterns


def test_without_individual_strategies_no_wildcard_is_explained() -> None:
    """Shared ones say nothing about origins."""
    assert not DeadLetterNames(None).explains_patterns
    assert not DeadLetterNames(rules((">", SharedDeadLetterStrategy()))).explains_patterns


def test_a_default_entry_acts_where_no_pattern_does() -> None:
    """For queues and topics alike."""
    given = ClassicRules(
        dead_letter=DeadLetterRules(
            default_entry=PolicyEntry(destinations=(), dead_letter_strategy=Individual())
        )
    )
    told = DeadLetterNames(given)
    assert told.origin_of(queue("ActiveMQ.DLQ.Queue.a")) == queue("a")
    # A queue of a virtual topic explains it, too.
    assert told.origin_of(queue("ActiveMQ.DLQ.Topic.a")) is None
