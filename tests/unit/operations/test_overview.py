import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from amqsidecar.cli.main import run_command_line
from amqsidecar.http.console.pages import headline
from amqsidecar.http.console.plots import plot_deaths
from amqsidecar.http.console.svg import draw
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Missed,
    Received,
    Redirected,
    Resent,
    Retried,
    Returned,
)
from amqsidecar.model.failure import BUCKET_MS, MINUTES_KEPT_MS
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.charts import (
    OTHER,
    Zoom,
    deaths_by_cause,
    deaths_of_group,
    last_deaths_until,
    marks_since,
    recovery_by_attempt,
    schedule_ahead,
    share,
)
from amqsidecar.operations.failures.groups import (
    DAY_MS,
    HOUR_MS,
    Trend,
    read_group,
    read_groups,
    trend,
)
from amqsidecar.operations.failures.notes import write_note
from amqsidecar.operations.failures.solved import Ending
from amqsidecar.operations.markers import set_marker
from amqsidecar.operations.operate import Wish, begin, carry_out
from amqsidecar.operations.overview import (
    RecoveryState,
    read_overview,
    read_recoveries,
    read_waiting,
)
from amqsidecar.operations.status import sidecar_status
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from support.stores.rows import take_rows, took
from support.web.console_store import dead, keep, open_store

NOW_MS = 1_800_000_000_000 + 7 * 60_000  # Seven minutes past, so two into a bucket.
PAY = "queue://orders.pay"
LIMIT = "over limit"
REFUSED = "connection refused"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = open_store(tmp_path / "schedule.db")
    yield store
    store.close()


def resent(number: int, destination: str = PAY, attempt: int = 1, ago_ms: int = 60_000) -> Resent:
    return Resent(
        at_ms=NOW_MS - ago_ms,
        redelivery_id=f"r-{number}",
        destination=destination,
        redelivery_count=attempt,
        lateness_ms=1,
    )


def returned(
    number: int, destination: str = PAY, attempt: int = 1, ago_ms: int = 30_000
) -> Returned:
    return Returned(
        at_ms=NOW_MS - ago_ms,
        redelivery_id=f"r-{number}",
        source="queue://DLQ",
        origin=destination,
        cause=LIMIT,
        redelivery_count=attempt,
    )


def test_groups_say_what_dies_more_than_the_day_before_and_what_waits(store: SqliteStore) -> None:
    minutes = 60_000
    keep(
        store,
        [
            *(dead(n, LIMIT, NOW_MS - DAY_MS - 2 * minutes, destination=PAY) for n in range(1, 5)),
            *(dead(n, LIMIT, NOW_MS - n * minutes, destination=PAY) for n in range(5, 35)),
            dead(40, REFUSED, NOW_MS - minutes, destination=PAY, state=RowState.HELD),
            dead(41, None, NOW_MS - 3 * HOUR_MS, state=RowState.PARKED),
        ],
    )
    limit, refused, silent = read_groups(store, NOW_MS)
    assert (limit.cause_group, limit.recent, limit.day_before) == (LIMIT, 30, 4)
    assert (limit.trend, limit.waiting, limit.total) == (Trend.UP, 34, 34)
    assert limit.first_at_ms == NOW_MS - DAY_MS - 2 * minutes
    assert (refused.trend, refused.recent, refused.held) == (Trend.NEW, 1, 1)
    assert (silent.trend, silent.recent, silent.parked) == (Trend.QUIET, 0, 1)
    assert [one.destination for one in read_groups(store, NOW_MS, destination=PAY)] == [PAY, PAY]
    assert read_groups(store, NOW_MS, since_ms=NOW_MS - HOUR_MS, limit=1) == [limit]
    assert read_group(store, (PAY, LIMIT), NOW_MS) == limit
    assert read_group(store, (PAY, "else"), NOW_MS) is None


def test_a_window_counts_as_long_as_it_is(store: SqliteStore) -> None:
    keep(store, [dead(1, LIMIT, NOW_MS), dead(2, LIMIT, NOW_MS - 3 * BUCKET_MS)])
    assert [group.recent for group in read_groups(store, NOW_MS, window_ms=BUCKET_MS)] == [1]
    assert [group.recent for group in read_groups(store, NOW_MS)] == [2]


