"""What goes wrong outside does not lose, double or stop anything: one claim per test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from amqsidecar.broker import Delivery, Resend
from amqsidecar.clock import SLEW
from amqsidecar.engine.recovery import HOLDER, NOT_OF_ONE_TIME
from amqsidecar.errors import LinkLost, SendsRefused
from amqsidecar.model import row_changes
from amqsidecar.model.event import CycleInDoubt, CycleRecovered, Parked, Resent
from amqsidecar.model.operation import Action, OperationState, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.operate import Wish, begin
from simulation.rules import DLQ, CountingRules
from simulation.world import World
from support.brokers.memory import ENCODING, MemoryLink, StoredMessage, Token
from support.stores.opened import opened
from support.stores.rows import take_rows, taken_row
from support.stores.unsynced import UnsyncedStore

ALL = RowFilter()
PARKED = RowFilter(state=RowState.PARKED)
WAITING = RowFilter(state=RowState.WAITING)
RETRY_ALL = Wish(action=Action.RETRY, selection=Selection(rows=ALL), actor="ann")


def started(folder: Path, **limits: int) -> World:
    world = World(folder, CountingRules(delay_ms=0), **limits)
    world.start()
    return world


def run_until(world: World, condition: Callable[[], object], turns: int = 500) -> None:
    for _ in range(turns):
        if condition():
            return
        world.run(1)
    raise AssertionError(f"not so after {turns} turns")


def test_a_broker_that_commits_nothing_is_not_the_messages_fault(tmp_path: Path) -> None:
    world = started(tmp_path)
    for number in range(30):
        world.die(f"m{number}")
    run_until(world, lambda: world.store.count_rows(ALL) >= 10)
    world.broker.refuse_commit = lambda _sends: "the journal is broken"
    for _ in range(5):
        with pytest.raises(LinkLost, match="commits nothing at all"):
            world.run(100)
        world.link.close()
        world.connect()
    assert world.store.count_rows(PARKED) == 0
    world.broker.refuse_commit = lambda _sends: None
    run_until(world, lambda: len(world.bodies("orders")) == 30)
    world.kill()


def test_rows_that_can_not_go_do_not_hide_those_that_can(tmp_path: Path) -> None:
    """Once with every send refused, so that the next cycles are small ones."""
    world = started(tmp_path, max_taken=100, max_sent=100)
    world.broker.refuse_send = lambda send: "full" if send.destination.name == "full" else None
    for number in range(500):
        world.die(f"m{number}", origin="full")
    run_until(world, lambda: world.store.count_rows(ALL) == 500)
    world.die("other", origin="open")
    run_until(world, lambda: world.bodies("open"), turns=20)
    world.kill()


def test_a_destination_that_is_full_now_and_then_parks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(tmp_path, max_taken=100, max_sent=100)
    commit = world.link.commit_cycle

    def commit_what_fits(accepts: Sequence[Delivery], sends: Sequence[Resend], token: int) -> None:
        room = 20 - len(world.broker.queue("orders"))
        if len(sends) > room:
            raise SendsRefused(dict.fromkeys(range(room, len(sends)), "full"))
        commit(accepts, sends, token)

    monkeypatch.setattr(world.link, "commit_cycle", commit_what_fits)
    for number in range(300):
        world.die(f"m{number}")
    for step in range(3_000):
        world.run(1)
        if step % 10 == 0 and world.broker.queue("orders"):
            world.broker.queue("orders").popleft()
    assert not [event for event in world.events if type(event) is Parked]
    world.kill()


def connect_with_poison(
    world: World, patch: pytest.MonkeyPatch, is_poison: Callable[[Resend], bool]
) -> None:
    """Connect to a broker that ends the connection when it gets a certain message."""
    world.connect()
    link = world.link
    commit = link.commit_cycle

    def commit_or_end(accepts: Sequence[Delivery], sends: Sequence[Resend], token: int) -> None:
        if any(map(is_poison, sends)):
            link.close()
            raise LinkLost("the broker closed the connection")
        commit(accepts, sends, token)

    patch.setattr(link, "commit_cycle", commit_or_end)


def test_a_message_that_ends_the_connection_is_found_and_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(tmp_path)
    for number in range(30):
        world.die(f"m{number}")
    losses = 0
    connect_with_poison(world, monkeypatch, lambda send: send.message == b"m7")
    while len(world.bodies("orders")) < 29 or not world.store.count_rows(PARKED):
        try:
            world.run(1)
        except LinkLost:
            losses += 1
            assert losses < 15
            connect_with_poison(world, monkeypatch, lambda send: send.message == b"m7")
    world.engine.settle_up()
    (row,) = world.store.list_rows(ALL, 10)
    assert (row.state, world.store.message(row.id)) == (RowState.PARKED, b"m7")
    world.kill()


def test_a_destination_that_ends_the_connection_holds_only_its_own_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue on Classic blocks the whole connection until it is given up."""
    world = started(tmp_path)
    for number in range(20):
        world.die(f"m{number}", origin="full" if number % 2 else "open")
    is_full = True
    connect_with_poison(world, monkeypatch, lambda send: send.destination.name == "full")
    losses = 0
    for _ in range(60):
        try:
            world.run(1)
        except LinkLost:
            losses += 1
            connect_with_poison(
                world, monkeypatch, lambda send: is_full and send.destination.name == "full"
            )
    assert len(world.bodies("open")) == 10
    assert losses < 20
    is_full = False
    run_until(world, lambda: len(world.bodies("full")) == 10)
    world.kill()


