"""The cycle against a broker in memory and the real SQLite store: one claim per test."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from amqsidecar.broker import Resend
from amqsidecar.engine import blockage
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.immediate import CYCLE_BYTES_MAX
from amqsidecar.errors import LinkLost
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import (
    CycleInDoubt,
    DestinationBlocked,
    Discarded,
    Held,
    Parked,
    Scheduled,
)
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.model.send_terms import ResendEffect, SendTerms, SideEffect
from amqsidecar.plugin import DueMessage, Wait
from amqsidecar.store import ENOUGH_ROOM, Room
from simulation.rules import DLQ, CountingRules
from simulation.world import World
from support.brokers.memory import Killed, StoredMessage

E = TypeVar("E")

ALL = RowFilter()


class AlwaysOpen:
    """A gate that nothing waits at."""

    def describe(self, _destination: Destination) -> str | None:
        return None

    def wait_of(self, _message: DueMessage, _now_ms: int) -> Wait | None:
        return None

    def passed(self, _message: DueMessage, _now_ms: int) -> None:
        pass

    def resent(self, _destination: Destination, _now_ms: int) -> None:
        pass

    def returned(self, _destination: Destination, _now_ms: int) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.start()
    yield made
    made.kill()


def kinds(world: World, kind: type[E]) -> list[E]:
    return [event for event in world.events if type(event) is kind]


def test_what_the_rules_discard_is_accepted_and_gone(world: World) -> None:
    world.die("a", origin="discard.me")
    world.run(5)
    assert world.bodies(DLQ) == []
    assert world.store.count_rows(ALL) == 0
    discarded = world.events[-1]
    assert isinstance(discarded, Discarded)
    assert discarded.rule == "discard rule (sim:1)"


def test_a_message_without_origin_is_parked_whole(world: World) -> None:
    world.broker.queue(DLQ).append(StoredMessage(b"a"))
    world.run(5)
    (row,) = world.store.list_rows(ALL, 10)
    assert row.state is RowState.PARKED
    assert world.store.message(row.id) == b"a"


def test_a_missing_token_keeps_what_was_taken_and_sends_again(world: World) -> None:
    world.rules.delay_ms = 0
    world.broker.commit_fault = iter([None, "lost_after"]).__next__
    world.die("a")
    with pytest.raises(LinkLost):
        world.run(5)
    assert world.bodies("orders") == ["a"]
    world.broker.commit_fault = lambda: None
    world.broker.tokens.clear()
    world.connect()
    (doubt,) = kinds(world, CycleInDoubt)
    assert "missing" in doubt.reason
    world.run(10)
    assert world.bodies("orders") == ["a", "a"], "at worst a copy, never a loss"


def test_one_poisonous_send_among_many_is_parked_and_the_others_go(world: World) -> None:
    world.broker.refuse_commit = lambda sends: (
        "can't store it" if any(send.message == b"m7" for send in sends) else None
    )
    for number in range(30):
        world.die(f"m{number}")
    world.run(300)
    assert len(world.bodies("orders")) == 29
    (row,) = world.store.list_rows(ALL, 10)
    assert (row.state, world.store.message(row.id)) == (RowState.PARKED, b"m7")
    assert kinds(world, Parked)[-1].reason == "can't store it"


def test_nothing_is_parked_because_more_destinations_are_full_than_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockage, "BLOCKED_MAX", 3)
    world.broker.refuse_send = lambda _resend: "full"
    for number in range(8):
        world.die(f"m{number}", origin=f"orders.{number}")
    world.run(300)
    assert kinds(world, Parked) == []
    world.broker.refuse_send = lambda _resend: None
    world.run(300)
    assert [world.bodies(f"orders.{number}") for number in range(8)] == [
        [f"m{number}"] for number in range(8)
    ]


def test_a_refused_send_alone_does_not_stop_the_others(world: World) -> None:
    world.broker.refuse_send = lambda resend: "too large" if resend.message == b"m7" else None
    for number in range(30):
        world.die(f"m{number}")
    for _ in range(40):
        world.die("more")
        world.run(20)
    assert "m7" not in world.bodies("orders")
    assert len(world.bodies("orders")) >= 60
    rows = world.store.list_rows(RowFilter(state=RowState.PARKED), 10)
    assert [world.store.message(row.id) for row in rows] == [b"m7"]


def test_what_does_not_route_waits_and_goes_when_it_does(world: World) -> None:
    world.broker.unroutable.add("orders")
    world.die("a")
    world.die("b", origin="invoices")
    world.run(20)
    assert world.bodies("invoices") == ["b"]
    assert world.bodies("orders") == []
    assert kinds(world, DestinationBlocked)[0].reason == "no such queue"
    world.broker.unroutable.clear()
    world.clock.advance(60_000)
    world.run(20)
    assert world.bodies("orders") == ["a"]


def test_what_would_be_doubled_at_its_origin_is_parked_unsent_until_that_is_mended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry is looked at again, and the question is asked once for all due at a time."""
    asked: list[str] = []
    cure = "write a filter, or allow it by redelivery: {allow: [divert]}"
    effects = {"orders": "a divert would copy it"}

    def send_terms(destination: Destination, *, makes: bool = False) -> SendTerms:
        asked.append(destination.name)
        what = effects.get(destination.name)
        effect = SideEffect(ResendEffect.DIVERT, what or "", "a filter")
        return SendTerms(effects=(effect,) if what else ())

    monkeypatch.setattr(world.link, "send_terms", send_terms)
    for name in ("a", "b", "c"):
        world.die(name)
    world.die("d", origin="invoices")
    world.run(20)
    assert world.bodies("invoices") == ["d"]
    assert world.bodies("orders") == []
    assert [one.reason for one in kinds(world, Parked)] == [f"a divert would copy it; {cure}"] * 3
    assert asked.count("orders") == 1

    parked = RowFilter(state=RowState.PARKED)
    assert world.store.change(parked, row_changes.retry(world.clock.now_ms(), "ann")) == 3
    world.run(20)
    assert world.bodies("orders") == []
    assert asked.count("orders") == 2

    effects.clear()
    assert world.store.change(parked, row_changes.retry(world.clock.now_ms(), "ann")) == 3
    world.run(20)
    assert world.bodies("orders") == ["a", "b", "c"]


