"""Space in a PostgreSQL database that is kept for sending, discarding and housekeeping.

A server does not say how much its medium has left. So a table holds the reserve: a
sidecar that finds the medium full drops that table, and no sidecar takes dead letters while it is
gone. Housekeeping makes it again once twice as much is free.
"""

from contextlib import suppress
from typing import Final

from amqsidecar.clock import Clock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.store import ENOUGH_ROOM, Room
from amqsidecar.stores.postgres.database import PostgresDatabase

LOOK_EVERY_S: Final = 1.0

_PAGE_BYTES: Final = 8192
_TABLES: Final = "redelivery, message, event_block, event_key"


class PostgresReserve:
    """The reserve of one schema, as one connection sees it.

    Args:
        database: the connection; it calls `give_way` where it finds the medium full.
        size_bytes: 0 = none.
        clock: says when to look again.
    """

    def __init__(self, database: PostgresDatabase, size_bytes: int, clock: Clock) -> None:
        self._database = database
        self._pages = -(-size_bytes // _PAGE_BYTES)
        self._clock = clock
        self._room = ENOUGH_ROOM
        self._look_at_s = -1.0

    def give_way(self) -> None:
        """Drop the table, which frees its space at once; outside of transactions.

        Promise: if the process dies inside, the table is there or gone.
        """
        self._look_at_s = -1.0
        # Why suppressed: the caller reports that the medium is full; the next call tries again.
        with suppress(StoreUnavailable):
            # Why not TRUNCATE: it writes new files, which needs space.
            self._database.run("DROP TABLE IF EXISTS reserve")

    def look(self) -> Room:
        """Return whether dead letters may be taken.

        Raises:
            StoreUnavailable: the server does not answer.
        """
        now_s = self._clock.monotonic_s()
        if self._pages and now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._room = self._read()
        return self._room

    def _read(self) -> Room:
        if self._is_there():
            return Room(at_once_bytes=self._pages * _PAGE_BYTES // 4)
        return Room(
            at_once_bytes=0,
            reason=f"the medium of {self._database.place} was full; no dead letters are taken "
            f"until {2 * self._pages * _PAGE_BYTES // 1024 // 1024} MiB are free; due messages "
            "are sent",
        )

    def _is_there(self) -> bool:
        return bool(self._database.run("SELECT to_regclass('reserve') IS NOT NULL")[0][0])

    def make(self) -> None:
        """Make a missing table if twice its space is free, after a VACUUM.

        Promise: if the process dies inside, there is no table, or a whole one.

        Raises:
            StoreUnavailable: the server does not answer.
        """
        if not self._pages or self._is_there():
            return
        database = self._database
        with database.at_leisure("reserve") as is_ours:
            if not is_ours or self._is_there():
                return
            with suppress(StoreUnavailable):
                database.run(f"VACUUM (TRUNCATE) {_TABLES}")
                insert = "INSERT INTO reserve SELECT repeat('.', 1000) FROM generate_series(1, %s)"
                with database.transaction():
                    database.rows("make_reserve")
                    # Why twice as many first: else a few messages would stop and start taking.
                    database.run(insert, 2 * self._pages)
                    database.run("TRUNCATE reserve")
                    database.run(insert, self._pages)
        self._look_at_s = -1.0