@pytest.mark.parametrize(
    ("recent", "before", "is_new", "expected"),
    [
        (0, 9, True, Trend.QUIET),
        (1, 0, True, Trend.NEW),
        (3, 1, False, Trend.STEADY),
        (30, 4, False, Trend.UP),
        (4, 30, False, Trend.DOWN),
        (1050, 1000, False, Trend.STEADY),
    ],
)
def test_a_trend_is_more_than_chance(
    recent: int, before: int, is_new: bool, expected: Trend
) -> None:
    assert trend(recent, before, is_new=is_new) is expected


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [(0, 0, 0.0, 1.0), (2, 3, 0.208, 0.939), (300, 1000, 0.272, 0.329), (5, 3, 0.438, 1.0)],
)
def test_a_share_says_how_sure_it_is(part: int, whole: int, low: float, high: float) -> None:
    found = share(part, whole)
    assert (round(found.low, 3), round(found.high, 3)) == (low, high)


def test_destinations_that_do_not_recover_stand_first_and_few_prove_little(
    store: SqliteStore,
) -> None:
    fails, fine, few = "queue://fails", "queue://fine", "queue://few"
    nine, stays = "queue://nine", "queue://stays"
    events: list[AnyEvent] = [
        *(resent(n, fails) for n in range(30)),
        *(returned(n, fails) for n in range(28)),
        *(resent(100 + n, fine) for n in range(30)),
        *(resent(200 + n, few) for n in range(3)),
        *(returned(200 + n, few) for n in range(2)),
        resent(300, "queue://old", ago_ms=DAY_MS + HOUR_MS),
        *(resent(400 + n, nine) for n in range(9)),
        *(resent(500 + n, stays) for n in range(30)),
    ]
    keep(store, [], events)
    looks = [
        Observation(destination=fine, at_ms=NOW_MS - ago_ms, depth=depth)
        for ago_ms, depth in ((600_000, 30), (60_000, 29))
    ]
    looks.append(Observation(destination=stays, at_ms=NOW_MS - 1, depth=30))
    store.add_observations(looks)
    found = {one.destination: one for one in read_recoveries(store, NOW_MS)}
    assert list(found) == [fails, few, fine, nine, stays]
    assert (found[fine].depth, found[fine].depth_at_ms) == (29, NOW_MS - 60_000)
    assert found[few].depth is None
    assert [one.state for one in found.values()] == [
        RecoveryState.FAILS,
        RecoveryState.UNCLEAR,
        RecoveryState.HOLDS,
        RecoveryState.UNCLEAR,
        RecoveryState.LIES,
    ]
    assert (found[fails].came_back.part, found[fails].came_back.whole) == (28, 30)


def test_what_waits_is_counted_by_when_it_goes(store: SqliteStore) -> None:
    due = (-5_000, -1_000, 60_000, 30 * 60_000, 20 * HOUR_MS, 50 * HOUR_MS)
    rows = [dead(n, None, NOW_MS, due_at_ms=NOW_MS + at) for n, at in enumerate(due, 1)]
    keep(store, [*rows, dead(9, None, NOW_MS, destination=PAY, state=RowState.HELD)])
    found = read_waiting(store, NOW_MS)
    assert (found.overdue, found.soon, found.hour, found.day, found.later) == (2, 1, 1, 1, 1)
    assert (found.overdue_ms, found.next_due_at_ms) == (5_000, NOW_MS - 5_000)
    assert [one.destination for one in found.by_destination] == ["queue://orders", PAY]
    ahead = schedule_ahead(store, NOW_MS).series[0].counts
    assert (len(ahead), ahead[0], ahead[20], sum(ahead)) == (24, 2, 1, 3)


def test_the_next_hours_due_messages_are_counted_by_the_minute(store: SqliteStore) -> None:
    ahead_s = (5, 10, 90, 59 * 60, 61 * 60)
    rows = [dead(n, LIMIT, NOW_MS, due_at_ms=NOW_MS + s * 1000) for n, s in enumerate(ahead_s, 1)]
    keep(store, rows)
    [due] = schedule_ahead(store, NOW_MS, Zoom.HOUR).series
    assert len(due.counts) == 60
    assert {at: count for at, count in enumerate(due.counts) if count} == {0: 2, 1: 1, 59: 1}