def test_rows_of_another_encoding_do_not_block_a_destination(tmp_path: Path) -> None:
    world = started(tmp_path)
    for number in range(5):
        world.die(f"old{number}")
    run_until(world, lambda: world.store.count_rows(ALL))
    world.link_type = partial(MemoryLink, encoding="other/1")
    world.connect()

    def has_got(body: str) -> bool:
        return body in world.bodies("orders")

    for number in range(5):
        world.die(f"new{number}", encoding="other/1")
        run_until(world, partial(has_got, f"new{number}"), turns=10)
    world.engine.settle_up()
    assert all("memory/1" in (row.reason or "") for row in world.store.list_rows(ALL, 10))
    world.kill()


def test_a_row_for_a_queue_that_is_read_is_parked_and_does_not_circle(tmp_path: Path) -> None:
    """A person retried one without origin; sent there it would lose what is left of its past."""
    world = started(tmp_path)
    world.broker.queue(DLQ).append(StoredMessage(b"a"))
    run_until(world, lambda: world.store.count_rows(PARKED))
    assert world.store.change(ALL, row_changes.retry(world.clock.now_ms(), "someone")) == 1
    run_until(world, lambda: world.store.count_rows(PARKED), turns=5)
    assert world.bodies(DLQ) == []
    (row,) = world.store.list_rows(ALL, 10)
    assert row.reason is not None
    assert "would come back without its history" in row.reason
    assert (
        world.store.change(ALL, row_changes.cancel(world.clock.now_ms(), "someone", ".exhausted"))
        == 1
    )
    run_until(world, lambda: world.bodies("DLQ.exhausted") == ["a"])
    world.kill()


def copy_of(world: World, to: Path) -> None:
    world.store.close()
    shutil.copy(world.path, to)
    world.connect()


def bring_back(world: World, backup: Path) -> None:
    world.kill()
    for left in world.path.parent.glob("schedule.db-*"):
        left.unlink()
    shutil.copy(backup, world.path)


