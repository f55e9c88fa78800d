"""Metrics count events, a batch at a time, with bounded labels."""

import math
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from amqsidecar import __version__
from amqsidecar.clock import ClockStep
from amqsidecar.model.destination import queue
from amqsidecar.model.event import (
    AnyEvent,
    CycleInDoubt,
    DeadLettered,
    DestinationBlocked,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
    Scheduled,
)
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import GateTally, RowState, Tally
from amqsidecar.operations.status import sidecar_status
from amqsidecar.telemetry.health import Health, Readiness
from amqsidecar.telemetry.listener_metrics import ListenerMetrics
from amqsidecar.telemetry.metrics import Metrics, rule_kind
from amqsidecar.telemetry.metrics_table import LISTENER_METRICS, OTHER
from amqsidecar.wiring.parts import owner_of
from support.histories.journal_rows import KINDS, filled
from support.virtual_clock import VirtualClock

QUEUE = "queue://orders"


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return every sample of ours by its name and the values of its labels."""
    text = metrics.render()[0].decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("amqsidecar_")
    }


def received(origin: str | None = QUEUE) -> Received:
    return Received(at_ms=1, source="queue://DLQ", origin=origin)


def resent(lateness_ms: int, destination: str = QUEUE) -> Resent:
    return Resent(at_ms=1, destination=destination, redelivery_count=1, lateness_ms=lateness_ms)


def tally(destination: str, state: RowState, count: int) -> Tally:
    return Tally(destination=destination, state=state, count=count)


REDELIVERY = 'redeliveryPolicy queue="A" (activemq.xml:3)'

COUNTED: list[tuple[Callable[[], AnyEvent], list[tuple[str, tuple[str, ...]]]]] = [
    (received, [("dead_letters_received_total", (QUEUE,))]),
    (lambda: received(None), [("dead_letters_received_total", ("queue://DLQ",))]),
    (
        lambda: Returned(at_ms=1, source="queue://DLQ", origin=QUEUE),
        [("dead_letters_received_total", (QUEUE,))],
    ),
    (
        lambda: Scheduled(
            at_ms=1,
            destination=QUEUE,
            delay_ms=1,
            due_at_ms=2,
            redelivery_count=1,
            rule=REDELIVERY,
        ),
        [("scheduled_total", ()), ("decisions_total", ("redeliver", "redelivery"))],
    ),
    (
        lambda: Exhausted(at_ms=1, destination=QUEUE, rule="sharedDeadLetterStrategy (a.xml:1)"),
        [("exhausted_total", (QUEUE,)), ("decisions_total", ("dead_letter", "dead_letter"))],
    ),
    (
        lambda: Discarded(at_ms=1, destination=QUEUE, rule="discardingDLQBrokerPlugin dropAll"),
        [("discarded_total", (QUEUE,)), ("decisions_total", ("discard", "discarding"))],
    ),
    (
        lambda: Parked(at_ms=1, destination=QUEUE, reason="no origin"),
        [("decisions_total", ("park", "sidecar"))],
    ),
    (
        lambda: Held(at_ms=1, destination=QUEUE, reason="backlog"),
        [("decisions_total", ("hold", "sidecar"))],
    ),
    (lambda: Held(at_ms=1, destination=QUEUE, reason="held", actor="cli:me"), []),
    (lambda: resent(0), [("resent_total", (QUEUE,))]),
    (
        lambda: CycleInDoubt(at_ms=1, cycle=1, taken_count=1, sent_count=1, reason="no token"),
        [("cycles_in_doubt_total", ())],
    ),
    (
        lambda: CycleInDoubt(at_ms=1, cycle=1, taken_count=0, sent_count=0, reason="set back"),
        [("cycles_in_doubt_total", ())],
    ),
    (
        lambda: CycleInDoubt(
            at_ms=1, cycle=1, taken_count=0, sent_count=0, reason="gone", token_is_missing=True
        ),
        [("tokens_missing_total", ())],
    ),
]
_COUNTED_KINDS = {type(make()) for make, _ in COUNTED}
COUNTED += [(partial(filled, kind), []) for kind in KINDS if kind not in _COUNTED_KINDS]


def test_what_is_exhausted_counts_where_it_died_and_not_where_it_goes() -> None:
    metrics = Metrics()
    died = Received(at_ms=1, id=7, source="queue://DLQ", origin=QUEUE)
    final = "queue://DLQ.exhausted"
    metrics.observe([died, Exhausted(at_ms=1, id=7, destination=final, rule="a (b:1)")])
    assert metrics.labelled("amqsidecar_exhausted_total") == {(QUEUE,): 1}


@pytest.mark.parametrize(("make", "expected"), COUNTED)
def test_an_event_counts_where_the_table_says(
    make: Callable[[], AnyEvent], expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    metrics = Metrics()
    before = scrape(metrics)
    metrics.observe([make(), make()])
    grown = {
        key
        for key, value in scrape(metrics).items()
        if value != before.get(key, 0) and not key[0].startswith("amqsidecar_lateness")
    }
    assert grown == {(f"amqsidecar_{name}", labels) for name, labels in expected}
    assert all(metrics.value(name, *labels) == 2 for name, labels in grown)


def test_operations_count_by_action() -> None:
    metrics = Metrics()
    metrics.set_value("amqsidecar_operations_running", 2)
    metrics.operations_changed(Action.RETRY, 5, 1)
    metrics.operations_changed(Action.RETRY, 2, 3)
    metrics.operations_changed(Action.HOLD, 1, 0)
    samples = scrape(metrics)
    assert samples["amqsidecar_operations_running", ()] == 2
    assert samples["amqsidecar_operation_messages_total", ("retry",)] == 7
    assert samples["amqsidecar_operation_came_back_total", ("retry",)] == 4
    assert samples["amqsidecar_operation_messages_total", ("hold",)] == 1


def test_new_causes_are_those_that_were_reported_last() -> None:
    metrics = Metrics(destination_limit=1)
    metrics.set_new_causes({"queue://old": 3})
    metrics.set_new_causes({QUEUE: 2, "queue://B": 1})
    assert metrics.labelled("amqsidecar_new_causes") == {(OTHER,): 3}


def test_a_destination_names_the_team_whose_pattern_is_the_most_precise() -> None:
    teams = {"orders.>": "team-a", "orders.vip": "team-b", "topic://orders.>": "team-c"}
    metrics = Metrics(owner_of=owner_of(teams))
    of = ("queue://orders.new", "queue://orders.vip", "topic://orders.new", "queue://others")
    metrics.set_new_causes(dict.fromkeys(of, 1))
    assert metrics.labelled("amqsidecar_destination_owner") == {
        ("queue://orders.new", "team-a"): 1,
        ("queue://orders.vip", "team-b"): 1,
        ("topic://orders.new", "team-c"): 1,
    }


def blocked(at_ms: int, wait_ms: int, destination: str = QUEUE, gate: str = "") -> AnyEvent:
    retry_at_ms = at_ms + wait_ms
    return DestinationBlocked(
        at_ms=at_ms, destination=destination, reason="full", retry_at_ms=retry_at_ms, gate=gate
    )


def test_a_destination_is_blocked_until_something_gets_through() -> None:
    clock = VirtualClock()
    metrics = Metrics(clock=clock)
    metrics.observe([resent(0), blocked(clock.now_ms(), 60_000)])
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 1}
    clock.advance(149_000)
    metrics.observe([resent(0, "queue://B")])
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 1}
    metrics.observe([resent(0)])
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 0}
    metrics.observe([blocked(clock.now_ms(), 1_000)])
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 1}
    metrics.observe([DeadLettered(at_ms=1, destination=QUEUE, redelivery_count=1)])
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 0}


def test_a_block_that_another_sidecar_saw_end_ends_by_itself() -> None:
    clock = VirtualClock()
    metrics = Metrics(clock=clock)
    metrics.observe([blocked(clock.now_ms(), 60_000)])
    clock.advance(150_000)
    assert metrics.labelled("amqsidecar_blocked") == {(QUEUE,): 0}


def test_a_gate_blocks_no_destination() -> None:
    clock = VirtualClock()
    metrics = Metrics(clock=clock)
    metrics.observe([blocked(clock.now_ms(), 60_000, gate="breaker")])
    assert metrics.labelled("amqsidecar_blocked") == {}


def test_what_waits_for_events_counts_as_a_gate_whatever_their_names() -> None:
    metrics, times = Metrics(), {"next_due_at_ms": 1, "last_due_at_ms": 2}
    metrics.set_gate_waiting(
        [
            GateTally(destination="queue://a", gate=gate, count=count, **times)
            for gate, count in (("pace", 2), ("", 3))
        ]
    )
    samples = scrape(metrics)
    assert samples["amqsidecar_gate_waiting", ("queue://a", "pace")] == 2
    assert samples["amqsidecar_gate_waiting", ("queue://a", "event")] == 3


def test_blocked_destinations_have_few_labels() -> None:
    """Of those without one, a send to one does not open the others."""
    clock = VirtualClock()
    metrics = Metrics(destination_limit=2, clock=clock)
    names = [f"queue://{one}" for one in range(9)]
    metrics.observe([blocked(clock.now_ms(), 60_000, name) for name in names])
    metrics.observe([resent(0, names[0]), resent(0, names[7])])
    assert metrics.labelled("amqsidecar_blocked") == {
        (names[0],): 0,
        (names[1],): 1,
        (OTHER,): 1,
    }


def test_unknown_space_is_not_shown_as_none() -> None:
    metrics = Metrics()
    sample = ("amqsidecar_store_available_bytes", ())
    assert sample not in scrape(metrics)
    metrics.set_value("amqsidecar_store_available_bytes", 0)
    assert scrape(metrics)[sample] == 0


def test_counters_without_labels_exist_before_the_first_event() -> None:
    samples = scrape(Metrics())
    assert samples["amqsidecar_scheduled_total", ()] == 0
    assert samples["amqsidecar_link_reconnects_total", ()] == 0


def test_lateness_falls_into_its_bucket() -> None:
    metrics = Metrics()
    metrics.observe([resent(5), resent(6), resent(7_200_000)])
    samples = scrape(metrics)
    assert samples["amqsidecar_lateness_seconds_bucket", ("0.005",)] == 1
    assert samples["amqsidecar_lateness_seconds_bucket", ("0.01",)] == 2
    assert samples["amqsidecar_lateness_seconds_bucket", ("3600.0",)] == 2
    assert samples["amqsidecar_lateness_seconds_bucket", ("+Inf",)] == 3
    assert samples["amqsidecar_lateness_seconds_count", ()] == 3
    assert math.isclose(samples["amqsidecar_lateness_seconds_sum", ()], 7200.011)


def test_cycles_are_measured() -> None:
    metrics = Metrics()
    metrics.cycle_finished(0.004, 100)
    samples = scrape(metrics)
    assert samples["amqsidecar_cycle_duration_seconds_bucket", ("0.005",)] == 1
    assert samples["amqsidecar_cycle_duration_seconds_bucket", ("0.002",)] == 0
    assert samples["amqsidecar_cycle_messages_bucket", ("100.0",)] == 1
    assert samples["amqsidecar_cycle_messages_bucket", ("50.0",)] == 0


def test_destinations_beyond_the_bound_share_a_label() -> None:
    metrics = Metrics(destination_limit=2)
    metrics.observe([received(f"queue://{name}") for name in "ABCDA"])
    metrics.set_waiting(
        [tally("queue://C", RowState.WAITING, 2), tally("queue://D", RowState.WAITING, 3)]
    )
    name = "amqsidecar_dead_letters_received_total"
    assert metrics.value(name, "queue://A") == 2
    assert metrics.value(name, "queue://B") == 1
    assert metrics.value(name, OTHER) == 2
    assert metrics.value("amqsidecar_waiting", OTHER, "waiting") == 5


@pytest.mark.parametrize("owner", ["", "team-a"])
def test_idle_destinations_give_their_labels_back(owner: str) -> None:
    clock = VirtualClock()
    metrics = Metrics(destination_limit=2, clock=clock, owner_of=lambda _destination: owner)
    name = "amqsidecar_dead_letters_received_total"
    metrics.observe([received("queue://idle"), received("queue://waits")])
    metrics.set_waiting([tally("queue://waits", RowState.PARKED, 1)])
    clock.advance(3_599_000)
    metrics.observe([received("queue://new")])
    assert metrics.labelled(name).keys() == {("queue://idle",), ("queue://waits",), (OTHER,)}

    clock.advance(60_000)
    metrics.set_waiting(
        [tally("queue://waits", RowState.PARKED, 1), tally("queue://new", RowState.WAITING, 7)]
    )
    assert metrics.value("amqsidecar_waiting", "queue://new", "waiting") == 7
    assert metrics.labelled(name).keys() == {("queue://waits",), (OTHER,)}
    metrics.observe([received("queue://idle")])
    assert metrics.value(name, OTHER) == 2


def test_what_waits_no_longer_is_not_shown() -> None:
    metrics = Metrics()
    metrics.set_waiting([tally(QUEUE, RowState.WAITING, 2), tally(QUEUE, RowState.HELD, 1)])
    metrics.set_waiting([tally(QUEUE, RowState.PARKED, 4)])
    name = "amqsidecar_waiting"
    waiting = {key: value for key, value in scrape(metrics).items() if key[0] == name}
    assert waiting == {(name, (QUEUE, "parked")): 4}


def test_what_the_rules_redeliver_from_its_queue_is_not_shown_as_exhausted() -> None:
    """Else the alert on exhausted messages fires while any waits."""
    metrics, lying = Metrics(), [tally(QUEUE, RowState.EXHAUSTED, 3)]
    for is_in_place, state in ((True, "in_place"), (False, "exhausted")):
        metrics.set_mode(is_manual=True, redelivers_in_place=is_in_place)
        metrics.set_waiting(lying)
        assert metrics.labelled("amqsidecar_waiting") == {(QUEUE, state): 3}
        assert metrics.value("amqsidecar_manual") == (not is_in_place)


@pytest.mark.parametrize(("next_due_ms", "expected"), [(None, 0), (500, 0.5), (1_500, 0)])
def test_only_what_lies_in_the_past_is_overdue(next_due_ms: int | None, expected: float) -> None:
    metrics = Metrics()
    metrics.set_next_due(next_due_ms, 1_000)
    assert metrics.value("amqsidecar_oldest_overdue_seconds") == expected


def test_the_link_the_store_and_the_version_are_reported() -> None:
    health = Health()
    metrics = Metrics(read_state=health.state)
    health.link_up("broker")
    health.reconnected()
    metrics.set_value("amqsidecar_store_size_bytes", 4096)
    samples = scrape(metrics)
    assert samples["amqsidecar_link_up", ()] == 1
    assert samples["amqsidecar_link_reconnects_total", ()] == 1
    assert samples["amqsidecar_store_size_bytes", ()] == 4096
    (labels,) = [key[1] for key in samples if key[0] == "amqsidecar_build_info"]
    assert __version__ in labels
    health.link_down("gone")
    assert metrics.value("amqsidecar_link_up") == 0


def test_a_token_is_awaited_until_the_link_is_up_or_lost() -> None:
    health = Health()
    metrics = Metrics(read_state=health.state)
    for ends, text in ((health.link_up, "broker"), (health.link_down, "gone")):
        health.token_awaited("held elsewhere")
        assert metrics.value("amqsidecar_token_awaited") == 1
        ends(text)
        assert metrics.value("amqsidecar_token_awaited") == 0


def test_gauges_of_the_service_say_what_its_health_says() -> None:
    health = Health(needs_token=False)
    metrics = Metrics(destination_limit=1, read_state=health.state)
    tokens = (("a", True), ("b", False), ("c", False))
    health.taking("the disk is full")
    health.foreign_tokens(
        [ForeignToken(instance=one, sent_at_ms=None, is_held=held) for one, held in tokens]
    )
    for by_ms in (3_000, 0, -2_000, 5_000):
        health.clock(ClockStep(by_ms, 1_500))
    left = tuple(LeftBehind(queue(f"DLQ.{name}"), "body_type", 2, "why") for name in "abc")
    health.left_behind(left)
    assert metrics.value("amqsidecar_taking_stopped") == 1
    assert metrics.value("amqsidecar_orphaned_tokens") == 2
    assert metrics.value("amqsidecar_clock_behind_seconds") == 1.5
    assert metrics.labelled("amqsidecar_clock_steps_total") == {("ahead",): 2, ("back",): 1}
    assert metrics.labelled("amqsidecar_left_behind") == {
        ("queue://DLQ.a", "body_type"): 2,
        (OTHER, "body_type"): 4,
    }
    found = sidecar_status(health, metrics)
    assert [one.queue for one in found.left_behind] == [str(one.queue) for one in left]
    assert (found.is_well, len(found.orphans)) == (False, 2)
    assert msgspec.json.decode(health.readyz().body, type=Readiness) == found.readiness
    health.left_behind(())
    assert metrics.labelled("amqsidecar_left_behind") == {}


def test_nothing_is_shared_between_two_objects() -> None:
    Metrics().observe([received()])
    assert ("amqsidecar_dead_letters_received_total", (QUEUE,)) not in scrape(Metrics())


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (REDELIVERY, "redelivery"),
        ("redeliveryPlugin expired (a.xml:1)", "redelivery"),
        (f'{REDELIVERY} -> individualDeadLetterStrategy queue=">" (a.xml:9)', "dead_letter"),
        ("discarding (a.xml:3)", "dead_letter"),
        ("discardingDLQBrokerPlugin dropOnly (a.xml:3)", "discarding"),
        ('address-setting match="#" max-delivery-attempts=3 (broker.xml:4)', "address_settings"),
        ("broker default max-delivery-attempts=10", "address_settings"),
        ('rule "never valid" exhaust (sidecar.yaml:17)', "rules"),
        ("rule 3 continue (p.yaml:9) -> redeliveryPolicy defaultEntry (p.yaml:2)", "redelivery"),
        ("a stranger's plugin", "other"),
        ("", "other"),
    ],
)
def test_a_rule_belongs_to_a_family(rule: str, kind: str) -> None:
    assert rule_kind(rule) == kind


def test_a_listener_has_the_metrics_of_its_table_and_none_of_a_sidecar() -> None:
    text = ListenerMetrics().render()[0].decode()
    families = text_string_to_metric_families(text)
    found = {one.name: one.type for one in families if not one.name.endswith("_created")}
    found = {name: kind for name, kind in found.items() if name.startswith("amqsidecar_")}
    table = {spec.name.removesuffix("_total"): spec.kind.value for spec in LISTENER_METRICS}
    assert found == table
    assert all(name.startswith("amqsidecar_listener_") for name in table)
