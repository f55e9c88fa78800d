"""What an observer says: each dead letter once, by the judge's own verdicts, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.engine import observation
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.observation import ObservationTally, Observed, ObservedDeaths
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver, WrittenLine
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.provenance import Provenance
from amqsidecar.telemetry.logs import LogObserved
from support.virtual_clock import VirtualClock

ORIGINS: Mapping[str, Decision | None] = {
    "orders": Redeliver(500, 1, "again"),
    "last": DeadLetterTo(queue("DLQ"), 0, "gone"),
    "drop": Discard(WrittenLine("dropped", "policy.yaml:7")),
    "unknown": None,
}


class ByOrigin:
    """Rules that know an origin's decision."""

    def decide(self, dead_letter: Any, _chance: object) -> Decision | None:
        return ORIGINS[dead_letter.destination.name]


JUDGE = Judge(
    ByOrigin(),
    SendRules(BrokerKind.CLASSIC, lambda one: one.name == "DLQ", ".exhausted", parks_topics=True),
    lambda: 0.5,
)


def dead(
    message_id: str | None,
    origin: Destination = queue("orders"),  # noqa: B008 - a value
    *,
    count: int = 0,
    handle: object = None,
    body: bytes = b"body",
) -> Delivery:
    provenance = Provenance(origin=origin, message_id=message_id, redelivery_count=count)
    return Delivery(handle, queue("DLQ"), body, provenance, "e/1")


def looked(observing: ObservedDeaths, *deliveries: Delivery) -> list[str]:
    """Return the actions for what one look finds new."""
    observing.begin_look()
    found = observing.look(JUDGE, deliveries, 1000)
    observing.end_look()
    return [item.action for item in found]


def new(**settings: Any) -> ObservedDeaths:
    return ObservedDeaths(**{"holds_backlog": False, "backlog_threshold": 0, **settings})


def test_each_action_is_logged_in_its_words() -> None:
    found = new().look(
        JUDGE, [dead(str(number), queue(name)) for number, name in enumerate(ORIGINS)], 1000
    )
    assert [(one.action, one.destination, one.delay_ms, one.rule) for one in found] == [
        ("redeliver", "queue://orders", 500, "again"),
        ("dead_letter", "queue://DLQ.exhausted", 0, "gone"),
        ("discard", "queue://drop", 0, "dropped (policy.yaml:7)"),
        ("park", "queue://unknown", 0, "no plugin of the chain decided on it"),
    ]
    assert [one.redelivery_count for one in found] == [1, 0, 0, 0]
    assert {one.source for one in found} == {"queue://DLQ"}


def test_a_dead_letter_counts_once_and_its_next_death_again() -> None:
    """Seen or heard of, the id joins them; the count shows a redelivery in between."""
    observing = new()
    assert looked(observing, dead("a"), dead("b")) == ["redeliver"] * 2
    assert looked(observing, dead("a"), dead("b"), dead("c")) == ["redeliver"]
    assert observing.hear(JUDGE, [dead("c")], 1000) == []
    assert len(observing.hear(JUDGE, [dead("d")], 1000)) == 1
    assert looked(observing, dead("d")) == []
    assert looked(observing, dead("a", count=1)) == ["redeliver"]
    assert observing.tally.actions.total() == 5


def test_without_an_id_the_brokers_own_number_or_the_bytes_distinguish_them() -> None:
    observing = new()
    assert len(looked(observing, dead(None, handle=1), dead(None, handle=2))) == 2
    assert looked(observing, dead(None, handle=1)) == []
    assert len(looked(observing, dead(None, body=b"1"), dead(None, body=b"2"))) == 2
    assert looked(observing, dead(None, body=b"1")) == []


def test_what_the_first_look_finds_is_backlog() -> None:
    """Where it is more than the threshold; what dies later is not."""
    observing = new(holds_backlog=True, backlog_threshold=2)
    found = observing.look(JUDGE, [dead("a"), dead("b"), dead("c")], 1000)
    assert [(one.action, one.rule) for one in found] == [("hold", "backlog; again")] * 3
    assert looked(observing, dead("a"), dead("d"), dead("e"), dead("f")) == ["redeliver"] * 3
    assert observing.hear(JUDGE, [dead("g")], 1000)[0].action == "redeliver"
    few = new(holds_backlog=True, backlog_threshold=2)
    assert looked(few, dead("a"), dead("b")) == ["redeliver"] * 2