def test_what_takes_nothing_for_long_is_reported_each_minute(world: World) -> None:
    """So that its alert fires: what waits there is due again at the next try, so never overdue."""
    world.broker.unroutable.add("orders")
    world.die("a")
    since_ms = world.clock.now_ms()
    overdue_ms = 0
    while world.clock.now_ms() < since_ms + 30 * 60_000:
        world.run(1)
        overdue_ms = max(overdue_ms, world.clock.now_ms() - (world.store.next_due_ms() or 10**12))
    last = [
        event
        for event in kinds(world, DestinationBlocked)
        if event.at_ms > world.clock.now_ms() - 15 * 60_000
    ]
    assert len(last) >= 14
    assert overdue_ms < 2_000


def test_many_blocked_destinations_are_tried_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, a cycle does not ask about more of them than it may."""
    monkeypatch.setattr("amqsidecar.engine.dispatch.PROBES_MAX", 2)
    names = [f"gone.{number}" for number in range(8)]
    world.broker.unroutable.update(names)
    for name in names:
        world.die(name, origin=name)
    world.run(20)
    tries = []
    for _ in range(40):
        tries.append(len(kinds(world, DestinationBlocked)))
        world.run(1)
    assert tries[-1] > 2 * len(names)
    assert max(after - before for before, after in pairwise(tries)) == 2
    world.broker.unroutable.clear()
    world.clock.advance(60_000)
    world.run(100)
    assert [world.bodies(name) for name in names] == [[name] for name in names]


def test_slow_tries_of_many_blocked_destinations_leave_time_for_the_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classic ends a link that says nothing for 30 s."""
    tried: Counter[str] = Counter()
    in_a_turn: list[int] = []

    def try_slowly(destination: Destination, *, makes: bool = False) -> SendTerms:
        in_a_turn[-1] += 1
        tried[destination.name] += 1
        world.clock.advance(1_000)
        return SendTerms("full")

    world.limits = CycleLimits(max_taken=100, max_sent=100)
    world.connect()
    names = [f"full.{number}" for number in range(60)]
    world.broker.unroutable.update(names)
    for name in names:
        world.die(name, origin=name)
    world.run(20)
    monkeypatch.setattr(world.link, "send_terms", try_slowly)
    world.clock.advance(60_000)
    for _ in range(100):
        in_a_turn.append(0)
        world.run(1)
    assert max(in_a_turn) <= 6
    assert set(tried) == set(names)


