"""Compares what became of each message on both brokers; every difference is documented, or a fault.

The numbers are those of the table in `sidecar/amqsidecar/policy/README.md`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from amqsidecar.broker import PROPERTY_ORIGINAL_MESSAGE_ID, PROPERTY_REDELIVERY_COUNT
from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import DiscardingDeadLetterStrategy
from amqsidecar.policy.dead_letter_decider import find_dead_letter_queue
from oracle.whole_configuration import PERSISTED, Configuration
from oracle.whole_run import CONSUMED, Side, Story
from support.jms_message import Delivery, JmsMessage

FINAL_SUFFIX = ".exhausted"
JOB = "scheduledJobId"
DELAY = "property redeliveryDelay"
COUNT = "delivery count"
HIDDEN = ("JMSExpiration", "JMSTimestamp")
MARKS = re.compile(r"property (amqsidecar\w+|scheduledJobId|AMQ_SCHEDULED_\w+)")


@dataclass(frozen=True)
class Case:
    """One message in one queue, on both brokers.

    Attributes:
        plugin, sidecar: what became of it with the plugins, and with the sidecar.
    """

    configuration: Configuration
    queue: str
    test_id: str
    sent: tuple[JmsMessage, JmsMessage]
    plugin: Story
    sidecar: Story

    @property
    def is_persistent(self) -> bool:
        return self.sent[0].headers["JMSDeliveryMode"] == 2

    def __str__(self) -> str:
        return f"{self.test_id} in {self.queue}"


@dataclass
class Report:
    """What a comparison found.

    Attributes:
        deliveries: those with the plugins; each was compared with its counterpart.
        same: messages alike but for the marks that every redelivery has.
        documented: messages that differ, by row of the table.
        faults: everything else, in words.
        late_ms: how much later than the rule's delay, with the plugins and with the sidecar.
    """

    messages: int = 0
    deliveries: int = 0
    same: int = 0
    documented: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    late_ms: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


def compare(configuration: Configuration, plugin: Side, sidecar: Side) -> Report:
    """Return the report on one configuration."""
    report = Report()
    for (name, test_id), story in plugin.stories.items():
        case = Case(
            configuration,
            name,
            test_id,
            (plugin.sent[test_id], sidecar.sent[test_id]),
            story,
            sidecar.stories[name, test_id],
        )
        report.messages += 1
        report.deliveries += len(story.deliveries)
        for at, one in enumerate((case.plugin, case.sidecar)):
            late_ms = lateness_ms(one)
            report.late_ms[at].extend(late_ms)
            report.faults += [f"{case}: {-ms} ms early" for ms in late_ms if ms < 0]
        differences = differences_of(case)
        row = next((row for row, explains in ROWS.items() if explains(case)), None)
        if not differences:
            report.same += 1
        elif row is not None:
            report.documented[row] += 1
        else:
            report.faults += [f"{case}: {one}" for one in differences]
    return report


# Rounds: one of the broker's, in which the client may try several times by itself.


def _mark(delivery: Delivery) -> tuple[Any, Any]:
    message = delivery.message
    assert message is not None
    return message.value(PROPERTY_REDELIVERY_COUNT), message.value(JOB)


def _is_redelivery(before: Delivery, after: Delivery) -> bool:
    return _mark(before) != _mark(after)


def first_round(story: Story) -> list[Delivery]:
    """Return what applications were handed before the first redelivery."""
    for at, (before, after) in enumerate(pairwise(story.deliveries), start=1):
        if _is_redelivery(before, after):
            return story.deliveries[:at]
    return story.deliveries


def lateness_ms(story: Story) -> list[int]:
    """Return for each redelivery by how much it came later than its rule says; below 0 = early."""
    found = []
    for before, after in pairwise(story.deliveries):
        if _is_redelivery(before, after):
            assert after.message is not None
            found.append(after.at_ms - before.at_ms - int(after.message.value("redeliveryDelay")))
    return found


# Differences.


def differences_of(case: Case, *ignored: str) -> list[str]:
    """Return in what the two stories differ, but for the marks; a field may be left out."""
    found = []
    counts = len(case.plugin.deliveries), len(case.sidecar.deliveries)
    if counts[0] != counts[1]:
        found.append(f"{counts[0]} deliveries with the plugins, {counts[1]} with the sidecar")
    ends = case.plugin.ends, [_end(one) for one in case.sidecar.ends]
    if ends[0] != ends[1]:
        found.append(f"ends in {ends[0]} with the plugins, in {ends[1]} with the sidecar")
    for at, pair in enumerate(zip(case.plugin.deliveries, case.sidecar.deliveries, strict=False)):
        fields = [
            _delivered(delivery.message, sent)
            for delivery, sent in zip(pair, case.sent, strict=True)
        ]
        found += _differing(f"delivery {at}", case, fields, ignored)
    for dead in zip(case.plugin.dead, case.sidecar.dead, strict=False):
        fields = [_ended(one, sent) for one, sent in zip(dead, case.sent, strict=True)]
        found += _differing("in the end", case, fields, ignored)
    return found


def _end(place: str) -> str:
    """Return the dead-letter queue that the rules name, of the one where the sidecar puts it."""
    if place == CONSUMED or place.startswith("topic://"):
        return place
    if place.endswith(FINAL_SUFFIX):
        return place.removesuffix(FINAL_SUFFIX)
    return f"{place}, left there"


def _differing(
    where: str, case: Case, fields: Sequence[Mapping[str, Any]], ignored: Sequence[str]
) -> list[str]:
    plugin, sidecar = fields
    return [
        f"{where}: {name}: {plugin.get(name, 'missing')!r} with the plugins, "
        f"{sidecar.get(name, 'missing')!r} with the sidecar"
        for name in sorted(plugin.keys() | sidecar.keys())
        if name not in ignored
        and plugin.get(name, "missing") != sidecar.get(name, "missing")
        and not (name == DELAY and _is_by_chance(case, plugin.get(name), sidecar.get(name)))
    ]


def _is_by_chance(case: Case, *delays: Any) -> bool:
    """Tell whether collision avoidance explains two delays; it adds less than half at each step."""
    is_varied = any(
        policy.use_collision_avoidance for policy in case.configuration.policies_of(case.queue)
    )
    return is_varied and all(one is not None and 500 <= one[1] <= 10_000 for one in delays)


def _delivered(message: JmsMessage | None, sent: JmsMessage) -> dict[str, Any]:
    assert message is not None
    fields = _fields(message, sent)
    headers = message.headers
    if headers["JMSExpiration"]:
        fields["JMSExpiration"] = headers["JMSExpiration"] - headers["JMSTimestamp"]
    return fields


def _ended(message: JmsMessage, sent: JmsMessage) -> dict[str, Any]:
    fields = _fields(message, sent)
    # Why: the place is compared already; and the last delay says nothing any more.
    for name in ("JMSDestination", DELAY):
        fields.pop(name, None)
    if message.headers["JMSExpiration"]:
        fields["JMSExpiration"] = "set"
    original_ms = message.value("originalExpiration")
    if original_ms:
        fields["property originalExpiration"] = original_ms - message.headers["JMSTimestamp"]
    return fields


def _fields(message: JmsMessage, sent: JmsMessage) -> dict[str, Any]:
    """Return the fields of a message in words that are the same on both brokers."""
    fields = {name: value for name, value in message._fields().items() if not MARKS.match(name)}
    ids = message.message_id, message.value(PROPERTY_ORIGINAL_MESSAGE_ID)
    fields["JMSMessageID"] = "as sent" if sent.message_id in ids else ids
    if message.headers["JMSTimestamp"] == sent.headers["JMSTimestamp"]:
        fields["JMSTimestamp"] = "as sent"
    elif message.headers["JMSTimestamp"] > sent.headers["JMSTimestamp"]:
        fields["JMSTimestamp"] = "later"
    fields[COUNT] = message.delivery_count
    cause = message.value("dlqDeliveryFailureCause")
    if cause is not None:
        cause = cause.replace(str(sent.headers["JMSExpiration"]), "EXPIRATION")
        fields["property dlqDeliveryFailureCause"] = re.sub(r"ID:\S+", "ID", cause)
    return fields


# What is documented. Each tells whether the whole case is as its row says, not only alike.


def _first_rounds_alike(case: Case) -> bool:
    ends = case.sidecar.ends
    return not differences_of(
        replace(
            case,
            plugin=Story(first_round(case.plugin), ends),
            sidecar=replace(case.sidecar, dead=[]),
        )
    )


def _is_counted_by_the_broker(case: Case) -> bool:
    """Row 4: the first dispatch counts, so that there is one redelivery less, with later delays."""
    less = len(case.sidecar.deliveries) - len(case.plugin.deliveries)
    is_counted = case.queue == PERSISTED and "persistJMS" in case.configuration.destination_policy
    if not is_counted or less not in (0, 1):
        return False
    alike = case
    if less:
        alike = replace(
            case,
            plugin=replace(case.plugin, ends=[], dead=[]),
            sidecar=Story(case.sidecar.deliveries[:-1], []),
        )
        if case.plugin.ends == [CONSUMED]:
            return False
    hidden = HIDDEN if _hides_time_to_live(case) else ()
    return not differences_of(alike, COUNT, DELAY, "JMSRedelivered", *hidden)


def _hides_time_to_live(case: Case) -> bool:
    """Row 11: the `expiration` of a strategy hides the time to live."""
    strategy = case.configuration.strategy_of(case.queue)
    return strategy.expiration_ms > 0 and case.sent[0].headers["JMSExpiration"] > 0


def _loses_its_time_to_live(case: Case) -> bool:
    return _hides_time_to_live(case) and not differences_of(case, *HIDDEN)


def _never_reaches_a_queue(case: Case) -> bool:
    """Row 16: the strategy keeps no such message in a queue, so the sidecar never sees it."""
    strategy = case.configuration.strategy_of(case.queue)
    dead_letters = find_dead_letter_queue(strategy, queue(case.queue), None)
    is_kept = not isinstance(strategy, DiscardingDeadLetterStrategy) and (
        case.is_persistent or strategy.process_non_persistent
    )
    if is_kept and dead_letters is not None and dead_letters.is_queue:
        return False
    ends = [str(dead_letters)] if is_kept else []
    return case.sidecar.ends == ends and _first_rounds_alike(case)


ROWS: Mapping[str, Callable[[Case], bool]] = {
    "4": _is_counted_by_the_broker,
    "11": _loses_its_time_to_live,
    "16": _never_reaches_a_queue,
}
