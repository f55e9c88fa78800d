"""The gate `order`: one of a group at a time, in the order of first deaths, and never for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import amqsidecar_order
from amqsidecar.engine.gates import Gates
from amqsidecar.errors import ConfigError
from amqsidecar.model import row_changes
from amqsidecar.model.destination import queue
from amqsidecar.model.schedule import GROUP_PLACES_MAX, GroupPlace, RowFilter, RowState
from amqsidecar.plugin import DueMessage, Gate
from amqsidecar_order import ASK_AGAIN_MS, OrderGate, plugin
from simulation.gated import group_of
from simulation.rules import CountingRules
from simulation.world import World
from support.gates import SOURCE, due, gate_of
from support.stores.statements import counted

ORDERS = queue("orders")
VERDICT_MS = 1_000
FIRST = GroupPlace(before=0, first_id=1, first_state=RowState.WAITING, first_due_at_ms=0)


def order(**options: int) -> OrderGate:
    gate = gate_of(plugin, default_entry={"verdict_ms": VERDICT_MS, **options})
    assert isinstance(gate, OrderGate)
    return gate


def message(name: str = "a", place: GroupPlace | None = FIRST, group: str = "g") -> DueMessage:
    return replace(due(0), redelivery_id=name, group=group, place=place)


def behind(before: int, state: RowState = RowState.WAITING, first_due_at_ms: int = 0) -> DueMessage:
    place = GroupPlace(
        before=before, first_id=7, first_state=state, first_due_at_ms=first_due_at_ms
    )
    return message(f"b{before:03}", place)


def asked(gate: Gate, one: DueMessage, now_ms: int) -> tuple[int, str] | None:
    wait = gate.wait_of(one, now_ms)
    return None if wait is None else (wait.until_ms, wait.reason.partition(" (")[0])


def until(gate: Gate, one: DueMessage, now_ms: int) -> int:
    found = asked(gate, one, now_ms)
    assert found is not None
    return found[0]


def send(gate: OrderGate, one: DueMessage, now_ms: int) -> None:
    assert gate.wait_of(one, now_ms) is None
    gate.passed(one, now_ms)
    gate.arrived(one, now_ms)


def begun() -> OrderGate:
    """Return one that has seen all that may be out at 10,000."""
    gate = order()
    gate.wait_of(due(0), 0)
    return gate


def test_the_next_goes_when_the_one_before_it_did_not_come_back() -> None:
    gate = begun()
    send(gate, message("a"), 10_000)
    told = (11_000, "order: another message of its group was re-sent and may still come back")
    assert asked(gate, message("b"), 10_001) == told
    send(gate, message("b"), 11_000)


def test_what_came_back_goes_again_when_it_is_due() -> None:
    gate = begun()
    send(gate, message("a"), 10_000)
    send(gate, message("a"), 10_100)
    assert asked(gate, message("b"), 10_200) == (
        11_100,
        "order: another message of its group was re-sent and may still come back",
    )


def test_it_counts_from_when_the_broker_has_it() -> None:
    gate = begun()
    gate.passed(message("a"), 10_000)
    gate.arrived(message("a"), 15_000)
    assert until(gate, message("b"), 15_100) == 16_000


def test_without_a_report_of_its_arrival_it_counts_from_the_next_question() -> None:
    """A link was lost, and the next one found the cycle committed."""
    gate = begun()
    gate.passed(message("a"), 10_000)
    for now_ms in (50_000, 50_500):
        assert until(gate, message("b"), now_ms) == 51_000
    send(gate, message("b"), 51_000)


def test_others_are_not_its_business() -> None:
    gate = begun()
    send(gate, message("a"), 10_000)
    assert gate.wait_of(due(0), 10_000) is None
    assert gate.wait_of(message("b", group="other"), 10_000) is None
    assert gate.wait_of(replace(message("b"), destination=queue("else")), 10_000) is None
    some = gate_of(plugin, entries=[{"queue": "else"}])
    assert some.wait_of(behind(1), 10_000) is None
    some.passed(message("a"), 10_000)
    assert some.describe(ORDERS) is None
    told = "one of a group at a time, the next after 10000 ms (sidecar.yaml:7)"
    assert some.describe(queue("else")) == told


def test_after_a_start_the_first_of_a_group_waits_as_if_one_were_out() -> None:
    gate = order()
    told = (6_000, "order: another message of its group may have been re-sent before the start")
    assert asked(gate, message("a"), 5_000) == told
    send(gate, message("a"), 6_000)
    # A person's is not asked about; the next waits for both.
    gate = order()
    gate.passed(replace(message("b", None), passes_gates=True), 5_000)
    gate.arrived(message("b", None), 5_000)
    assert asked(gate, message("b"), 5_900) == (
        6_000,
        "order: another message of its group was re-sent and may still come back",
    )


def test_those_behind_ask_later_the_further_back_they_stand() -> None:
    gate = begun()
    first = "order: message 7 of its group goes first"
    assert asked(gate, behind(1), 10_000) == (11_000, first)
    assert asked(gate, behind(5), 10_000) == (15_000, first)
    assert asked(gate, behind(2, first_due_at_ms=30_000), 10_000) == (32_000, first)


@pytest.mark.parametrize("state", [RowState.HELD, RowState.PARKED])
def test_what_waits_for_a_person_holds_its_group_and_is_named(state: RowState) -> None:
    told = f"order: message 7 of its group goes first, and is {state}: a person must decide"
    assert asked(begun(), behind(3, state), 10_000) == (10_000 + ASK_AGAIN_MS + 2_000, told)


def test_what_waits_for_an_event_names_it_in_place_of_a_person() -> None:
    one = behind(3, RowState.HELD)
    assert one.place is not None
    place = replace(one.place, first_awaits="invoice-1")
    told = "order: message 7 of its group goes first, and is held: it waits for invoice-1"
    found = asked(begun(), replace(one, place=place), 10_000)
    assert found == (10_000 + ASK_AGAIN_MS + 2_000, told)


def test_nobody_waits_long_for_one_that_a_person_may_cancel() -> None:
    assert until(begun(), behind(2, first_due_at_ms=10**9), 10_000) == 10_000 + ASK_AGAIN_MS + 1_000


def test_what_a_person_sends_is_out_and_what_went_before_it_stays_out() -> None:
    gate = begun()
    send(gate, message("a"), 10_000)
    retried = replace(message("c", None), passes_gates=True)
    gate.passed(retried, 10_300)
    gate.arrived(retried, 10_300)
    assert until(gate, message("b"), 10_400) == 11_300
    # It came back and stands first now: of what went before it nobody knows yet.
    assert until(gate, message("c"), 10_500) == 11_000


def test_a_clock_that_is_set_back_delays_no_message_for_long() -> None:
    gate = begun()
    send(gate, message("a"), 10**9)
    assert until(gate, message("b"), 5_000) == 6_000
    send(gate, message("b"), 6_000)


def test_memory_is_bounded_and_the_promise_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqsidecar_order, "GROUPS_MAX", 3)
    gate = begun()
    for name in "abc":
        send(gate, message(name, group=name), 10_000)
    told = "order: 3 other groups have one that was re-sent and may still come back"
    assert asked(gate, message("d", group="d"), 10_500) == (11_500, told)
    gate.passed(replace(message("e", None, "e"), passes_gates=True), 10_600)
    assert len(gate._out) == 3
    send(gate, message("d", group="d"), 11_500)
    assert set(gate._out) == {(ORDERS, "d")}
    # Nobody ever says what became of these.
    for name in "ef":
        gate.passed(message(name, group=name), 12_000)
    for now_ms in (13_000, 14_000, 15_000):
        gate.wait_of(message("h", group="h"), now_ms)
    send(gate, message("h", group="h"), 15_000)


def test_wrong_options_are_reported() -> None:
    with pytest.raises(ConfigError, match="verdict_ms: expected an integer from 100"):
        plugin.parse_options({"default_entry": {"verdict_ms": 1}}, SOURCE)


# ---------------------------------------------------------------------- the law


class Group:
    """A schedule of one group, what is out, and what was promised of it; a method is a step."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.gate = order()
        self.born = 0
        self.due: dict[str, int] = {}
        self.held: set[str] = set()
        self.arrived_ms: dict[str, int] = {}
        self.went: list[str] = []

    def die(self, count: int) -> None:
        for _ in range(1 + count // 4):
            self.due[f"m{self.born:03}"] = self.now_ms
            self.born += 1

    def come_back(self, number: int) -> None:
        """One that is out comes back in time, with a delay of the rules."""
        out = sorted(
            name
            for name, at_ms in self.arrived_ms.items()
            if name not in self.due and self.now_ms - at_ms < VERDICT_MS
        )
        if out:
            self.due[out[number % len(out)]] = self.now_ms + 170 * number

    def cycle(self, number: int) -> None:
        """The broker has what passed a while later."""
        for name in self.passing(150 * number):
            self.arrive(name)
            self.gate.arrived(message(name, None), self.now_ms)

    def lose(self, number: int) -> None:
        """The same, but the link is lost and the gate gets no notice."""
        for name in self.passing(150 * number):
            self.arrive(name)

    def fail(self, number: int) -> None:
        """The broker refuses the cycle."""
        self.passing(150 * number)

    def sleep(self, number: int) -> None:
        self.now_ms += 1 + 150 * number

    def retry(self, number: int) -> None:
        """A person sends one, whichever it is."""
        for name in self.chosen(number):
            self.held.discard(name)
            self.gate.passed(replace(message(name, None), passes_gates=True), self.now_ms)
            self.arrive(name)
            self.gate.arrived(message(name, None), self.now_ms)

    def hold(self, number: int) -> None:
        self.held.update(self.chosen(number))

    def cancel(self, number: int) -> None:
        for name in self.chosen(number):
            self.held.discard(name)
            del self.due[name]

    def release(self, _number: int) -> None:
        self.held.clear()

    def restart(self, _number: int) -> None:
        self.gate = order()

    def chosen(self, number: int) -> list[str]:
        names = sorted(self.due)
        return [names[number % len(names)]] if names else []

    def passing(self, lag_ms: int) -> list[str]:
        """Ask for due rows; return those that pass."""
        passed, names = [], sorted(self.due)
        for name in sorted(set(names) - self.held, key=lambda name: (self.due[name], name)):
            if self.due[name] > self.now_ms:
                continue
            first = names[0]
            place = GroupPlace(
                before=min(names.index(name), GROUP_PLACES_MAX),
                first_id=0,
                first_state=RowState.HELD if first in self.held else RowState.WAITING,
                first_due_at_ms=self.due[first],
            )
            wait = self.gate.wait_of(message(name, place), self.now_ms)
            if wait is None:
                self.check(name)
                self.gate.passed(message(name, place), self.now_ms)
                passed.append(name)
            else:
                assert self.now_ms < wait.until_ms
                self.due[name] = wait.until_ms
        self.now_ms += lag_ms
        return passed

    def check(self, name: str) -> None:
        assert name == min(self.due)
        for other, at_ms in self.arrived_ms.items():
            assert other == name or self.now_ms - at_ms >= VERDICT_MS

    def arrive(self, name: str) -> None:
        del self.due[name]
        self.arrived_ms[name] = self.now_ms
        self.went.append(name)


OF_THE_BROKER = (Group.die, Group.come_back, Group.come_back, Group.sleep)
OF_THE_SIDECAR = (Group.cycle, Group.cycle, Group.lose, Group.fail, Group.restart)
OF_PERSONS = (Group.retry, Group.hold, Group.cancel, Group.release)
STEPS = st.lists(
    st.tuples(st.sampled_from((*OF_THE_BROKER, *OF_THE_SIDECAR, *OF_PERSONS)), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_in_any_history_one_goes_at_a_time_in_order_and_all_go(
    steps: list[tuple[Callable[[Group, int], None], int]],
) -> None:
    group = Group()
    for step, number in steps:
        step(group, number)
    # A person decides, and all are well from now on.
    group.held.clear()
    left, group.went = sorted(group.due), []
    for _ in range(100 + 20 * len(left)):
        group.now_ms = max(group.now_ms, min(group.due.values(), default=0))
        group.cycle(0)
    assert group.went == left


# ---------------------------------------------------------------------- in the cycle


def world_of(tmp_path: Path, **options: int) -> World:
    world = World(tmp_path, CountingRules(maximum=9, delay_ms=0))
    world.gates = Gates({"order": order(**options)})
    world.group_of = group_of
    world.start()
    return world


def run_until(world: World, count: int) -> None:
    for _ in range(1_000):
        if len(world.bodies("orders")) >= count:
            return
        world.run(1)
    raise AssertionError(world.bodies("orders"))


def test_a_group_goes_in_order_also_past_a_restart_and_others_do_not_wait(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for number in (1, 2, 7, 3, 13, 19):  # 1, 7, 13, 19 are of one group; 3 is of none.
        world.die(f"m{number}")
    run_until(world, 3)
    assert world.bodies("orders") == ["m3", "m1", "m2"]
    world.die_again("orders")
    run_until(world, 3)
    assert world.bodies("orders") == ["m3", "m1", "m2"]
    world.kill()
    world.gates = Gates({"order": order()})
    world.start()
    began_ms = world.clock.now_ms()
    run_until(world, 4)
    assert world.clock.now_ms() >= began_ms + VERDICT_MS
    run_until(world, 6)
    assert world.bodies("orders") == ["m3", "m1", "m2", "m7", "m13", "m19"]
    world.kill()


def test_it_is_asked_once_per_cycle_where_groups_wait_and_never_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.die("m3")
    statements = counted(world.store, monkeypatch)
    run_until(world, 1)
    assert statements["group_places"] == 0
    for number in (1, 2, 7, 8, 13):
        world.die(f"m{number}")
    statements.clear()
    while not statements["postpone_rows"]:
        world.run(1)
    assert statements["group_places"] == 1
    world.kill()


def test_a_held_message_holds_up_its_group_until_a_person_cancels_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for number in (1, 7):
        world.die(f"m{number}")
    while world.store.count_rows(RowFilter()) < 2:
        world.run(1)
    first, _ = world.store.list_rows(RowFilter(), 9)
    assert (
        world.store.change(
            RowFilter(ids=(first.id,)), row_changes.hold(world.clock.now_ms(), "ann")
        )
        == 1
    )
    world.run(20)
    _, second = world.store.list_rows(RowFilter(), 9)
    assert second.gate == "order"
    assert f"message {first.id} of its group goes first, and is held" in (second.reason or "")
    assert world.bodies("orders") == []
    world.store.change(
        RowFilter(ids=(first.id,)), row_changes.cancel(world.clock.now_ms(), "ann", ".x")
    )
    run_until(world, 1)
    assert world.bodies("orders") == ["m7"]
    world.kill()


def test_a_long_group_costs_few_writes(tmp_path: Path) -> None:
    count = 300
    world = World(tmp_path, CountingRules(maximum=9, delay_ms=0), max_taken=1_000, max_sent=1_000)
    waits: list[int] = []
    world.gates = Gates({"order": order()}, lambda _name, number: waits.append(number))
    world.group_of = lambda _encoding, _message: "g"
    engine = world.start()
    for number in range(count):
        world.die(f"m{number}")
    while len(world.bodies("orders")) < count:
        engine.turn(3_600.0)
    assert world.bodies("orders") == [f"m{number}" for number in range(count)]
    assert count < sum(waits) <= count * count / 200 + 2 * count
    world.kill()
