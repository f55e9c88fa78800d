"""What lies in a final queue is taken back into the schedule exactly once, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqsidecar.engine.crash_points import NAMES
from amqsidecar.errors import LinkLost
from amqsidecar.model import row_changes
from amqsidecar.model.destination import queue
from amqsidecar.model.event import Held, Missed
from amqsidecar.model.message import MessageEdit
from amqsidecar.model.operation import Action, Operation, Selection
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.message import edit_and_retry
from amqsidecar.operations.operate import Wish, begin, carry_out
from simulation.discards import SUFFIX, discard_some, undo_all
from simulation.rules import DLQ
from simulation.world import FINAL, World
from support.brokers.memory import Killed, StoredMessage
from support.tier import at_length

ALL = RowFilter()
COUNT = 25


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.start()
    yield made
    made.kill()


def exhaust(world: World, count: int = COUNT) -> None:
    """Make messages die until they are in the final queue."""
    for number in range(count):
        world.die(f"m{number:02}")
    for _ in range(2):
        world.run(60)
        world.die_again("orders")
    world.run(60)
    assert sorted(world.bodies(FINAL)) == bodies(count)


def bodies(count: int = COUNT) -> list[str]:
    return [f"m{number:02}" for number in range(count)]


def keep(world: World) -> None:
    """Restart the sidecar with `redelivery.exhausted: keep`."""
    world.kill()
    world.keeps_exhausted = True
    world.start()


def rows_of(world: World) -> list[RowView]:
    return world.store.list_rows(ALL, 1_000)


def kept(world: World) -> list[str]:
    found = [world.store.message(row.id) for row in rows_of(world)]
    return sorted(body.decode() for body in found if body is not None)


def test_all_is_taken_back_with_what_was_known_of_it_and_lives_again(world: World) -> None:
    exhaust(world)
    before = {row.redelivery_id: row for row in rows_of(world)}
    assert all(row.is_in_final_queue for row in before.values())
    keep(world)
    world.run(60)

    assert world.bodies(FINAL) == []
    assert kept(world) == bodies()
    for row in rows_of(world):
        known = before.pop(row.redelivery_id)
        assert (row.state, row.is_final, row.goes_to) == (
            RowState.EXHAUSTED,
            False,
            "queue://orders",
        )
        assert (row.final_queue, row.received_at_ms) == (known.final_queue, known.received_at_ms)
        assert (row.rule, row.cause_group) == (known.rule, known.cause_group)
    assert before == {}
    (place,) = world.store.exhausted_tallies()
    assert (place.is_in_queue, place.count) == (False, COUNT)
    (told,) = world.store.history(rows_of(world)[0].redelivery_id)[-1:]
    assert isinstance(told, Held)

    world.store.change(ALL, row_changes.retry(world.clock.now_ms(), "ann", "mended"))
    world.run(60)
    assert sorted(world.bodies("orders")) == bodies()
    assert {message.redelivery_count for message in world.broker.queue("orders")} == {1}
    assert rows_of(world) == []


def test_what_others_put_there_is_kept_and_what_names_no_origin_is_parked(world: World) -> None:
    exhaust(world, 1)
    world.broker.die(FINAL, StoredMessage(b"foreign"), queue("orders"))
    world.broker.queue(FINAL).append(StoredMessage(b"of nowhere"))
    keep(world)
    world.run(20)

    assert kept(world) == ["foreign", "m00", "of nowhere"]
    states = [(row.state, row.destination) for row in rows_of(world)]
    assert states == [
        (RowState.EXHAUSTED, "queue://orders"),
        (RowState.EXHAUSTED, "queue://orders"),
        (RowState.PARKED, f"queue://{FINAL}"),
    ]


def choose(world: World, *numbers: int, act: row_changes.RowChange) -> tuple[int, ...]:
    """Act as a person on some of the exhausted messages; return their rows."""
    ids = tuple(sorted(row.id for row in rows_of(world))[number] for number in numbers)
    assert world.store.change(RowFilter(ids=ids), act) == len(ids)
    return ids


def test_named_ones_live_again_and_the_others_go_back_in_their_order(world: World) -> None:
    exhaust(world)
    order = world.bodies(FINAL)
    before = {row.id: row.redelivery_id for row in rows_of(world)}
    chosen = choose(world, 3, 4, 20, act=row_changes.retry(0, "ann", "mended"))
    world.run(60)

    lives = world.bodies("orders")
    assert len(lives) == 3
    assert {message.redelivery_count for message in world.broker.queue("orders")} == {1}
    assert world.bodies(FINAL) == [body for body in order if body not in lives]
    left = {row.id: row.redelivery_id for row in rows_of(world)}
    assert left == {one: name for one, name in before.items() if one not in chosen}
    assert all(row.is_in_final_queue for row in rows_of(world))
    (place,) = world.store.exhausted_tallies()
    assert (place.is_in_queue, place.count) == (True, COUNT - 3)


def test_what_the_schedule_does_not_know_keeps_its_place_too(world: World) -> None:
    """Strangers have higher numbers than all that is known, wherever they lie."""
    exhaust(world)
    lying = world.broker.queue(FINAL)
    for place in (0, 4, 5, 13, len(lying) + 4):
        lying.insert(place, StoredMessage(b"stranger %d" % place))
    order = world.bodies(FINAL)
    choose(world, 3, 4, 20, act=row_changes.retry(0, "ann", "mended"))
    world.run(60)
    lives = world.bodies("orders")
    assert len(lives) == 3
    assert world.bodies(FINAL) == [body for body in order if body not in lives]
    assert len(rows_of(world)) == COUNT - 3 + 5


def test_an_operation_that_runs_keeps_the_others_at_hand_under_their_numbers(world: World) -> None:
    exhaust(world)
    operation = begin(world.store, retry_all(), world.clock.now_ms())
    changed = []
    for _ in range(5):
        world.store.step_operation(
            operation.id, row_changes.retry(0, "ann"), None, 5, lambda now: now, is_followed=True
        )
        world.run(20)
        changed.append(len(world.bodies("orders")))
    assert changed == [5, 10, 15, 20, 25]
    assert world.bodies(FINAL) == []
    assert rows_of(world) == []


def retry_all() -> Wish:
    return Wish(
        action=Action.RETRY,
        selection=Selection(rows=RowFilter(state=RowState.EXHAUSTED)),
        actor="ann",
    )


def test_what_others_took_is_missed_and_the_rest_lives(world: World) -> None:
    exhaust(world)
    taken = [world.broker.queue(FINAL).popleft().body.decode() for _ in range(4)]
    names = {row.id: row.redelivery_id for row in rows_of(world)}
    choose(world, *range(COUNT), act=row_changes.retry(0, "ann"))
    world.run(120)

    assert sorted([*world.bodies("orders"), *taken]) == bodies()
    assert rows_of(world) == []
    ends = [world.store.history(name)[-1] for name in names.values()]
    assert sum(isinstance(end, Missed) for end in ends) == 4


def test_discarded_ones_are_gone_and_taken_back_ones_stay(world: World) -> None:
    exhaust(world, 5)
    order = world.bodies(FINAL)
    discarded = choose(world, 0, act=row_changes.discard(0, "ann"))
    kept_ids = choose(world, 2, act=row_changes.take_back(0, "ann"))
    world.run(60)

    assert len(world.bodies(FINAL)) == 3
    assert kept(world) == [body for body in order if body not in world.bodies(FINAL)][1:]
    assert [row.id for row in rows_of(world) if not row.is_in_final_queue] == [*kept_ids]
    assert not {row.id for row in rows_of(world)} & set(discarded)
    assert (
        world.broker.queue(DLQ) == world.broker.queue("orders") == type(world.broker.queue(DLQ))()
    )


def test_redirected_ones_leave_their_final_queue_for_another_and_live_again(world: World) -> None:
    exhaust(world)
    order = world.bodies(FINAL)
    choose(world, 3, 4, 20, act=row_changes.redirect(0, "ann", "queue://repair", "OPS-1207"))
    world.run(60)
    assert [body for body in order if body not in world.bodies("repair")] == world.bodies(FINAL)
    assert len(world.bodies("repair")) == 3
    assert {message.redelivery_count for message in world.broker.queue("repair")} == {1}
    assert len(rows_of(world)) == COUNT - 3


def test_one_that_was_taken_back_is_edited_and_lives_again(world: World) -> None:
    exhaust(world, 5)

    def edit(row_id: int) -> Operation:
        return edit_and_retry(
            *(world.store, row_id, MessageEdit(text="mended"), lambda *_: b"mended"),
            now_ms=world.clock.now_ms(),
            actor="ann",
        )

    first = sorted(row.id for row in rows_of(world))[0]
    with pytest.raises(ActionRefused, match="an edit takes it back first"):
        edit(first)
    choose(world, 0, act=row_changes.take_back(0, "ann"))
    world.run(60)
    operation = edit(first)
    carry_out(world.store, operation.id, "me", SUFFIX, world.clock.now_ms)
    world.run(60)
    assert world.bodies("orders") == ["mended"]
    assert {message.redelivery_count for message in world.broker.queue("orders")} == {1}
    assert len(world.bodies(FINAL)) == 4


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 60])
def test_an_undone_discard_goes_back_to_its_final_queue_whenever_it_is_undone(
    world: World, turns: int
) -> None:
    exhaust(world)
    before = {row.id: row.redelivery_id for row in rows_of(world)}
    number = discard_some(world, 7)
    world.run(turns)
    undo_all(world, number)
    world.run(90)
    assert sorted(world.bodies(FINAL)) == bodies()
    assert {row.id: row.redelivery_id for row in rows_of(world)} == before
    assert all(row.is_in_final_queue for row in rows_of(world))
    assert world.store.count_discarded(number) == 0
    (place,) = world.store.exhausted_tallies()
    assert (place.is_in_queue, place.count) == (True, COUNT)
    if turns == 60:
        last = world.store.operation(number)
        assert last is not None
        assert last.restored == 7


def crash_at(world: World, point: str) -> list[str]:
    """Kill the process eight times at a crash point; return where it was killed so far."""
    hits: list[str] = []

    def is_hit(name: str) -> bool:
        if name != point or len(hits) == 8:
            return False
        hits.append(name)
        return True

    world.crash_at = is_hit
    return hits


@pytest.mark.parametrize("point", NAMES)
def test_killed_while_a_discard_is_undone_nothing_is_lost_or_doubled(
    world: World, point: str
) -> None:
    exhaust(world)
    number = discard_some(world, 7)
    hits = crash_at(world, point)
    go_on(world, lambda: len(hits) > 0 or not rows_of(world)[0].is_in_final_queue)
    undo_all(world, number)
    go_on(world, lambda: len(world.bodies(FINAL)) == COUNT and not world.broker.count(DLQ))
    world.crash_at = lambda _name: False
    world.run(60)
    assert sorted(world.bodies(FINAL)) == bodies()
    assert len(rows_of(world)) == COUNT
    assert all(row.is_in_final_queue for row in rows_of(world))


def test_what_a_person_gave_up_stays_in_its_queue_also_where_exhausted_ones_are_kept(
    world: World,
) -> None:
    exhaust(world)
    keep(world)
    world.run(60)
    choose(world, 1, 2, act=row_changes.cancel(world.clock.now_ms(), "ann", ".exhausted"))
    world.run(60)
    assert len(world.bodies(FINAL)) == 2
    restart(world, keeps=True)
    world.run(60)
    assert len(world.bodies(FINAL)) == 2
    assert len(kept(world)) == COUNT - 2


@pytest.mark.parametrize("point", NAMES)
def test_killed_while_named_ones_are_taken_back_nothing_is_lost_or_doubled(
    world: World, point: str
) -> None:
    exhaust(world)
    choose(world, 3, 4, 20, act=row_changes.retry(0, "ann"))
    hits = crash_at(world, point)
    go_on(world, lambda: len(world.bodies("orders")) == 3 and len(world.bodies(FINAL)) == COUNT - 3)
    world.crash_at = lambda _name: False
    world.run(9)
    assert sorted(world.bodies("orders") + world.bodies(FINAL)) == bodies()
    assert len(rows_of(world)) == COUNT - 3
    assert hits or point in ("sent", "committing")


@pytest.mark.parametrize("point", NAMES)
def test_killed_at_each_crash_point_nothing_is_lost_or_doubled(world: World, point: str) -> None:
    exhaust(world)
    hits = crash_at(world, point)
    keep(world)
    go_on(world, lambda: not world.broker.count(FINAL))
    world.crash_at = lambda _name: False
    world.run(9)
    assert kept(world) == bodies()
    assert len(rows_of(world)) == COUNT
    assert hits or point in ("sent", "committing")


@pytest.mark.parametrize("seed", range(at_length(40, otherwise=20)))
def test_nothing_is_lost_or_doubled_while_links_end_and_messages_go_to_and_fro(
    world: World, seed: int
) -> None:
    """A person turns keeping on and off, gives up and retries; processes die, links are lost."""
    chance = random.Random(seed)
    exhaust(world)
    world.crash_at = lambda _name: chance.random() < 0.02
    world.broker.commit_fault = lambda: (
        chance.choice(["lost_before", "lost_after"]) if chance.random() < 0.05 else None
    )
    for _ in range(30):
        restart(world, keeps=chance.random() < 0.6)
        now_ms = world.clock.now_ms()
        act = chance.choice(
            [
                row_changes.retry(now_ms, "ann"),
                row_changes.cancel(now_ms, "ann", ".exhausted"),
                row_changes.take_back(now_ms, "ann"),
            ]
        )
        ids = tuple(row.id for row in rows_of(world) if chance.random() < 0.3)
        world.store.change(RowFilter(ids=ids), act)
        go_on(world, lambda: chance.random() < 0.2)
    world.crash_at = lambda _name: False
    world.broker.commit_fault = lambda: None
    restart(world, keeps=True)
    world.run(100)
    world.store.change(ALL, row_changes.take_back(world.clock.now_ms(), "ann"))
    world.run(100)

    assert world.bodies(FINAL) == world.bodies(DLQ) == []
    assert sorted(kept(world) + world.bodies("orders")) == bodies()
    assert len(rows_of(world)) == len(kept(world))


def restart(world: World, *, keeps: bool) -> None:
    world.kill()
    world.keeps_exhausted = keeps
    while True:
        try:
            world.start()
        except (Killed, LinkLost):
            world.kill()
        else:
            return


def go_on(world: World, is_over: Callable[[], bool]) -> None:
    """Run turns of the sidecar, and restart it when it dies or loses its link."""
    for _ in range(300):
        if is_over():
            return
        try:
            world.run(1)
        except (Killed, LinkLost):
            restart(world, keeps=world.keeps_exhausted)
    raise AssertionError("it does not get there")
