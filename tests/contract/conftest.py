"""The stores that keep a schedule of their own, for what all of them promise."""

from collections.abc import Callable, Iterator

import pytest

from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

OwnStore = UnsyncedStore | EmptiedStore
MakeStore = Callable[[], OwnStore]


def sqlite_stores(request: pytest.FixtureRequest) -> MakeStore:
    folder = request.getfixturevalue("tmp_path")
    return lambda: UnsyncedStore(folder / "schedule.db", clock=VirtualClock())


def postgres_stores(request: pytest.FixtureRequest) -> MakeStore:
    url = request.getfixturevalue("postgres").url()
    empty(url)
    return lambda: EmptiedStore(url, clock=VirtualClock())


STORES = [
    pytest.param(sqlite_stores, id="sqlite"),
    pytest.param(postgres_stores, id="postgres", marks=pytest.mark.postgres),
]


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    """Opens store objects over one and the same medium."""
    make, made = request.param(request), list[OwnStore]()

    def open_and_remember() -> OwnStore:
        made.append(make())
        made[-1].open()
        return made[-1]

    yield open_and_remember
    for store in made:
        store.close()


@pytest.fixture
def store(open_store: MakeStore) -> OwnStore:
    return open_store()
