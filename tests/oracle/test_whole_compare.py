"""The comparison of whole brokers finds what is planted, one field after the other."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    IndividualDeadLetterStrategy,
    PluginRules,
    PolicyEntry,
    RedeliveryPolicy,
    RedeliveryRules,
)
from oracle.whole_compare import compare
from oracle.whole_configuration import COPIED, Configuration, copy_of, generate
from oracle.whole_run import CONSUMED, PARKED, Side, Story
from support.jms.message import Delivery, JmsMessage

QUEUE, DEAD = "bills.eu", "ActiveMQ.DLQ"
SENT_AT_MS = 1_000_000
TTL_MS = 60_000


def _message(message_id: str, at_ms: int, properties: dict[str, Any], **headers: Any) -> JmsMessage:
    return JmsMessage(
        type="Text",
        java_class="ActiveMQTextMessage",
        body="body",
        body_error=None,
        headers={
            "JMSMessageID": message_id,
            "JMSTimestamp": at_ms,
            "JMSExpiration": at_ms + TTL_MS,
            "JMSDestination": f"queue://{QUEUE}",
            "JMSDeliveryMode": 2,
            "JMSPriority": 4,
            "JMSRedelivered": at_ms != SENT_AT_MS,
            **headers,
        },
        properties={"testId": ["String", "m0"], "p": ["Integer", 7], **properties},
        group_id="g",
        group_seq=3,
        delivery_count=1,
        received_at_ms=at_ms,
    )


def _side(marks: dict[str, Any], again_id: str, final: str, wait_ms: int) -> Side:
    """Return a message that was redelivered once after 1000 ms and then given up."""
    delay = {"redeliveryDelay": ["Long", 1000]}
    sent = _message("ID:1", SENT_AT_MS, {})
    again_at_ms = SENT_AT_MS + wait_ms
    again = _message(again_id, again_at_ms, marks | delay)
    ended = {"originalExpiration": ["Long", again_at_ms + TTL_MS]}
    place = {"JMSDestination": f"queue://{final}", "JMSExpiration": 0}
    dead = _message(again_id, again_at_ms, marks | delay | ended, **place)
    deliveries = [
        Delivery("failing", at_ms=one.received_at_ms, id="m0", message=one) for one in (sent, again)
    ]
    return Side({"m0": sent}, {(QUEUE, "m0"): Story(deliveries, [final], [dead])})


def _sides() -> tuple[Configuration, Side, Side]:
    ours = {
        "amqsidecarRedeliveryCount": ["Integer", 1],
        "amqsidecarOriginalMessageId": ["String", "ID:1"],
    }
    return (
        # Why no rules: then no row of the table explains anything.
        replace(generate(0), rules=ClassicRules()),
        _side({"scheduledJobId": ["String", "job"]}, "ID:1", DEAD, 1400),
        _side(ours, "ID:amqsidecar:1", f"{DEAD}.exhausted", 1010),
    )


def test_what_every_redelivery_has_is_no_difference() -> None:
    """New ids, marks, the end beside the dead-letter queue, and the clock."""
    report = compare(*_sides())
    assert (report.same, report.faults, dict(report.documented)) == (1, [], {})
    assert report.late_ms == ([400], [10])


def _delivered(**changes: Any) -> Callable[[Story], None]:
    def alter(story: Story) -> None:
        last = story.deliveries[-1]
        assert last.message is not None
        story.deliveries[-1] = replace(last, message=replace(last.message, **changes))

    return alter


def _header(**changes: Any) -> Callable[[Story], None]:
    def alter(story: Story) -> None:
        message = story.deliveries[-1].message
        assert message is not None
        _delivered(headers={**message.headers, **changes})(story)

    return alter


def _property(name: str, value: Any) -> Callable[[Story], None]:
    def alter(story: Story) -> None:
        message = story.deliveries[-1].message
        assert message is not None
        _delivered(properties={**message.properties, name: value})(story)

    return alter


def _early(story: Story) -> None:
    story.deliveries[-1] = replace(story.deliveries[-1], at_ms=SENT_AT_MS + 999)


def _ends(*places: str) -> Callable[[Story], None]:
    def alter(story: Story) -> None:
        story.ends[:] = places

    return alter


def _dead_body(story: Story) -> None:
    story.dead[0] = replace(story.dead[0], body="bodz")


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (lambda story: story.deliveries.pop(), "1 with the sidecar"),
        (lambda story: story.deliveries.append(story.deliveries[-1]), "3 with the sidecar"),
        (_early, "1 ms early"),
        (_delivered(body="bodz"), "delivery 1: body"),
        (_delivered(type="Bytes"), "delivery 1: type"),
        (_delivered(group_seq=4), "delivery 1: group sequence"),
        (_delivered(delivery_count=2), "delivery 1: delivery count"),
        (_header(JMSPriority=5), "delivery 1: JMSPriority"),
        (_header(JMSRedelivered=False), "delivery 1: JMSRedelivered"),
        (_header(JMSExpiration=0), "delivery 1: JMSExpiration"),
        (_header(JMSTimestamp=SENT_AT_MS), "delivery 1: JMSTimestamp"),
        (_property("p", ["Long", 7]), "delivery 1: property p"),
        (_property("more", ["String", ""]), "delivery 1: property more"),
        (_property("redeliveryDelay", ["Long", 1001]), "delivery 1: property redeliveryDelay"),
        (_property("amqsidecarOriginalMessageId", ["String", "ID:2"]), "delivery 1: JMSMessageID"),
        (_ends(), "ends in ['ActiveMQ.DLQ'] with the plugins, in [] with"),
        (_ends(CONSUMED), "in ['consumed'] with"),
        (_ends(DEAD), "left there"),
        (_ends(f"{DEAD}.exhausted", f"{DEAD}.exhausted"), "['ActiveMQ.DLQ', 'ActiveMQ.DLQ']"),
        (_dead_body, "in the end: body"),
    ],
)
def test_what_is_planted_is_found(alter: Callable[[Story], None], words: str) -> None:
    """A fault, and no row of the table explains it."""
    configuration, plugin, sidecar = _sides()
    altered = deepcopy(sidecar.stories[QUEUE, "m0"])
    alter(altered)
    report = compare(configuration, plugin, replace(sidecar, stories={(QUEUE, "m0"): altered}))
    assert any(words in fault for fault in report.faults), report.faults


def _individual(**attributes: Any) -> ClassicRules:
    strategy = IndividualDeadLetterStrategy(**attributes)
    entry = PolicyEntry(destinations=(queue(QUEUE),), dead_letter_strategy=strategy)
    return ClassicRules(dead_letter=DeadLetterRules(entries=(entry,)))


def test_row_11_explains_a_lost_time_to_live_and_nothing_else() -> None:
    """Where the strategy has an expiration; another field beside it is a fault."""
    configuration, plugin, sidecar = _sides()
    hides = replace(configuration, rules=_individual(expiration_ms=5))
    story = sidecar.stories[QUEUE, "m0"]
    _header(JMSExpiration=0, JMSTimestamp=SENT_AT_MS)(story)
    assert dict(compare(hides, plugin, sidecar).documented) == {"11": 1}
    assert compare(configuration, plugin, sidecar).faults
    _delivered(body="bodz")(story)
    assert compare(hides, plugin, sidecar).faults


def test_row_16_explains_what_never_reaches_a_queue_and_nothing_else() -> None:
    """Where dead letters go to a topic: one round, nothing after it, and the same until then."""
    configuration, plugin, sidecar = _sides()
    to_topic = replace(configuration, rules=_individual(use_queue_for_queue_messages=False))
    story = sidecar.stories[QUEUE, "m0"]
    again = story.deliveries.pop()
    story.dead.clear()
    _ends(f"topic://ActiveMQ.DLQ.Queue.{QUEUE}")(story)
    assert dict(compare(to_topic, plugin, sidecar).documented) == {"16": 1}
    assert compare(configuration, plugin, sidecar).faults
    story.deliveries.append(again)
    assert compare(to_topic, plugin, sidecar).faults


def test_row_26_explains_what_is_parked_and_what_is_forwarded_again_and_nothing_else() -> None:
    """A message that is neither sent nor parked is a fault, and so is any other second copy."""
    configuration, plugin, sidecar = _sides()
    origin, parked = plugin.stories[QUEUE, "m0"], sidecar.stories[QUEUE, "m0"]
    first, job = parked.deliveries[0], origin.deliveries[-1]
    parked = Story([first], [PARKED])
    copies, copy = Story([first, job], [CONSUMED, CONSUMED]), Story([first], [CONSUMED])

    def found() -> tuple[dict[str, int], int]:
        """Return rows and faults of the composite and of the queue to which it forwards."""
        names = [(COPIED, "m0"), (copy_of(COPIED), "m0")]
        stories = [dict(zip(names, one, strict=True)) for one in ((origin, copies), (parked, copy))]
        sides = [
            replace(one, stories=two) for one, two in zip((plugin, sidecar), stories, strict=True)
        ]
        report = compare(configuration, *sides)
        return dict(report.documented), len(report.faults)

    assert found() == ({"26": 2}, 0)
    parked.ends.clear()
    assert found()[0] == {"26": 1}
    _property("scheduledJobId", ["String", "other"])(copies)
    assert found()[0] == {}


@pytest.mark.parametrize(("delay_ms", "is_possible"), [(901, True), (899, False), (1101, False)])
def test_chance_explains_what_it_can_give(delay_ms: int, is_possible: bool) -> None:
    """Ten percent more or less than 1000 ms, and no more."""
    configuration, plugin, sidecar = _sides()
    policy = RedeliveryPolicy(use_collision_avoidance=True, collision_avoidance_percent=10)
    options = RedeliveryRules(default_entry=policy)
    varied = ClassicRules(plugins=(PluginRules(name="redelivery", options=options),))
    _property("redeliveryDelay", ["Long", delay_ms])(sidecar.stories[QUEUE, "m0"])
    report = compare(replace(configuration, rules=varied), plugin, sidecar)
    assert (report.same == 1) is is_possible