def test_a_queue_that_was_empty_at_the_first_look_has_no_backlog() -> None:
    observing = new(holds_backlog=True, backlog_threshold=2)
    assert looked(observing) == []
    assert looked(observing, *(dead(str(number)) for number in range(9))) == ["redeliver"] * 9


def test_memory_is_bounded_and_what_is_in_view_is_not_forgotten() -> None:
    observing = new(seen_max=3)
    in_view = [dead(name) for name in "abcde"]
    assert looked(observing, *in_view) == ["redeliver"] * 3
    assert looked(observing, *in_view) == []
    assert observing.skipped_count == 4
    assert looked(observing, dead("x")) == ["redeliver"]
    assert looked(observing, dead("x"), dead("c")) == []
    assert looked(observing, dead("a")) == ["redeliver"], "it went first, and was forgotten"


def item(action: str = "redeliver", **fields: Any) -> Observed:
    plain = Observed(
        action=action,
        message_id="ID:1",
        source="queue://DLQ",
        origin="queue://orders",
        destination="queue://orders",
        redelivery_count=1,
        delay_ms=1000,
        rule="rule",
    )
    return msgspec.structs.replace(plain, **fields)


def test_the_sentence_sums_up_what_would_happen() -> None:
    tally = ObservationTally()
    assert tally.sentence() == "no dead letter was seen"
    tally.add([item()] * 3)
    assert tally.sentence() == "would have re-sent 3 of 3 after 1 s"
    tally.add(
        [item(delay_ms=5500), item("park", rule="no origin"), item("hold", rule="backlog; x")]
    )
    tally.add([item("discard"), item("dead_letter"), item("park", rule="no origin")])
    assert tally.sentence() == (
        "would have re-sent 4 of 9 after 1 s to 5.5 s, 1 moved to a final dead-letter queue, "
        "1 discarded, 1 held, 2 parked; because: no origin (2); backlog (1)"
    )


def test_strangers_names_and_reasons_take_bounded_memory() -> None:
    tally = ObservationTally()
    tally.add([item("park", destination=f"queue://{n}", rule=f"r{n}") for n in range(1000)])
    assert len(tally.destinations) == observation._NAMES_MAX + 1
    assert tally.destinations["others"]["park"] == 1000 - observation._NAMES_MAX
    assert len(tally.reasons) == observation._REASONS_MAX + 1
    assert tally.reasons.total() == 1000


class Lines:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    warning = info


def test_the_log_has_a_bounded_number_of_lines_a_second_and_counts_the_others() -> None:
    clock, lines = VirtualClock(), Lines()
    logs = LogObserved(clock, 2, lines, gates_at=lambda where: (f"pace: at {where.name}",))
    logs.observe([item(), item("park", rule="x" * 1000), item()])
    clock.advance(999)
    logs.observe([item()])
    clock.advance(1)
    logs.observe([item("discard")])
    assert [event for event, _ in lines.lines] == ["would_redeliver", "would_park", "would_discard"]
    assert lines.lines[0][1] == {
        "message_id": "ID:1",
        "source": "queue://DLQ",
        "origin": "queue://orders",
        "destination": "queue://orders",
        "delay_ms": 1000,
        "redelivery_count": 1,
        "gates": ["pace: at orders"],
        "rule": "rule",
    }
    assert len(str(lines.lines[1][1]["reason"])) == 200
    assert "gates" not in lines.lines[1][1]
    tally = ObservationTally()
    tally.add([item(), item(destination="topic://t"), item("park", destination="topic://t")])
    logs.summary(tally)
    event, fields = lines.lines[-1]
    assert event == "observed"
    assert (fields["would_redeliver"], fields["would_park"], fields["lines_left_out"]) == (2, 1, 2)
    assert fields["destinations"] == {
        "topic://t": {"redeliver": 1, "park": 1},
        "queue://orders": {"redeliver": 1},
    }


def test_a_topic_is_parked_as_a_cycle_would() -> None:
    assert looked(new(), dead("a", topic("orders"))) == ["park"]
