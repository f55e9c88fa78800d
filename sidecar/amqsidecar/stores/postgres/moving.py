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
    read_statement,
    unfinished,
)
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text
from amqsidecar.stores.postgres.events import event_key
from amqsidecar.stores.postgres.rows import group_name, grouped_name
from amqsidecar.stores.postgres.schema import MIGRATIONS, Schema, read_fence
from amqsidecar.stores.postgres.store import LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_S

_GROUP: Final = TABLES["redelivery"].index("cause_group")
_MESSAGE_GROUP: Final = TABLES["redelivery"].index("message_group")
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


_SOURCES: Final = {
    # Why: the journal's events are numbered first; the move renumbers no other.
    "event_block": "event_block ORDER BY segment IS NULL, seq",
    # Why without that one: positions of the stores differ.
    "kept_value": "kept_value WHERE name <> 'followed'",
    "failure_group": "failure_group WHERE total > 0 GROUP BY destination, cause_group",
    "failure_count": "failure_count GROUP BY bucket_ms, kind, destination, cause_group, attempt",
}
_ROW: Final = {
    "message_group": "NULL",
    "final_queue": "CASE WHEN is_final THEN coalesce(final_queue, destination) "
    "ELSE final_queue END",
}
_EXPRESSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "redelivery": _ROW,
    "discarded": _ROW,
    "event_block": {"is_written": "segment IS NOT NULL"},
    "event_key": {"redelivery_id": "key"},
    "failure_group": {
        "first_at_ms": "min(first_at_ms)",
        "last_at_ms": "max(last_at_ms)",
        "total": "sum(total)::bigint",
        "example_id": "(array_agg(example_id ORDER BY last_at_ms DESC))[1]",
    },
    "failure_count": {"count": "sum(count)::bigint"},
    "original": {"body": "message"},
}
_WRITTEN: Final = {
    **TABLES,
    "redelivery": [name for name in TABLES["redelivery"] if name != "message_group"],
    "discarded": [name for name in TABLES["discarded"] if name != "message_group"],
    "event_block": (*TABLES["event_block"][:5], "segment", "xid"),
    "event_key": ("key", "block"),
    "failure_group": (*TABLES["failure_group"], "instance"),
    "failure_count": (*TABLES["failure_count"], "instance"),
    "operation": ("id", "state", "ended_at_ms", "body"),
    "original": (*TABLES["original"][:-1], "message"),
}
_TALLIES: Final = {
    "tally": "left(destination, 500), state, count(*) FROM redelivery GROUP BY 2, 3",
    "group_tally": """left(destination, 400), state, left(cause_group, 200), count(*)
        FROM redelivery WHERE cause_group <> '' GROUP BY 2, 3, 4""",
    "exhausted_tally": """left(destination, 500), left(coalesce(final_queue, ''), 500), is_final,
        count(*) FROM redelivery WHERE state = 3 GROUP BY 2, 3, 4""",
}
"""How many rows there are, as instance 0 counts them."""

# Sidecars at work, and cycles without an end.
_BUSY: Final = """SELECT name FROM instance AS i WHERE number > 0 AND (
    EXISTS (SELECT FROM unfinished_cycle WHERE instance = number)
    OR holder IS NOT NULL AND EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.pid = i.backend_pid AND a.backend_start = i.backend_start
    )
)"""
_IS_USED: Final = """SELECT EXISTS (SELECT FROM redelivery) OR EXISTS (SELECT FROM event_block)
    OR EXISTS (SELECT FROM instance WHERE token_created OR finished_cycle > 0)"""
