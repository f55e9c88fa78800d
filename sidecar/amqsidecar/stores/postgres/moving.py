"""A schema of a PostgreSQL database as one end of a move."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from amqsidecar.model.operation import OutcomeKind
from amqsidecar.stores.ledger import decode_operation
from amqsidecar.stores.moving import (
    FENCED,
    ROWS_AT_ONCE,
    TABLES,
    Contents,
    Fence,
    MovedHead,
    MovedInstance,
    unfinished,
)
from amqsidecar.stores.named_queries import read_queries, read_sql
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text
from amqsidecar.stores.postgres.events import event_key
from amqsidecar.stores.postgres.rows import group_name, grouped_name
from amqsidecar.stores.postgres.schema import MIGRATIONS, Schema, read_fence
from amqsidecar.stores.postgres.store import LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_S

_SQL: Final = read_queries(read_sql("postgres/moving.sql"))
_GROUP: Final = 17
_MESSAGE_GROUP: Final = 20
_NUMBERED: Final = ("event_block", "operation", "original", "group_note", "service_mark")
_JOURNALED: Final = 0
"""As the segment of events that the journal had before the move."""


def _row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    group = group_name(row[_GROUP]) if row[_GROUP] else None
    values = (*row[:_GROUP], group, *row[_GROUP + 1 :])
    return (*values[:_MESSAGE_GROUP], *values[_MESSAGE_GROUP + 1 :])


def _operation(row: tuple[Any, ...]) -> tuple[Any, ...]:
    operation = decode_operation(row[1])
    return row[0], operation.state.value, operation.ended_at_ms, row[1]


_FROM_COMMON: Final[Mapping[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {
    "redelivery": _row,
    "discarded": _row,
    "event_block": lambda row: (*row[:5], _JOURNALED if row[5] else None, None),
    "event_key": lambda row: (event_key(row[0]), row[1]),
    "failure_group": lambda row: (
        *(grouped_name(row[0]), group_name(row[1]), *row[2:5], event_key(row[5]), 0),
    ),
    "failure_count": lambda row: (
        *(row[0], str(row[1]), grouped_name(row[2]), group_name(row[3]), *row[4:], 0),
    ),
    "operation": _operation,
    "operation_member": lambda row: (row[0], event_key(row[1]), *row[2:5], _word(row[5]), row[6]),
}
_TO_COMMON: Final[Mapping[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {
    "operation_member": lambda row: (*row[:5], row[5] and OutcomeKind(row[5]), row[6]),
}


def _word(outcome: OutcomeKind | None) -> str | None:
    return None if outcome is None else outcome.value


class PostgresMove:
    """The `MovedStore` of a schema, which it creates where it is missing."""

    def __init__(self, database: PostgresDatabase, schema: str) -> None:
        """Open.

        Args:
            database: not open yet.
            schema: where the tables are.
        """
        self._database = database
        self.place = database.place
        database.open()
        try:
            if self.fence() is None:
                Schema(database, schema, MIGRATIONS).prepare(read_only=False)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close; safe to call twice."""
        self._database.close()

    def fence(self) -> Fence | None:
        """See `MovedStore`."""
        return read_fence(self._database)

    def group_key(self) -> bytes:
        """See `MovedStore`."""
        return self._database.group_key

    def is_unused(self) -> bool:
        """See `MovedStore`."""
        return not self._database.run(_SQL["is_used"])[0][0]

    def tokens(self) -> set[str]:
        """See `MovedStore`."""
        return {name for (name,) in self._database.run(_SQL["read_tokens"])}

    @contextmanager
    def giving_up(self, other: str) -> Iterator[Contents]:
        """See `MovedStore`."""
        with self._alone() as instances:
            if self._database.rows("planned_segment"):
                raise unfinished(
                    self.place, "the journal lacks a planned segment; start a service once"
                )
            yield _PostgresContents(self._database, instances)
            self._set_fence(Fence(is_source=True, other=other))

    def receive(self, contents: Contents, other: str) -> None:
        """See `MovedStore`."""
        database = self._database
        with self._alone():
            for table in (*TABLES, "tally", "group_tally", "exhausted_tally", "followed"):
                database.run(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            database.run("DELETE FROM shared_note")
            for table in TABLES:
                self._add(table, contents.rows(table))
            self._finish(contents.head)
            self._set_fence(Fence(is_source=False, other=other))

    def open_up(self) -> None:
        """See `MovedStore`."""
        database = self._database
        with database.transaction():
            database.rows("guard_schema")
            database.run(_SQL["permit_programs"])
            database.run("UPDATE instance SET holder = NULL")
            database.run("DROP TABLE fence")

    @contextmanager
    def _alone(self) -> Iterator[list[MovedInstance]]:
        """Write while nobody else does; gives the instances."""
        database = self._database
        with database.transaction(), database.patience():
            database.rows("guard_schema")
            database.run(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
            )
            instances = [MovedInstance(*row) for row in database.run(_SQL["lock_all"]) if row[0]]
            busy = ", ".join(name for (name,) in database.run(_SQL["busy"]))
            if busy:
                raise unfinished(self.place, f"stop the sidecars that use it first: {busy}")
            yield instances

    def _add(self, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
        convert = _FROM_COMMON.get(table)
        written = rows if convert is None else map(convert, rows)
        texts = (
            tuple(pg_text(value) if isinstance(value, str) else value for value in row)
            for row in written
        )
        self._database.copy_in(_SQL[f"add_{table}"], texts)

    def _finish(self, head: MovedHead) -> None:
        """Write counts, and what the schedule is as a whole."""
        database = self._database
        for name in ("count_rows", "count_groups", "count_exhausted"):
            database.run(_SQL[name])
        for table in _NUMBERED:
            database.run(_SQL["set_number"], table, table)
        database.run("SELECT setval('row_number', %s, false)", head.next_id)
        database.run("DELETE FROM instance WHERE number > 0")
        for one in head.instances:
            database.run(_SQL["add_instance"], *one)
        database.run(_SQL["count_events"])
        database.run(_SQL["write_outbox"], head.is_kept, head.stream, head.last_number)
        database.run("UPDATE schema_version SET group_key = %s", head.group_key)

    def _set_fence(self, fence: Fence) -> None:
        database = self._database
        columns = "is_source boolean, other text, oldest_program integer"
        database.run(f"CREATE TABLE IF NOT EXISTS fence ({columns})")
        database.run(_SQL["write_fence"], *fence)
        database.run("UPDATE schema_version SET oldest_program = %s", FENCED)
        # Invariant: whoever is connected still has a lease of another name, and can't write.
        database.run("UPDATE instance SET holder = 'moved', backend_pid = NULL")


def postgres_move(dsn: str, password: Callable[[], str | None], schema: str) -> PostgresMove:
    """Open a schema as one end of a move.

    Raises:
        StoreUnavailable, SchemaMismatch: it can't be opened.
    """
    database = PostgresDatabase(
        dsn,
        schema=schema,
        password=password,
        read_only=False,
        lock_timeout_ms=LOCK_TIMEOUT_MS,
        statement_timeout_s=STATEMENT_TIMEOUT_S,
        idle_timeout_s=STATEMENT_TIMEOUT_S,
    )
    return PostgresMove(database, schema)


class _PostgresContents:
    """See `Contents`."""

    def __init__(self, database: PostgresDatabase, instances: list[MovedInstance]) -> None:
        self._database = database
        ((key, next_id, is_kept, stream, last_number),) = database.run(_SQL["read_head"])
        self.head = MovedHead(bytes(key), instances, next_id, is_kept, stream, last_number)

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """See `Contents`."""
        at_once = 4 if table in ("message", "original") else ROWS_AT_ONCE
        rows = self._database.stream(_SQL[f"read_{table}"], at_once)
        common = _TO_COMMON.get(table)
        return rows if common is None else map(common, rows)