def test_what_waits_for_a_destination_that_gets_few_at_once_hides_no_others(world: World) -> None:
    for number in range(300):
        world.die(f"m{number}", origin="slow")
    while world.broker.queue(DLQ):
        world.run(1)
    world.die("a")
    world.run(1)
    assert world.bodies("slow") == []
    world.losses.note_held_up("queue://slow", 4)
    world.clock.advance(60_000)
    world.run(40)
    assert world.bodies("orders") == ["a"]
    world.run(600)
    assert len(world.bodies("slow")) == 300


def test_a_destination_that_held_up_a_link_is_blocked_and_gets_fewer_at_once(world: World) -> None:
    """It has room for three: its messages go by and by, the others at once, and none is parked."""
    link_losses = 0

    def hold_up(sends: Sequence[Resend]) -> None:
        if sum(send.destination.name == "orders" for send in sends) > 3:
            raise LinkLost("held up", {"queue://orders": "is it full?"})

    world.broker.refuse_commit = hold_up
    for number in range(9):
        world.die(f"m{number}")
    world.die("other", origin="invoices")
    for _ in range(300):
        try:
            world.run(1)
        except LinkLost:
            link_losses += 1
            assert [one.reason for one in kinds(world, DestinationBlocked)] == ["is it full?"]
            world.connect()
            world.run(1)
            assert world.bodies("orders") == []
            assert world.bodies("invoices") == ["other"]
    assert link_losses == 1
    assert sorted(world.bodies("orders")) == [f"m{number}" for number in range(9)]
    assert world.bodies("invoices") == ["other"]
    assert not kinds(world, Parked)


def test_a_destination_that_has_room_again_gets_more_by_and_by(world: World) -> None:
    """And later each time that it held up a link, since each time costs one."""
    sent: list[int] = []

    def note(sends: Sequence[Resend]) -> None:
        sent.extend([len(sends)] if sends else [])

    world.broker.refuse_commit = note
    for slowly in (16, 32):
        world.losses.note_held_up("queue://orders", 8)
        sent.clear()
        for number in range((2 + 4 + 8) * slowly + 100):
            world.die(f"{slowly}.{number}")
        world.run(150)
        world.clock.advance(60_000)
        world.run(150)
        assert sent[: slowly + 1] == [2] * slowly + [4]
        assert 2 * slowly <= sent.index(8) <= sent.index(10) - slowly


def test_a_backlog_is_held_and_what_comes_later_is_not(tmp_path: Path) -> None:
    world = World(tmp_path, threshold=3)
    for number in range(12):
        world.die(f"old{number}")
    world.start()
    world.run(5)
    world.die("new")
    world.run(10)
    assert world.bodies("orders") == ["new"]
    assert world.store.count_rows(RowFilter(state=RowState.HELD)) == 12
    assert len(kinds(world, Held)) == 12
    world.kill()
    world.start()
    world.die("newer")
    world.run(10)
    assert world.bodies("orders") == ["new", "newer"]
    assert world.store.change(ALL, row_changes.release(world.clock.now_ms(), "test")) == 12
    world.run(10)
    assert len(world.bodies("orders")) == 14
    world.kill()


