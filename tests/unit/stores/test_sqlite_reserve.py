"""The reserve of a SQLite store, on a volume that is full."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.errors import StoreFull, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations import operate
from amqsidecar.stores.sqlite.reserve import FULL_PAUSE_S, Reserve
from amqsidecar.stores.sqlite.store import SqliteStore
from support.machine.small_volume import SmallVolume, small_volume
from support.stores.full_volume import ALL, MIB, do_all_but_taking, drain, send, take
from support.virtual_clock import VirtualClock
from support.waiting import eventually


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[SmallVolume]:
    with small_volume(tmp_path / "volume", 16) as mounted:
        yield mounted


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def opened(volume: SmallVolume, clock: VirtualClock) -> Iterator[Callable[..., SqliteStore]]:
    made: list[SqliteStore] = []

    def open_one(*, is_service: bool = True, reserve_bytes: int = 64 * MIB) -> SqliteStore:
        store = SqliteStore(volume.folder / "schedule.db", clock=clock, reserve_bytes=reserve_bytes)
        made.append(store)
        if is_service:
            store.lock_for_service()
        store.open()
        return store

    yield open_one
    for store in made:
        store.close()


def reserve_of(volume: SmallVolume) -> Path:
    return volume.folder / "schedule.db.reserve"


def take_until_short(store: SqliteStore, volume: SmallVolume) -> int:
    """Take until the store says that its volume is short; return how many were taken."""
    taken = 0
    with closing(sqlite3.connect(volume.folder / "schedule.db", isolation_level=None)) as beside:

        def is_moved() -> bool:
            """Move the pages of the log into the file, and return whether none is left."""
            _, logged, moved = beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return bool(logged == moved)

        while store.room().is_enough:
            taken += len(take(store))
            # Why: on a busy machine the store's own thread stops in the middle of this, and the log
            # fills the volume meanwhile.
            eventually(is_moved, what="the log is moved into the file")
    return taken


def test_taking_stops_before_the_volume_is_full_and_all_that_waits_drains(
    volume: SmallVolume, opened: Callable[..., SqliteStore]
) -> None:
    store = opened()
    assert store.room().is_enough
    assert reserve_of(volume).stat().st_size == 2 * MIB
    taken = take_until_short(store, volume)
    assert taken > 100
    assert 0 < reserve_of(volume).stat().st_size < 2 * MIB
    assert "no dead letters are taken" in store.room().reason
    assert drain(store) == taken
    while store.shrink():
        pass
    store.close()
    store = opened()
    assert store.room().is_enough
    assert reserve_of(volume).exists()


@pytest.mark.parametrize("size", [8 * 1024, 24 * 1024, 48 * 1024])
def test_the_room_that_its_own_log_gives_back_does_not_start_taking_again(
    volume: SmallVolume, opened: Callable[..., SqliteStore], size: int
) -> None:
    store = opened()
    log = volume.folder / "schedule.db-wal"
    while store.room().is_enough:
        take(store, size)
        if not store.room().is_enough:
            # Why: on a busy machine the log is cut late, and is then longer than the margin.
            eventually(lambda: log.stat().st_size == 0, what="the log is cut")
    store.close()
    assert {path.name for path in volume.folder.iterdir()} == {
        *("schedule.db", "schedule.db.lock", "schedule.db.reserve")
    }
    assert not opened().room().is_enough


def test_a_drain_makes_room_without_another_commit(
    volume: SmallVolume, opened: Callable[..., SqliteStore]
) -> None:
    store = opened()
    take_until_short(store, volume)
    volume.fill()
    drain(store)
    volume.free()
    keeper = opened(is_service=False)
    while keeper.shrink():
        pass
    assert store.room().is_enough


@pytest.mark.parametrize("is_anew", [False, True], ids=["running", "after a restart"])
def test_others_that_fill_a_short_volume_leave_the_room_for_all_but_taking(
    volume: SmallVolume, opened: Callable[..., SqliteStore], is_anew: bool
) -> None:
    store = opened()
    taken = take_until_short(store, volume)
    log = volume.folder / "schedule.db-wal"
    eventually(lambda: log.stat().st_size == 0, what="the log is cut")
    if is_anew:
        store.close()
    volume.fill()
    assert volume.free_bytes() == 0
    if is_anew:
        store = opened()
    assert not store.room().is_enough
    assert drain(store) == taken


@pytest.mark.parametrize("is_anew", [False, True], ids=["running", "after a restart"])
def test_on_a_volume_full_to_its_last_byte_all_but_taking_works(
    volume: SmallVolume,
    opened: Callable[..., SqliteStore],
    clock: VirtualClock,
    is_anew: bool,
) -> None:
    store = opened()
    for _ in range(8):
        store.room()
        take(store)
    assert store.room().is_enough
    if is_anew:
        store.close()
    volume.fill()
    assert volume.free_bytes() == 0
    if is_anew:
        store = opened()
    assert not store.room().is_enough

    person = opened(is_service=False)
    do_all_but_taking(store, person, clock)
    assert not store.room().is_enough
    volume.free()
    assert store.room().is_enough


def test_a_command_alone_acts_on_a_full_volume(
    volume: SmallVolume, opened: Callable[..., SqliteStore]
) -> None:
    store = opened()
    store.room()
    (row, *_) = take(store)
    store.close()
    volume.fill()
    person = opened(is_service=False)
    assert person.change(RowFilter(ids=(row.id,)), row_changes.discard(1, "ann", 7)) == 1
    assert person.count_discarded(7) == 0  # What makes room is kept by nobody.
    assert not person.room().is_enough


def test_after_a_write_that_found_it_full_nothing_is_taken_for_a_while(
    volume: SmallVolume, opened: Callable[..., SqliteStore], clock: VirtualClock
) -> None:
    """One large message doesn't fit, though there seems to be enough."""
    store = opened()
    assert store.room().is_enough
    with pytest.raises(StoreFull):
        take(store, MIB)
    assert not store.room().is_enough
    assert send(store) == 0
    clock.advance(round(FULL_PAUSE_S * 1000))
    eventually(lambda: store.room().is_enough, what="what was written of it is gone")


