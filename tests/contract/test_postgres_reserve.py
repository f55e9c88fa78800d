"""The reserve of a schedule in PostgreSQL, in a tablespace whose volume gets full."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from amqsidecar.errors import StoreFull
from amqsidecar.stores.postgres.store import PostgresStore
from support.machine.small_volume import SmallVolume, small_volume
from support.stores.full_volume import MIB, do_all_but_taking, take
from support.stores.postgres_server import PostgresServer
from support.virtual_clock import VirtualClock
from support.waiting import eventually


@pytest.fixture
def volume() -> Iterator[SmallVolume]:
    with tempfile.TemporaryDirectory() as name:
        # Why: the server's user goes through all folders above its own.
        Path(name).chmod(0o755)
        with small_volume(Path(name, "volume"), 64) as mounted:
            shutil.chown(mounted.folder, "postgres")
            yield mounted


@pytest.fixture
def url(volume: SmallVolume) -> Iterator[str]:
    """The URL of a database that lies on the volume."""
    with PostgresServer() as server, server.database() as anywhere:
        with psycopg.connect(anywhere, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{volume.folder}'")
            connection.execute("CREATE DATABASE small TABLESPACE small TEMPLATE template0")
        yield anywhere.rpartition("/")[0] + "/small"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def opened(url: str, clock: VirtualClock) -> Iterator[Callable[..., PostgresStore]]:
    made: list[PostgresStore] = []

    def open_one(*, is_service: bool = True) -> PostgresStore:
        store = PostgresStore(url, clock=clock, reserve_bytes=8 * MIB)
        made.append(store)
        if is_service:
            store.lock_for_service()
        store.open()
        return store

    yield open_one
    for store in made:
        store.close()


def take_for_ever(store: PostgresStore) -> None:
    while True:
        take(store)


def room_after_a_while(store: PostgresStore, clock: VirtualClock) -> bool:
    clock.advance(2_000)
    return store.room().is_enough


@pytest.mark.postgres
@pytest.mark.parametrize("is_anew", [False, True], ids=["running", "after a restart"])
def test_where_the_volume_is_full_taking_stops_and_all_else_works(
    volume: SmallVolume,
    opened: Callable[..., PostgresStore],
    clock: VirtualClock,
    is_anew: bool,
) -> None:
    store = opened()
    assert store.room().is_enough
    with pytest.raises(StoreFull):
        take_for_ever(store)
    assert not room_after_a_while(store, clock)
    assert "no dead letters are taken" in store.room().reason
    if is_anew:
        store.close()
        store = opened()
        assert not room_after_a_while(store, clock)
    settle(store)

    person = opened(is_service=False)
    do_all_but_taking(store, person, clock)

    def has_room() -> bool:
        person.shrink()
        return room_after_a_while(store, clock)

    # Why again: a vacuum leaves what the server's own analyze, at the same time, still sees.
    eventually(has_room, what="there is room again")


def settle(store: PostgresStore) -> None:
    """Undo the cycle that found the volume full, where it was written."""
    unfinished = store.open().unfinished
    if unfinished is not None:
        with store.transaction() as tx:
            tx.finish_cycle(unfinished.cycle)