def test_what_gates_let_wait_is_reported_and_is_not_overdue(store: SqliteStore) -> None:
    keep(store, [dead(n, None, NOW_MS, due_at_ms=NOW_MS - 9_000) for n in (1, 2, 3)])
    with store.transaction() as tx:
        tx.postpone([1, 2], NOW_MS + 60_000, "closed", "windows")
        tx.postpone([3], NOW_MS + 1_000, "too fast", "pace")
    found = read_waiting(store, NOW_MS)
    assert (found.overdue, found.overdue_ms, found.soon) == (0, 0, 3)
    assert [(one.gate, one.count, one.next_due_at_ms) for one in found.gates] == [
        ("windows", 2, NOW_MS + 60_000),
        ("pace", 1, NOW_MS + 1_000),
    ]


def test_an_empty_schedule_is_an_overview_too(store: SqliteStore) -> None:
    found = read_overview(store, NOW_MS)
    assert (found.groups, found.recoveries, found.waiting.by_destination) == ([], [], [])
    assert found.waiting.next_due_at_ms is None
    assert deaths_by_cause(store, NOW_MS).series == []
    assert recovery_by_attempt(store, NOW_MS) == []


def test_plots_count_every_death_once(store: SqliteStore) -> None:
    causes = [f"cause {letter}" for letter in "abcdefg"]
    rows = [
        dead(10 * n + k, cause, NOW_MS - n * HOUR_MS, destination=PAY)
        for n, cause in enumerate(causes)
        for k in range(9 - n)
    ]
    keep(store, rows)
    timeline = deaths_by_cause(store, NOW_MS)
    assert [one.name for one in timeline.series] == [*causes[:5], OTHER]
    assert sum(sum(one.counts) for one in timeline.series) == len(rows)
    assert timeline.series[0].counts[-1] == 9
    assert timeline.series[1].counts[-2] == 8
    now, before = deaths_of_group(store, (PAY, causes[2]), NOW_MS).series
    assert (sum(now.counts), now.counts[-3], sum(before.counts)) == (7, 7, 0)


def test_a_cause_has_the_same_place_in_charts_of_different_spans(store: SqliteStore) -> None:
    """Whichever of them died more in each."""
    rows = [dead(n, REFUSED, NOW_MS - n, destination=PAY) for n in range(1, 6)]
    rows += [dead(n, LIMIT, NOW_MS - 2 * HOUR_MS, destination=PAY) for n in range(6, 20)]
    rows += [dead(20, LIMIT, NOW_MS, destination=PAY)]
    keep(store, rows)
    day = deaths_by_cause(store, NOW_MS)
    hour = deaths_by_cause(store, NOW_MS, Zoom.HOUR)
    assert [one.name for one in day.series] == [one.name for one in hour.series]
    assert [sum(one.counts) for one in hour.series] in ([5, 1], [1, 5])


def test_recovery_is_counted_by_attempt(store: SqliteStore) -> None:
    events: list[AnyEvent] = [
        *(resent(n, attempt=1) for n in range(10)),
        *(returned(n, attempt=1) for n in range(4)),
        *(resent(n, attempt=2) for n in range(4)),
        *(resent(n, attempt=40) for n in range(2)),
    ]
    keep(store, [], events)
    first, second, late = recovery_by_attempt(store, NOW_MS)
    assert (first.came_back.part, first.came_back.whole) == (4, 10)
    assert (second.came_back.part, second.came_back.whole) == (0, 4)
    assert (late.attempt, late.has_later, late.came_back.whole) == (12, True, 2)


def test_a_sidecar_is_well_only_when_nothing_needs_a_person() -> None:
    health, metrics = Health(), Metrics()
    assert not sidecar_status(health, metrics).is_well
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    health.store_ok()
    health.intake(2, {}, "")
    metrics.cycle_finished(0.1, 5)
    found = sidecar_status(health, metrics)
    assert (found.is_well, found.cycles, found.readiness.intake.read) == (True, 1, 2)
    health.intake(2, {"DLQ.x": "no permission"}, "")
    assert not sidecar_status(health, metrics).is_well