_READ_HEAD: Final = """SELECT group_key,
    last_value + CASE WHEN is_called THEN 16384 ELSE 0 END, is_kept, stream, last_number
FROM schema_version, row_number, outbox"""
# The numbers of a table go on after the highest of all.
_SET_NUMBER: Final = """SELECT setval(
    pg_get_serial_sequence(%s, CASE %s WHEN 'event_block' THEN 'seq' ELSE 'id' END),
    greatest(1, (SELECT max(seq) FROM event_block), (SELECT max(id) FROM operation),
        (SELECT max(id) FROM original), (SELECT max(id) FROM group_note),
        (SELECT max(id) FROM service_mark))
)"""
_ADD_INSTANCE: Final = """INSERT INTO instance (name, uid, finished_cycle, token_created)
VALUES (%s, %s, %s, %s)"""
_COUNT_EVENTS: Final = """UPDATE instance
SET event_count = (SELECT coalesce(sum(event_count), 0) FROM event_block) WHERE number = 0"""
_WRITE_OUTBOX: Final = """UPDATE outbox SET is_kept = %s, stream = %s, last_number = %s,
written_count = (SELECT coalesce(sum(event_count), 0) FROM event_block WHERE segment IS NOT NULL)"""
# Keeps the oldest program that may use the schedule without the fence.
_WRITE_FENCE: Final = """WITH gone AS (DELETE FROM fence RETURNING oldest_program)
INSERT INTO fence
SELECT %s, %s, coalesce((SELECT oldest_program FROM gone), oldest_program) FROM schema_version"""

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

    def __init__(self, dsn: str, password: Callable[[], str | None], schema: str) -> None:
        """Open the database.

        Raises:
            StoreUnavailable, SchemaMismatch: it can't be opened.
        """
        self._database = database = PostgresDatabase(
            dsn,
            schema=schema,
            password=password,
            read_only=False,
            lock_timeout_ms=LOCK_TIMEOUT_MS,
            statement_timeout_s=STATEMENT_TIMEOUT_S,
            idle_timeout_s=STATEMENT_TIMEOUT_S,
        )
        self.place = database.place
        database.open()
        try:
            if self.fence() is None:
                Schema(database, schema, MIGRATIONS).prepare(read_only=False)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._database.close()

    def fence(self) -> Fence | None:
        return read_fence(self._database)

    def group_key(self) -> bytes:
        return self._database.group_key

    def is_unused(self) -> bool:
        return not self._database.run(_IS_USED)[0][0]

    def tokens(self) -> set[str]:
        return {
            name for (name,) in self._database.run("SELECT name FROM instance WHERE token_created")
        }

    @contextmanager
    def giving_up(self, other: str) -> Iterator[Contents]:
        with self._alone() as instances:
            if self._database.rows("planned_segment"):
                raise unfinished(
                    self.place, "the journal lacks a planned segment; start a service once"
                )
            yield _PostgresContents(self._database, instances)
            self._set_fence(Fence(is_source=True, other=other))

    def receive(self, contents: Contents, other: str) -> None:
        database = self._database
        with self._alone():
            for table in (*TABLES, "tally", "group_tally", "exhausted_tally"):
                database.run(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            database.run("DELETE FROM shared_note")
            for table in TABLES:
                self._add(table, contents.rows(table))
            self._finish(contents.head)
            self._set_fence(Fence(is_source=False, other=other))

    def open_up(self) -> None:
        database = self._database
        with database.transaction():
            database.rows("guard_schema")
            database.run(
                "UPDATE schema_version SET oldest_program = (SELECT oldest_program FROM fence)"
            )
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
            # Invariant: nobody writes from here on, as each writer first locks its instance.
            columns = ("name", "uid", "finished_cycle", "token_created")
            found = database.run(read_statement(columns, "instance ORDER BY number FOR UPDATE"))
            instances = [MovedInstance(*row) for row in found if row[0]]
            busy = ", ".join(name for (name,) in database.run(_BUSY))
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
        columns = ", ".join(_WRITTEN[table])
        self._database.copy_in(f"COPY {table} ({columns}) FROM STDIN", texts)

    def _finish(self, head: MovedHead) -> None:
        """Write counts, and the schedule's own state."""
        database = self._database
        for tally, counts in _TALLIES.items():
            database.run(f"INSERT INTO {tally} SELECT 0, {counts}")
        for table in _NUMBERED:
            database.run(_SET_NUMBER, table, table)
        database.run("SELECT setval('row_number', %s, false)", head.next_id)
        database.run("DELETE FROM instance WHERE number > 0")
        for one in head.instances:
            database.run(_ADD_INSTANCE, *one)
        database.run(_COUNT_EVENTS)
        database.run(_WRITE_OUTBOX, head.is_kept, head.stream, head.last_number)
        database.run("UPDATE schema_version SET group_key = %s", head.group_key)

    def _set_fence(self, fence: Fence) -> None:
        database = self._database
        columns = "is_source boolean, other text, oldest_program integer"
        database.run(f"CREATE TABLE IF NOT EXISTS fence ({columns})")
        database.run(_WRITE_FENCE, *fence)
        database.run("UPDATE schema_version SET oldest_program = %s", FENCED)
        # Invariant: whoever is connected still has a lease of another name, and can't write.
        database.run("UPDATE instance SET holder = 'moved', backend_pid = NULL")


class _PostgresContents:
    """See `Contents`."""

    def __init__(self, database: PostgresDatabase, instances: list[MovedInstance]) -> None:
        self._database = database
        ((key, next_id, is_kept, stream, last_number),) = database.run(_READ_HEAD)
        self.head = MovedHead(bytes(key), instances, next_id, is_kept, stream, last_number)

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        at_once = 4 if table in ("message", "original") else ROWS_AT_ONCE
        source = _SOURCES.get(table, table)
        select = read_statement(TABLES[table], source, _EXPRESSIONS.get(table))
        rows = self._database.stream(select, at_once)
        common = _TO_COMMON.get(table)
        return rows if common is None else map(common, rows)
