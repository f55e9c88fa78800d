"""The real store without its syncs."""

from amqsidecar.model.schedule import StoreState
from amqsidecar.stores.sqlite.store import SqliteStore


class UnsyncedStore(SqliteStore):
    """Waits for no disk: only a loss of power would show, and thousands of syncs take minutes."""

    def open(self) -> StoreState:
        state = super().open()
        self._database.run("PRAGMA synchronous = OFF")
        return state
