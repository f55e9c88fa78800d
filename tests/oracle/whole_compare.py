"""Compares what became of each message on both brokers; every difference is documented, or a fault.

The numbers are those of the table in `sidecar/amqsidecar/policy/README.md`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle, pairwise
from typing import Any

from amqsidecar.model.destination import queue
from amqsidecar.model.sidecar_names import PROPERTY_ORIGINAL_MESSAGE_ID, PROPERTY_REDELIVERY_COUNT
from amqsidecar.policy.classic_rules import DiscardingDeadLetterStrategy
from amqsidecar.policy.dead_letter_decider import find_dead_letter_queue
from amqsidecar.policy.redelivery_policy import DelayTable
from oracle.whole_configuration import COPIED, FILTERED, PERSISTED, Configuration, copy_of
from oracle.whole_run import CONSUMED, PARKED, Side, Story
from support.jms.message import Delivery, JmsMessage

FINAL_SUFFIX = ".exhausted"
JOB = "scheduledJobId"
DELAY = "property redeliveryDelay"
COUNT = "delivery count"
LEFT_OVER_NAMES = ("dlqDeliveryFailureCause", "original-destination", "originalDeliveryMode")
# Why pairs: the direction is drawn, then the distance.
SHORTEST, LONGEST = (0.9, 1.0), (0.0, 1.0)
MARKS = re.compile(r"property (amqsidecar\w+|scheduledJobId|AMQ_SCHEDULED_\w+)")


@dataclass(frozen=True)
class Case:
    """One message in one queue, on both brokers.

    Attributes:
        plugin, sidecar: what became of it with the plugins, and with the sidecar.
        forwarded_jobs: ids of the plugins' redeliveries to the composite that forwards to `queue`.
    """

    configuration: Configuration
    queue: str
    test_id: str
    sent: tuple[JmsMessage, JmsMessage]
    plugin: Story
    sidecar: Story
    forwarded_jobs: Set[str] = frozenset()

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
            _forwarded_jobs(plugin, name, test_id),
        )
        report.messages += 1
        report.deliveries += len(story.deliveries)
        for at, one in enumerate((case.plugin, case.sidecar)):
            late_ms = lateness_ms(one)
            report.late_ms[at].extend(late_ms)
            report.faults += [f"{case}: {-ms} ms early" for ms in late_ms if ms < 0]
        differences = differences_of(case)
        if not differences:
            report.same += 1
        elif rows := rows_of(case):
            report.documented[rows] += 1
        else:
            report.faults += [f"{case}: {one}" for one in differences]
    return report


def _forwarded_jobs(plugin: Side, name: str, test_id: str) -> Set[str]:
    """Return the ids of the redeliveries to a composite that also forwards to this queue."""
    origins = [one for one in (COPIED, FILTERED) if copy_of(one) == name]
    if not origins:
        return frozenset()
    [origin] = origins
    story = plugin.stories[origin, test_id]
    again = story.deliveries[len(first_round(story)) :]
    return {_mark(one)[1] for one in again}


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
    """Return whether collision avoidance may have given both delays."""
    possible = [
        [table.delay_ms(count, cycle(drawn).__next__) for drawn in (SHORTEST, LONGEST)]
        for policy in case.configuration.policies_of(case.queue)
        if policy.use_collision_avoidance
        for table in [DelayTable(policy)]
        for count in range(5)
    ]
    return all(
        delay is not None and any(low <= delay[1] <= high for low, high in possible)
        for delay in delays
    )


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


# What is documented. A row that applies to a case says how it must be altered, and which fields be
# left out, so that nothing else is left of its difference; None = it does not apply.

Row = Callable[[Case], tuple[Case, Sequence[str]] | None]


def rows_of(case: Case) -> str | None:
    """Return the fewest rows that explain a difference wholly, such as `4` or `11+20`."""
    for count in range(1, len(ROWS) + 1):
        for names in combinations(ROWS, count):
            if _explain(case, [ROWS[name] for name in names]):
                return "+".join(names)
    return None


def _explain(case: Case, rows: Sequence[Row]) -> bool:
    ignored: list[str] = []
    for row in rows:
        applied = row(case)
        if applied is None:
            return False
        case, fields = applied
        ignored += fields
    return not differences_of(case, *ignored)


def _row_4(case: Case) -> tuple[Case, Sequence[str]] | None:
    """The broker counts the first dispatch: one redelivery less, with later delays."""
    less = len(case.sidecar.deliveries) - len(case.plugin.deliveries)
    is_counted = case.queue == PERSISTED and "persistJMS" in case.configuration.destination_policy
    if not is_counted or less not in (0, 1) or (less and case.plugin.ends == [CONSUMED]):
        return None
    if less:
        case = replace(
            case,
            plugin=replace(case.plugin, ends=[], dead=[]),
            sidecar=Story(case.sidecar.deliveries[:-1], []),
        )
    return case, (COUNT, DELAY, "JMSRedelivered")


def _row_11(case: Case) -> tuple[Case, Sequence[str]] | None:
    """The `expiration` of a strategy hides the time to live."""
    strategy = case.configuration.strategy_of(case.queue)
    if strategy.expiration_ms <= 0 or not case.sent[0].headers["JMSExpiration"]:
        return None
    return case, ("JMSExpiration", "JMSTimestamp")


def _row_16(case: Case) -> tuple[Case, Sequence[str]] | None:
    """The strategy keeps no such message in a queue, so the sidecar never sees it."""
    strategy = case.configuration.strategy_of(case.queue)
    dead_letters = find_dead_letter_queue(strategy, queue(case.queue), None)
    is_persistent = case.sent[0].headers["JMSDeliveryMode"] == 2
    is_kept = not isinstance(strategy, DiscardingDeadLetterStrategy) and (
        is_persistent or strategy.process_non_persistent
    )
    is_seen = is_kept and dead_letters is not None and dead_letters.is_queue
    ends = [str(dead_letters)] if is_kept else []
    if is_seen or case.sidecar.ends != ends:
        return None
    plugin = Story(first_round(case.plugin), ends)
    return replace(case, plugin=plugin, sidecar=replace(case.sidecar, dead=[])), ()


def _row_20(case: Case) -> tuple[Case, Sequence[str]] | None:
    """What a producer wrote under the broker's names is gone from redeliveries."""
    sent = case.sent[0]
    names = {name for name in LEFT_OVER_NAMES if sent.value(name) is not None}
    again = [one.message for one in case.sidecar.deliveries[len(first_round(case.sidecar)) :]]
    if not names or any(one and one.value(name) is not None for one in again for name in names):
        return None
    fields = [f"property {name}" for name in sorted(names)]
    strategy = case.configuration.strategy_of(case.queue)
    if "originalDeliveryMode" in names and strategy.process_non_persistent:
        fields.append("JMSDeliveryMode")
    return case, fields


def _row_26(case: Case) -> tuple[Case, Sequence[str]] | None:
    """A composite forwards each redelivery: the sidecar parks instead, the plugins copy again."""
    first, again = first_round(case.plugin), case.plugin.deliveries
    if case.queue == COPIED and case.sidecar.ends == [PARKED] and len(again) > len(first):
        return replace(case, plugin=Story(first), sidecar=Story(case.sidecar.deliveries)), ()
    once = [one for one in again if _mark(one)[1] not in case.forwarded_jobs]
    if len(once) == len(again) or case.plugin.ends != [CONSUMED] * len(again):
        return None
    return replace(case, plugin=Story(once, [CONSUMED] * len(once))), ()


ROWS: Mapping[str, Row] = {
    "4": _row_4,
    "11": _row_11,
    "16": _row_16,
    "20": _row_20,
    "26": _row_26,
}