@pytest.mark.parametrize("is_token_purged", [False, True])
def test_new_messages_of_a_restored_store_have_redelivery_ids_of_their_own(
    tmp_path: Path, is_token_purged: bool
) -> None:
    world = started(tmp_path)
    copy_of(world, tmp_path / "backup")
    for number in range(3):
        world.die(f"m{number}")
    run_until(world, lambda: len(world.bodies("orders")) == 3)
    bring_back(world, tmp_path / "backup")
    if is_token_purged:
        world.broker.tokens.clear()
    world.start()
    for number in range(3):
        world.die(f"new{number}")
    run_until(world, lambda: len(world.bodies("orders")) == 6)
    assert CycleInDoubt in map(type, world.events)
    ids = [event.redelivery_id for event in world.events if isinstance(event, Resent)]
    assert len(set(ids)) == len(ids) == 6
    world.kill()


def sent_and_set_back(tmp_path: Path) -> World:
    """Bring back a store in which ten wait that were sent since; it is not started yet."""
    world = World(tmp_path, CountingRules(delay_ms=60_000))
    world.start()
    for number in range(10):
        world.die(f"m{number}")
    run_until(world, lambda: world.store.count_rows(WAITING) == 10)
    begin(world.store, RETRY_ALL, world.clock.now_ms())
    copy_of(world, tmp_path / "backup")
    world.clock.advance(60_000)
    run_until(world, lambda: len(world.bodies("orders")) == 10)
    bring_back(world, tmp_path / "backup")
    return world


def test_what_a_restored_store_may_have_sent_is_held_for_a_person(tmp_path: Path) -> None:
    world = sent_and_set_back(tmp_path)
    world.start()
    world.die("new")
    world.clock.advance(60_000)
    run_until(world, lambda: world.store.count_rows(WAITING))
    world.clock.advance(60_000)
    run_until(world, lambda: "new" in world.bodies("orders"))
    world.run(10)
    assert len(world.bodies("orders")) == 11
    rows = world.store.list_rows(ALL, 100)
    assert [(row.state, row.reason) for row in rows] == [(RowState.HELD, f"held by {HOLDER}")] * 10
    (doubt,) = (event for event in world.events if type(event) is CycleInDoubt)
    assert "10 that waited are held" in doubt.reason
    (operation,) = world.store.operations(10)
    assert operation.state is OperationState.PAUSED
    assert NOT_OF_ONE_TIME in operation.state_reason
    world.kill()
    world.start()
    assert [type(event) for event in world.events].count(CycleInDoubt) == 1
    assert world.store.change(ALL, row_changes.release(world.clock.now_ms(), "ann")) == 10
    run_until(world, lambda: len(world.bodies("orders")) == 21)
    world.kill()


def test_a_start_that_is_interrupted_holds_the_rest_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LostWhileHolding(MemoryLink):
        def wait(self, timeout_s: float) -> None:
            raise LinkLost("the broker ended it")

    world = sent_and_set_back(tmp_path)
    monkeypatch.setattr("amqsidecar.stores.sqlite.store.CHUNK_ROWS", 4)
    world.link_type = LostWhileHolding
    with pytest.raises(LinkLost):
        world.start()
    assert world.store.count_rows(WAITING) == 6
    world.link_type = MemoryLink
    world.connect()
    world.run(10)
    assert len(world.bodies("orders")) == 10
    assert world.store.count_rows(WAITING) == 0
    world.kill()


def test_dead_letters_that_a_restored_broker_has_again_are_not_sent_twice(tmp_path: Path) -> None:
    """They are in the store, too, and held there; the broker's copies are taken again."""
    world = World(tmp_path, CountingRules(delay_ms=60_000))
    world.start()
    world.die("before")
    run_until(world, lambda: world.store.count_rows(WAITING) == 1)
    world.kill()
    tokens = [Token(token.cycle) for token in world.broker.tokens]
    world.start()
    world.die("again")
    run_until(world, lambda: world.store.count_rows(WAITING) == 2)
    world.die("more")
    run_until(world, lambda: world.store.count_rows(WAITING) == 3)
    world.kill()
    world.broker.tokens[:] = tokens
    for body in ("again", "more"):
        world.die(body)
    world.start()
    run_until(world, lambda: world.store.count_rows(WAITING) == 2)
    world.clock.advance(60_000)
    run_until(world, lambda: len(world.bodies("orders")) == 2)
    assert sorted(world.bodies("orders")) == ["again", "more"]
    world.kill()


