"""A schedule in PostgreSQL that is emptied for the next test: a new one takes longer."""

from typing import Any

import psycopg
from psycopg import sql

from amqsidecar.model.schedule import StoreState
from amqsidecar.stores.postgres.store import PostgresStore

SCHEMA = "emptied"


class EmptiedStore(PostgresStore):
    """The real store in a schema that `empty` empties; waits for no disk, as `UnsyncedStore`."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, schema=SCHEMA, **options)

    def open(self) -> StoreState:
        was_open = self._database.is_open
        state = super().open()
        if not was_open:
            self._database.run("SET synchronous_commit = off")
        return state


def empty(url: str) -> None:
    """Remove all that a test left in the schema, if it is there."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename NOT IN "
            "('schema_version', 'instance', 'outbox')",
            (SCHEMA,),
        ).fetchall()
        if not tables:
            return
        connection.execute(f"SET search_path = {SCHEMA}")
        for (table,) in tables:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        connection.execute("DELETE FROM instance WHERE number > 0")
        connection.execute("UPDATE instance SET event_count = 0")
        connection.execute(
            "UPDATE outbox SET (is_kept, stream, last_number, written_count) = (false, '', 0, 0)"
        )