def test_the_command_shows_groups(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"store.url=sqlite:///{tmp_path / 'schedule.db'}"
    assert run_command_line(["groups", "--set", url]) == 0
    assert "the history has no death" in capsys.readouterr().err
    now_ms = store._clock.now_ms()
    keep(store, [dead(1, "a [bold] cause", now_ms, destination=PAY)])
    assert run_command_line(["groups", "--set", url, "--output", "json"]) == 0
    [group] = json.loads(capsys.readouterr().out)
    assert (group["destination"], group["recent"], group["trend"]) == (PAY, 1, "new")
    assert run_command_line(["groups", "--set", url, "--destination", "else"]) == 1
    assert "the history has no death" in capsys.readouterr().err
    assert run_command_line(["groups", "--set", url, "--last", "2h"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert "last 2h" in header
    assert "a [bold] cause" in line
    assert run_command_line(["groups", "--set", url, "--last", "soon"]) == 2


def test_exhausted_messages_stand_on_the_first_screen_with_their_queue_and_since_when(
    store: SqliteStore,
) -> None:
    final = "queue://DLQ.exhausted"
    keep(
        store,
        [
            *(
                dead(
                    number,
                    LIMIT,
                    NOW_MS - HOUR_MS,
                    destination=PAY,
                    state=RowState.EXHAUSTED,
                    final_queue=final,
                )
                for number in range(1, 4)
            ),
            dead(9, REFUSED, NOW_MS),
        ],
    )
    found = read_overview(store, NOW_MS)
    (place,) = found.exhausted
    assert (place.destination, place.queue, place.count) == (PAY, final, 3)
    assert (place.is_in_queue, place.since_ms) == (False, NOW_MS - HOUR_MS)
    assert {group.destination: group.exhausted for group in found.groups} == {
        PAY: 3,
        "queue://orders": 0,
    }
    assert [one.destination for one in found.waiting.by_destination] == ["queue://orders"]


def test_messages_are_counted_as_messages_and_deaths_beside_them(store: SqliteStore) -> None:
    rows = [dead(number, LIMIT, NOW_MS - 60_000, destination=PAY) for number in range(1, 6)]
    back = [returned(number, attempt=attempt) for number in range(1, 4) for attempt in (1, 2)]
    keep(store, rows, back)
    [group] = read_groups(store, NOW_MS)
    assert (group.recent_messages, group.recent) == (5, 11)
    found = read_overview(store, NOW_MS)
    assert headline(found) == (
        "5 messages died in the last hour, 11 times, of 1 cause; 1 is new since yesterday."
    )


def test_messages_that_came_with_a_count_of_an_earlier_store_are_counted(
    store: SqliteStore,
) -> None:
    rows = [dead(number, LIMIT, NOW_MS - 60_000, destination=PAY) for number in range(1, 6)]
    came = [returned(row.id) if row.id > 3 else took(row) for row in rows]
    cycle = store.open().cycle + 1
    take_rows(store, cycle, rows, came)
    [group] = read_groups(store, NOW_MS)
    assert (group.recent_messages, group.recent) == (5, 5)
    assert read_overview(store, NOW_MS).died.messages == 5


def test_recovery_begins_anew_with_an_operation_for_its_destination(store: SqliteStore) -> None:
    """Of what was re-sent before a person acted, all came back; of what they re-sent, nothing."""
    before_ms, at_ms = 20 * 60_000, NOW_MS - 10 * 60_000
    events: list[AnyEvent] = [
        *(resent(n, ago_ms=before_ms) for n in range(140)),
        *(returned(n, ago_ms=before_ms) for n in range(140)),
    ]
    keep(store, [], events)
    assert read_recoveries(store, NOW_MS)[0].state is RecoveryState.FAILS
    wish = Wish(action=Action.RETRY, selection=Selection(), actor="cli:ann")
    for destination, count in ((PAY, 140), ("queue://else", 9), (PAY, 0)):
        about = Selection(rows=RowFilter(destination=destination))
        one = begin(store, msgspec.structs.replace(wish, selection=about), at_ms)
        store.change_operation(one.id, partial(msgspec.structs.replace, changed=count))
    [nothing] = read_recoveries(store, NOW_MS)
    assert (nothing.came_back.whole, nothing.state) == (0, RecoveryState.UNCLEAR)
    keep(store, [], [resent(n, ago_ms=9 * 60_000) for n in range(140)])
    set_marker(store, "bills 4.2", "bills.>", "ci", NOW_MS - 60_000)
    keep(store, [dead(1, LIMIT, NOW_MS, destination="queue://else")])
    by_number = Selection(rows=RowFilter(ids=(1,)))
    late = begin(store, msgspec.structs.replace(wish, selection=by_number), NOW_MS - 50_000, "x")
    assert carry_out(store, late.id, "x", ".final", lambda: NOW_MS).changed == 1
    [found] = read_recoveries(store, NOW_MS)
    assert (found.came_back.part, found.came_back.whole) == (0, 140)
    assert (found.state, found.since) == (RecoveryState.HOLDS, "retry by cli:ann")


AGO_MS = 30 * 60_000


def gone(store: SqliteStore, *more: AnyEvent, ago_ms: int = AGO_MS) -> None:
    """Make one die that is not in the schedule any more."""
    death = Received(
        at_ms=NOW_MS - ago_ms, redelivery_id="r-1", source="queue://DLQ", origin=PAY, cause=LIMIT
    )
    keep(store, [], [death, *more])


class About(TypedDict):
    redelivery_id: str
    destination: str
    at_ms: int


def resent_by(actor: str) -> list[AnyEvent]:
    about: About = {"redelivery_id": "r-1", "destination": PAY, "at_ms": NOW_MS - 20 * 60_000}
    by_person = [Retried(**about, actor=actor)] if actor else []
    return [*by_person, Resent(**about, redelivery_count=1, lateness_ms=0)]


def given_up(actor: str) -> list[AnyEvent]:
    about: About = {"redelivery_id": "r-1", "destination": PAY, "at_ms": NOW_MS - 20 * 60_000}
    return [Cancelled(**about, actor=actor), DeadLettered(**about, redelivery_count=1)]


def missed() -> list[AnyEvent]:
    about: About = {
        "redelivery_id": "r-1",
        "destination": f"{PAY}.final",
        "at_ms": NOW_MS - 20 * 60_000,
    }
    return [DeadLettered(**about, redelivery_count=1), Missed(**about)]


def redirected() -> list[AnyEvent]:
    about: About = {"redelivery_id": "r-1", "destination": PAY, "at_ms": NOW_MS - 20 * 60_000}
    return [Redirected(**about, actor="cli:ann"), *resent_by("")]


def look(ago_ms: int, depth: int, acknowledged: int | None = None, **proved: int) -> Observation:
    return Observation(
        destination=PAY,
        at_ms=NOW_MS - ago_ms,
        depth=depth,
        acknowledged=acknowledged,
        removed=None if acknowledged is None else 0,
        **proved,
    )


CONSUMED = look(
    18 * 60_000,
    0,
    acknowledged=7,
    steady_since_ms=NOW_MS - AGO_MS,
    moved_at_ms=NOW_MS - 19 * 60_000,
    empty_at_ms=NOW_MS - 18 * 60_000,
)
LIES = look(30_000, 2_400, acknowledged=7)


@pytest.mark.parametrize(
    ("events", "seen", "ending", "evidence"),
    [
        (resent_by(""), [CONSUMED], Ending.CONSUMED, ""),
        (resent_by("cli:ann"), [CONSUMED, LIES], Ending.CONSUMED, ""),
        (redirected(), [CONSUMED], Ending.CONSUMED_ELSEWHERE, ""),
        (redirected(), [], Ending.REDIRECTED, "its queue was not examined after its window"),
        (redirected(), [LIES], Ending.REDIRECTED, "2,400 messages lie in "),
        (resent_by(""), [], Ending.RESENT, "its queue was not examined after its window"),
        (resent_by("cli:ann"), [LIES], Ending.RESENT, "no consumer has acknowledged any since"),
        (resent_by(""), [look(30_000, 0)], Ending.RESENT, "acknowledged counter"),
        (missed(), [], Ending.MISSED, ""),
        (given_up("cli:ann"), [], Ending.GIVEN_UP, ""),
        ([], [], Ending.UNKNOWN, ""),
    ],
)
def test_only_what_was_consumed_or_ended_on_purpose_is_solved(
    store: SqliteStore,
    events: list[AnyEvent],
    seen: list[Observation],
    ending: Ending,
    evidence: str,
) -> None:
    gone(store, *events)
    store.add_observations(seen)
    found = read_overview(store, NOW_MS)
    assert found.groups == []
    [ended] = [*found.solved, *found.unproved]
    assert ended.solution.ending == ending
    assert evidence in ended.solution.evidence
    assert bool(evidence) == bool(ended.solution.evidence)
    assert ended.solution.actor == next((one.actor for one in events if hasattr(one, "actor")), "")
    assert bool(found.solved) == (not evidence and bool(seen))
    at_ms = NOW_MS - (20 * 60_000 if events else AGO_MS)
    assert (ended.solution.at_ms, ended.solution.operation) == (at_ms, None)


def test_a_group_is_solved_by_the_latest_operation_about_it(store: SqliteStore) -> None:
    gone(store, *resent_by("cli:ann"))
    wish = Wish(action=Action.RETRY, selection=Selection(), actor="cli:ann")
    numbers = []
    for rows, changed in (
        (RowFilter(destination=PAY), 3),
        (RowFilter(destination="queue://else"), 3),
        (RowFilter(ids=(17,)), 1),
        (RowFilter(destinations=("queue://else",)), 1),
        (RowFilter(destination=PAY), 0),
    ):
        about = Selection(rows=rows)
        one = begin(store, msgspec.structs.replace(wish, selection=about), NOW_MS)
        store.change_operation(one.id, partial(msgspec.structs.replace, changed=changed))
        numbers.append(one.id)
    [ended] = read_overview(store, NOW_MS).unproved
    assert ended.solution.operation == numbers[0]


def test_what_was_just_re_sent_may_come_back_and_is_not_solved_yet(store: SqliteStore) -> None:
    about: About = {"redelivery_id": "r-1", "destination": PAY, "at_ms": NOW_MS - 1_000}
    gone(store, Resent(**about, redelivery_count=1, lateness_ms=0))
    found = read_overview(store, NOW_MS)
    assert (len(found.groups), found.solved) == (1, [])


def test_a_snoozed_group_comes_back_with_its_next_death_or_at_its_time(
    store: SqliteStore,
) -> None:
    keep(store, [dead(1, LIMIT, NOW_MS - 60_000, destination=PAY)])
    note = write_note(store, (PAY, LIMIT), "", "cli:ann", NOW_MS, owner="ann", snooze_ms=HOUR_MS)
    assert (note.owner, note.snoozed_until_ms) == ("ann", NOW_MS + HOUR_MS)
    found = read_overview(store, NOW_MS + 1)
    assert ([one.cause_group for one in found.snoozed], found.groups) == ([LIMIT], [])
    assert found.died.messages == 1

    later = write_note(store, (PAY, LIMIT), "asked", "cli:bob", NOW_MS + 2)
    assert (later.owner, later.snoozed_until_ms) == ("ann", NOW_MS + HOUR_MS)
    assert len(read_overview(store, NOW_MS + HOUR_MS - 1).snoozed) == 1
    assert len(read_overview(store, NOW_MS + HOUR_MS).groups) == 1

    keep(store, [dead(2, LIMIT, NOW_MS + 60_000, destination=PAY)])
    found = read_overview(store, NOW_MS + 120_000)
    assert ([one.cause_group for one in found.groups], found.snoozed) == ([LIMIT], [])
    after = write_note(store, (PAY, LIMIT), "again", "cli:bob", NOW_MS + 120_000)
    assert (after.owner, after.snoozed_until_ms) == ("ann", 0)


def test_a_snooze_that_a_death_ended_does_not_come_back_with_a_note_on_a_muted_group(
    store: SqliteStore,
) -> None:
    keep(store, [dead(1, LIMIT, NOW_MS - 60_000, destination=PAY)])
    group, ann = (PAY, LIMIT), "cli:ann"
    both = write_note(store, group, "", ann, NOW_MS, snooze_ms=2 * HOUR_MS, is_muted=True)
    assert (both.snoozed_until_ms, both.muted_deaths) == (NOW_MS + 2 * HOUR_MS, 1)
    keep(store, [dead(2, LIMIT, NOW_MS + 60_000, destination=PAY)])
    now_ms = NOW_MS + 120_000
    assert len(read_overview(store, now_ms).snoozed) == 1
    assert write_note(store, group, "seen", ann, now_ms).snoozed_until_ms == 0
    write_note(store, group, "", ann, now_ms + 1, is_muted=False)
    assert [one.cause_group for one in read_overview(store, now_ms + 2).groups] == [LIMIT]


def test_the_last_hour_is_counted_by_the_minute_of_all_and_of_one_group(store: SqliteStore) -> None:
    keep(
        store,
        [
            dead(1, LIMIT, NOW_MS, destination=PAY),
            dead(2, LIMIT, NOW_MS - 2 * 60_000, destination=PAY),
            dead(3, REFUSED, NOW_MS - 2 * 60_000, destination=PAY),
            dead(4, LIMIT, NOW_MS - 61 * 60_000, destination=PAY),
        ],
    )
    refused, limit = deaths_by_cause(store, NOW_MS, Zoom.HOUR).series
    assert (len(limit.counts), limit.counts[-3:], refused.counts[-3:]) == (
        60,
        [1, 0, 1],
        [1, 0, 0],
    )
    [of_group] = deaths_by_cause(store, NOW_MS, Zoom.HOUR, place=(PAY, REFUSED)).series
    assert sum(of_group.counts) == 1


@pytest.mark.parametrize(
    ("ago_ms", "zoom", "step_ms", "steps"),
    [
        (30 * 60_000, Zoom.MINUTES, 60_000, 5),
        (3 * HOUR_MS, Zoom.MINUTES, 5 * 60_000, 12),
        (3 * HOUR_MS, Zoom.HOUR, 5 * 60_000, 12),
    ],
)
def test_a_zoom_shows_the_last_deaths_by_the_finest_counts_that_are_kept(
    store: SqliteStore, ago_ms: int, zoom: Zoom, step_ms: int, steps: int
) -> None:
    keep(store, [dead(n, LIMIT, NOW_MS - ago_ms, destination=PAY) for n in (1, 2)])
    store.forget_ledger(0, NOW_MS - 2 * DAY_MS, 99, NOW_MS - MINUTES_KEPT_MS)
    assert deaths_by_cause(store, NOW_MS, zoom).series == [] or ago_ms < zoom.span_ms
    assert last_deaths_until(store, NOW_MS, (PAY, REFUSED)) is None
    until_ms = last_deaths_until(store, NOW_MS, (PAY, LIMIT))
    found = deaths_by_cause(store, NOW_MS, zoom, until_ms=until_ms)
    [deaths] = found.series
    assert (found.step_ms, len(deaths.counts), sum(deaths.counts)) == (step_ms, steps, 2)
    assert found.until_ms == until_ms
    said = plot_deaths(found, str, is_past=True)
    assert said.note.startswith("Nothing died in the last ")
    assert ("kept for 2h" in said.note) == (step_ms != 60_000)
    assert said.title.startswith(f"Dead letters by {'minute' if steps == 5 else 'five minutes'} ")


def started(at_ms: int, digest: str, instance: str = "a") -> ServiceMark:
    start = ServiceMarkKind.START
    return ServiceMark(at_ms=at_ms, instance=instance, kind=start, rules_digest=digest)


def test_each_start_is_a_mark_and_says_whether_the_policy_is_another(store: SqliteStore) -> None:
    for at_ms, digest in ((NOW_MS - 2 * DAY_MS, "one"), (NOW_MS - 3, "two"), (NOW_MS - 2, "two")):
        store.add_service_mark(started(at_ms, digest))
    store.add_service_mark(
        ServiceMark(at_ms=NOW_MS - 1, instance="a", kind=ServiceMarkKind.RULES, rules_digest="two")
    )
    assert [one.what for one in marks_since(store, NOW_MS - DAY_MS)] == [
        "the sidecar started with another policy",
        "the sidecar started",
        "the sidecar read other settings from the broker",
    ]


def test_starts_of_several_sidecars_are_named(store: SqliteStore) -> None:
    for at_ms, digest, name in ((1, "one", "a"), (2, "two", "b"), (3, "two", "a")):
        store.add_service_mark(started(at_ms, digest, name))
    assert [one.what for one in marks_since(store, 0)] == [
        "sidecar a started",
        "sidecar b started",
        "sidecar a started with another policy",
    ]


def test_operations_and_starts_are_marks_of_their_time(store: SqliteStore) -> None:
    wish = Wish(action=Action.CANCEL, selection=Selection(), actor="cli:ann")
    old = begin(store, wish, NOW_MS - 2 * HOUR_MS)
    late = begin(store, wish, NOW_MS - 60_000)
    keep(store, [dead(1, LIMIT, NOW_MS, destination=PAY)])
    store.add_service_mark(started(NOW_MS - 5 * 60_000, "one"))
    marks = marks_since(store, NOW_MS - DAY_MS)
    assert [(one.operation, one.what) for one in marks] == [
        (old.id, "give-up by cli:ann"),
        (None, "the sidecar started"),
        (late.id, "give-up by cli:ann"),
    ]
    hour = deaths_by_cause(store, NOW_MS, Zoom.HOUR)
    plotted = plot_deaths(hour, str, marks)
    assert [(one.operation, one.place) for one in plotted.marks] == [(None, 54.0), (late.id, 58.0)]
    assert draw(plotted).count('<line class="mark"') == 2