def test_two_stores_of_one_name_do_not_take_each_others_token_for_a_proof(tmp_path: Path) -> None:
    first, second = (World(tmp_path / name, CountingRules(delay_ms=0)) for name in ("a", "b"))
    for world in (first, second):
        world.path.parent.mkdir()
    second.broker = first.broker
    first.start()
    first.die("pay")
    run_until(first, lambda: first.store.count_rows(ALL))
    first.broker.commit_fault = lambda: "lost_before"
    with pytest.raises(LinkLost):
        first.run(5)
    first.broker.commit_fault = lambda: None
    second.start()
    second.die("other", origin="elsewhere")
    while not second.stats:
        second.run(1)
    second.kill()
    first.connect()
    assert first.store.change(ALL, row_changes.release(first.clock.now_ms(), "ann")) == 1
    run_until(first, lambda: first.bodies("orders") == ["pay"])
    assert not [event for event in first.events if type(event) is CycleRecovered]
    assert [event.sent_count for event in first.events if type(event) is CycleInDoubt] == [1]
    first.kill()


def test_a_link_lost_right_after_its_first_token_leaves_no_cycle_in_doubt(tmp_path: Path) -> None:
    class LostAfterCreation(MemoryLink):
        def create_token(self, number: int) -> None:
            super().create_token(number)
            raise LinkLost("the broker ended it")

    world = World(tmp_path)
    world.link_type = LostAfterCreation
    with pytest.raises(LinkLost):
        world.start()
    world.link_type = MemoryLink
    world.broker.commit_fault = lambda: "lost_before"
    for _ in range(2):
        with suppress(LinkLost):
            world.connect()
    assert [type(event) for event in world.events] == []
    world.broker.commit_fault = lambda: None
    world.connect()
    world.die("pay")
    run_until(world, lambda: world.store.count_rows(ALL))
    world.kill()


@pytest.mark.parametrize("fault", ["lost_before", "lost_after"])
def test_a_link_lost_while_it_takes_over_another_stores_token_leaves_no_cycle_in_doubt(
    tmp_path: Path, fault: str
) -> None:
    """Store and broker are of one time: nothing that waits is held for a person."""
    world = started(tmp_path)
    world.die("before")
    run_until(world, lambda: world.bodies("orders") == ["before"])
    world.kill()
    world.path.unlink()
    world.rules.delay_ms = 60_000
    with closing(opened(UnsyncedStore(world.path, clock=world.clock))) as store:
        take_rows(store, 1, [taken_row(1, encoding=ENCODING, due_at_ms=world.clock.now_ms())])
    world.broker.commit_fault = iter([fault]).__next__
    with pytest.raises(LinkLost):
        world.start()
    world.broker.commit_fault = lambda: None
    world.start()
    world.run(1)
    assert [one for one in world.events if type(one) in (CycleInDoubt, CycleRecovered)] == []
    assert world.store.count_rows(RowFilter(state=RowState.HELD)) == 0
    run_until(world, lambda: len(world.bodies("orders")) == 2)
    world.kill()


def test_a_new_store_makes_no_second_token_while_another_holds_the_first(tmp_path: Path) -> None:
    class Elsewhere(MemoryLink):
        def take_token(self, timeout_s: float) -> int | None:
            return None

        def token_exists(self) -> bool | None:
            return True

    world = World(tmp_path)
    world.start()
    world.kill()
    world.path.unlink()
    world.link_type = Elsewhere
    with pytest.raises(AssertionError):
        world.start()
    assert len(world.broker.tokens) == 1
    world.store.close()


