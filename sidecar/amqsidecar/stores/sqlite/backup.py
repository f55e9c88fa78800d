"""A copy of a SQLite store while others work on it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.private_files import open_private, sync_folder
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.reserve import Reserve
from amqsidecar.stores.sqlite.store import BUSY_TIMEOUT_MS


def copy_schedule(path: Path, target: Path) -> None:
    """Copy one consistent state of a store; durable when this returns.

    Promise: the target is whole or not there; if the process dies inside, a file beside it with
    `.part` at the end of its name is left.

    Raises:
        StoreUnavailable: the store can't be read or is damaged, or the copy can't be written.
        SchemaMismatch: it was written by an unknown version.
    """
    if target.exists():
        raise StoreUnavailable(f"{target} is there already; name a new file")
    part = target.with_name(f"{target.name}.part")
    store = SqliteDatabase(
        path,
        read_only=True,
        busy_timeout_ms=BUSY_TIMEOUT_MS,
        reserve=Reserve(path, 0, SystemClock()),
    )
    store.open(None)
    try:
        with store.mapped("be copied"):
            part.unlink(missing_ok=True)
            try:
                _copy(store, part)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            part.rename(target)
            sync_folder(target.parent)
    finally:
        store.close()


def _copy(store: SqliteDatabase, part: Path) -> None:
    os.close(open_private(part, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    with closing(sqlite3.connect(part)) as copy:
        # Why all at once: by steps it would restart whenever the service writes.
        store.copy_into(copy)
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreUnavailable(f"the store {store.path} is damaged: {found}; nothing was copied")