def test_what_dies_after_a_kill_in_the_first_cycle_is_no_backlog(tmp_path: Path) -> None:
    """How much backlog is left is known only when the interrupted cycle is settled."""
    world = World(tmp_path, threshold=3)
    for number in range(12):
        world.die(f"old{number}")
    world.start()
    world.broker.commit_fault = lambda: "killed_after"
    with pytest.raises(Killed):
        world.run(1)
    world.broker.commit_fault = lambda: None
    world.kill()
    for number in range(5):
        world.die(f"new{number}")
    world.start()
    world.run(20)
    assert len(world.bodies("orders")) == 5
    assert world.store.count_rows(RowFilter(state=RowState.HELD)) == 12
    world.kill()


def test_undone_takes_leave_no_event(world: World) -> None:
    faults = ["lost_before"]
    world.broker.commit_fault = lambda: faults.pop() if faults else None
    world.die("a")
    with pytest.raises(LinkLost):
        world.run(5)
    world.connect()
    world.run(10)
    (scheduled,) = kinds(world, Scheduled)
    history = world.store.history(scheduled.redelivery_id)
    assert [type(event).__name__ for event in history] == ["Received", "Scheduled", "Resent"]


def test_the_delay_counts_from_the_intake_where_a_cycle_began_before_it(tmp_path: Path) -> None:
    """What arrives while the store is slow or the process stopped is not due that much earlier."""
    world = World(tmp_path)
    world.start()
    world.die("a")
    world.run(2)
    world.clock.advance(1_000)

    def step(name: str) -> None:
        if name == "sends begun":
            world.clock.advance(900)
            world.die("b")

    world.link.step = step
    world.run(1)
    arrived_ms = world.clock.now_ms()
    world.link.step = lambda _name: None
    world.run(1)
    (row,) = world.store.list_rows(ALL, 10)
    assert row.due_at_ms == arrived_ms + 1_000
    world.kill()


def test_nothing_is_sent_early_and_an_idle_turn_waits_until_the_next_due_time(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CountingRules(delay_ms=40))
    world.start()
    world.die("a")
    world.run(2)
    world.link.waits.clear()
    while not world.bodies("orders"):
        world.run(1)
    assert len(world.link.waits) <= 2
    world.kill()


def test_without_room_nothing_is_taken_what_is_due_is_sent_and_waits_are_waits(
    world: World,
) -> None:
    world.die("before")
    world.run(2)
    room = Room(at_once_bytes=0, reason="the volume is short")
    world.store.room = lambda: room  # type: ignore[method-assign]
    for number in range(250):
        world.die(f"later {number}")
    world.run(20)
    assert world.bodies("orders") == ["before"]
    assert world.store.count_rows(ALL) == 0
    before_s = world.clock.monotonic_s()
    world.run(4)
    assert world.clock.monotonic_s() - before_s >= 2.0
    room = ENOUGH_ROOM
    world.run(20)
    assert len(world.bodies("orders")) == 251


def test_a_cycle_takes_no_more_bytes_than_there_is_room_for(world: World) -> None:
    world.store.room = lambda: Room(at_once_bytes=25)  # type: ignore[method-assign]
    for body in ("0123456789", "1123456789", "2123456789", "x" * 100, "3"):
        world.die(body)
    world.run(4)
    assert [one.taken for one in world.stats[:4]] == [2, 1, 1, 1]


def test_what_cycles_make_is_freed_without_the_collector(world: World) -> None:
    # Why it matters: the service lets Python look for reference cycles seldom (`process.py`).
    def move(count: int) -> None:
        for number in range(count):
            world.die(str(number))
        world.run(40)

    move(10)
    gc.collect()
    gc.disable()
    try:
        move(300)
        unreachable = gc.collect()
    finally:
        gc.enable()
    assert len(world.bodies("orders")) == 310
    # Why not 0: threads of the test runner may leave a few.
    assert unreachable < 300