@pytest.mark.parametrize(("tells_tokens", "waits_s"), [(True, 0.05), (False, 1.0)])
def test_a_new_store_waits_for_a_token_only_where_there_may_be_one(
    tmp_path: Path, tells_tokens: bool, waits_s: float
) -> None:
    """Where the broker says that there is none, it still looks twice before it makes one."""
    waited_s: list[float] = []
    looks: list[bool | None] = []

    class Watched(MemoryLink):
        def take_token(self, timeout_s: float) -> int | None:
            waited_s.append(timeout_s)
            return super().take_token(timeout_s)

        def token_exists(self) -> bool | None:
            looks.append(super().token_exists())
            return looks[-1]

    world = World(tmp_path)
    world.broker.tells_tokens = tells_tokens
    world.link_type = Watched
    world.start()
    assert waited_s[0] == waits_s
    assert looks[:2] == ([False, False] if tells_tokens else [None, None])
    world.kill()


def test_a_token_that_came_late_is_not_taken_for_the_one_that_was_made(tmp_path: Path) -> None:
    """Its numbers would go on from a smaller one, and prove to the other what did not happen."""

    others: list[int] = []

    class Late(MemoryLink):
        def create_token(self, cycle: int) -> None:
            super().create_token(cycle)
            others.append(cycle + 1_000)
            self.broker.tokens.append(Token(cycle + 1_000))

    world = World(tmp_path)
    world.link_type = Late
    with pytest.raises(AssertionError):
        world.start()
    [other] = others
    world.connect()
    token = world.link.token.take(0)
    assert token is not None
    assert token > other
    world.kill()


def test_two_new_stores_of_one_name_count_from_different_numbers(tmp_path: Path) -> None:
    """Where both began with 1, the token of one proved to the other what had not happened."""
    tokens = []
    for name in ("a", "b"):
        world = World(tmp_path / name)
        world.path.parent.mkdir()
        world.start()
        token = world.link.token.take(0)
        assert token is not None
        tokens.append(token)
        world.kill()
    assert abs(tokens[0] - tokens[1]) > 100


def test_a_takeover_is_over_with_the_first_start(tmp_path: Path) -> None:
    """The token follows at once, so that the next start has nothing to doubt."""
    world = started(tmp_path)
    world.kill()
    for left in world.path.parent.glob("schedule.db*"):
        left.unlink()
    world.start()
    world.kill()
    world.start()
    assert [type(event) for event in world.events] == []
    world.kill()


def test_a_clock_that_is_set_back_blocks_no_destination_until_it_has_caught_up(
    tmp_path: Path,
) -> None:
    """What waited there goes when it would have gone, too."""
    world = started(tmp_path)
    world.clock.advance(10_000_000)
    world.broker.unroutable.add("orders")
    world.die("a")
    run_until(world, lambda: len(world.blockages))
    world.broker.unroutable.clear()
    world.clock.jump(-3_600_000)
    world.die("b")
    set_ms = world.clock.current_ms
    run_until(world, lambda: sorted(world.bodies("orders")) == ["a", "b"])
    assert world.clock.current_ms - set_ms < 3_600_000
    world.kill()


@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000], ids=("back", "ahead"))
@pytest.mark.parametrize("is_restarted", [False, True], ids=("lives", "restarted"))
def test_a_delay_is_a_delay_whatever_is_done_to_the_wall_clock(
    tmp_path: Path, set_by_ms: int, *, is_restarted: bool
) -> None:
    """12 s stay 12 s; only a process that starts after a step ahead believes it."""
    world = World(tmp_path, CountingRules(delay_ms=12_000))
    world.start()
    world.die("a")
    run_until(world, lambda: world.store is not None and world.store.count_rows(ALL) == 1)
    taken_ms = world.clock.current_ms
    world.clock.jump(set_by_ms)
    if is_restarted:
        world.kill()
        world.start()

    def arrived() -> bool:
        world.own_clock.look()
        return world.bodies("orders") == ["a"]

    run_until(world, arrived)
    waited_ms = world.clock.current_ms - taken_ms
    shortest_ms = 0 if is_restarted and set_by_ms > 0 else 12_000 * SLEW / (SLEW + 1)
    assert shortest_ms <= waited_ms <= 12_000 * SLEW / (SLEW - 1) + 2_000
    world.kill()