def test_once_the_volume_has_grown_dead_letters_are_taken_at_once(
    volume: SmallVolume, opened: Callable[..., SqliteStore]
) -> None:
    store = opened()
    assert store.room().is_enough
    volume.fill(leave_bytes=64 * 1024)
    with pytest.raises(StoreFull):
        take(store, MIB)
    assert not store.room().is_enough
    volume.free()
    assert store.room().is_enough


@pytest.mark.parametrize("left_bytes", [0, 512 * 1024], ids=["full", "short"])
def test_a_volume_that_takes_no_writes_any_more_is_a_fault_of_the_store(
    volume: SmallVolume,
    opened: Callable[..., SqliteStore],
    clock: VirtualClock,
    left_bytes: int,
) -> None:
    """The reserve can't be cut then; a service waits for a store, and ends at any other error."""
    store = opened()
    assert store.room().is_enough
    store.close()
    volume.fill(leave_bytes=left_bytes)
    volume.make_read_only()
    with pytest.raises(StoreUnavailable, match="Read-only file system"):
        store.lock_for_service()
    reserve = Reserve(volume.folder / "schedule.db", 64 * MIB, clock)
    reserve.note_full()
    reserve.keep()


class _FullLater(SqliteStore):
    """A store in which keeping an operation finds the volume full."""

    is_full = False

    def add_operation(self, operation: Any) -> Any:
        if self.is_full:
            raise StoreFull("full")
        return super().add_operation(operation)

    def update_members(self, *arguments: Any) -> None:
        if self.is_full:
            raise StoreFull("full")
        super().update_members(*arguments)


def test_an_operation_that_could_not_begin_leaves_nothing_behind(
    tmp_path: Path, clock: VirtualClock
) -> None:
    store = _FullLater(tmp_path / "schedule.db", clock=clock)
    store.open()
    store.is_full = True
    wish = operate.Wish(action=Action.HOLD, selection=Selection(rows=ALL), actor="ann")
    with pytest.raises(StoreFull):
        operate.begin(store, wish, clock.now_ms())
    assert store.operations(10) == []
    store.close()


def test_the_log_is_cut_where_the_volume_is_short_though_no_commit_follows(
    volume: SmallVolume, opened: Callable[..., SqliteStore]
) -> None:
    store = opened()
    assert store.room().is_enough
    take(store)
    log, checkpoints = volume.folder / "schedule.db-wal", store._checkpoints
    assert checkpoints is not None
    eventually(lambda: not checkpoints._has_committed.is_set(), what="the commit was noticed")
    volume.fill(leave_bytes=512 * 1024)
    assert not store.room().is_enough
    eventually(lambda: log.stat().st_size == 0, what="the log is cut")