def send_first(world: World) -> None:
    world.die("first")
    while not world.bodies("orders"):
        world.run(1)


def test_without_a_delay_a_dead_letter_is_sent_by_the_cycle_that_takes_it(tmp_path: Path) -> None:
    """Once the schedule has sent one to the same destination; no row is written of it."""
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    send_first(world)
    commits = world.broker.commits
    world.die("a")
    world.die("b")
    world.run(1)
    assert world.bodies("orders") == ["first", "a", "b"]
    assert world.broker.commits == commits + 1
    world.engine.settle_up()
    assert world.store.list_rows(ALL, 10) == []
    last = [event.redelivery_id for event in kinds(world, Scheduled)][-1]
    history = world.store.history(last)
    assert [type(event).__name__ for event in history] == ["Received", "Scheduled", "Resent"]
    world.kill()


def test_what_the_broker_does_not_take_at_once_is_stored(tmp_path: Path) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    send_first(world)
    world.broker.refuse_send = lambda resend: "full" if resend.message == b"a" else None
    world.die("a")
    world.die("b")
    world.run(1)
    assert world.bodies("orders") == ["first"]
    world.run(1)
    world.engine.settle_up()
    assert world.bodies("DLQ") == []
    assert {row.state for row in world.store.list_rows(ALL, 10)} == {RowState.WAITING}
    world.broker.refuse_send = lambda _resend: None
    while len(world.bodies("orders")) < 3:
        world.run(1)
    assert sorted(world.bodies("orders")) == ["a", "b", "first"]
    world.kill()


def test_a_link_lost_with_immediate_sends_loses_and_parks_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    send_first(world)
    faults: list[str] = []
    world.broker.commit_fault = lambda: faults.pop() if faults else None
    for number in range(3):
        faults.append("lost_before")
        world.die(f"m{number}")
        with pytest.raises(LinkLost):
            world.run(5)
        world.connect()
        world.run(10)
    assert not world.losses.has_suspects
    assert len(world.bodies("orders")) == 4
    assert kinds(world, Parked) == []
    world.kill()


@pytest.mark.parametrize("reason", ["a gate", "large", "behind others"])
def test_what_has_to_wait_or_is_large_is_stored_first(tmp_path: Path, reason: str) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0), max_sent=2)
    if reason == "a gate":
        world.gates = Gates({"none": AlwaysOpen()})
    world.start()
    send_first(world)
    bodies = {"a gate": ["a"], "large": ["a" * (CYCLE_BYTES_MAX + 1)], "behind others": "abc"}
    for body in bodies[reason]:
        world.die(body)
    world.run(1)
    world.engine.settle_up()
    assert len(world.store.list_rows(ALL, 10)) == 1
    while len(world.bodies("orders")) <= len(bodies[reason]):
        world.run(1)
    assert world.bodies("orders") == ["first", *bodies[reason]]
    world.kill()


def test_due_messages_do_not_wait_for_the_intake_of_many_dead_letters(tmp_path: Path) -> None:
    world = World(tmp_path, max_taken=40, max_sent=40)
    world.start()

    def take_long(name: str) -> bool:
        if name == "stored":
            world.clock.advance(200)
        return False

    world.crash_at = take_long
    for number in range(800):
        world.die(str(number))
    world.run(80)
    alone = [one.taken for one in world.stats if one.taken and not one.sent]
    beside = [one.taken for one in world.stats if one.taken and one.sent]
    assert set(alone) == {40}, "nothing was due"
    assert max(beside) < 20, "each cycle took twice the time that it may"
    assert len(set(world.bodies("orders"))) == len(world.bodies("orders")) == 800
    world.kill()
