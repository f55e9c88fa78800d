"""The ledger of the SQLite store: views and actions of people."""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, pairwise
from typing import Any

import msgspec

from amqsidecar.ledger import (
    MemberOutcome,
    Original,
    Select,
    Tail,
)
from amqsidecar.model.event import AnyEvent, OutcomeProved
from amqsidecar.model.failure import (
    BUCKET_MS,
    CountKind,
    FailureCount,
    GroupTally,
)
from amqsidecar.model.operation import Member, Operation, OperationState, OutcomeKind
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import ExhaustedTally, GateTally
from amqsidecar.stores.ledger import CommonLedger, counts_of
from amqsidecar.stores.member_updates import new_outcomes
from amqsidecar.stores.outbox import whole_blocks
from amqsidecar.stores.packing import (
    exhausted_tallies,
    gate_tallies,
    pack_message,
    storable,
    structs_of,
    unpack_message,
)
from amqsidecar.stores.rows import LAST_ID, STATES
from amqsidecar.stores.sqlite.changes import change_rows, forget_discarded
from amqsidecar.stores.sqlite.counts import (
    KIND_NUMBERS,
    KINDS,
    forget_counts,
    record_events,
)
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.events import read_block, read_since
from amqsidecar.stores.sqlite.operations import (
    OUTCOME_NUMBERS,
    OUTCOMES,
    add_members,
    left_to_others,
    next_rows,
)
from amqsidecar.stores.sqlite.outbox import hidden_block
from amqsidecar.stores.sqlite.pages import SqlitePages
from amqsidecar.stores.sqlite.rows import json_ids, read_in_flight
from amqsidecar.stores.sqlite.transaction import SqliteTransaction


class SqliteLedger(CommonLedger, SqlitePages):
    """The `Ledger` of the store that inherits it.

    Promise: each write is one transaction; if the process dies inside, nothing happened.
    """

    _database: SqliteDatabase

    @contextmanager
    def _written(self) -> Iterator[SqliteTransaction]:
        with self._database.transaction(), self._database.mapped("be written"):
            yield SqliteTransaction(self._database)

    # Looking.

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        values = {
            "from_ms": from_ms,
            "until_ms": until_ms,
            "kinds": json_ids(KIND_NUMBERS[kind] for kind in kinds),
            "step_ms": step_ms,
        }
        with self._database.mapped("be read"):
            found = self._database.query("read_failure_counts", values)
            return counts_of((bucket_ms, KINDS[kind], *rest) for bucket_ms, kind, *rest in found)

    def group_tallies(self) -> list[GroupTally]:
        database = self._database
        with database.snapshot():
            return structs_of(
                GroupTally,
                (
                    (
                        database.word(one),
                        STATES[state],
                        database.word(group) if group else "",
                        count,
                    )
                    for one, state, group, count in database.query("read_group_tallies")
                ),
            )

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        database = self._database
        with database.snapshot():
            taken, _ = read_in_flight(database)
            found = database.query("read_exhausted", {"hidden": json_ids(taken)}).fetchall()
            return exhausted_tallies(
                (database.word(destination), database.word(queue), bool(is_final), *rest)
                for destination, queue, is_final, *rest in found
            )

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        database = self._database
        with database.snapshot():
            rows = database.query("read_gate_tallies", {"now_ms": now_ms}).fetchall()
            return gate_tallies((database.word(row[0]), *row[1:]) for row in rows)

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        database = self._database
        with database.snapshot():
            taken, _ = read_in_flight(database)
            hidden = [due_ms for (due_ms,) in database.query("due_of_ids", (json_ids(taken),))]
            return [
                database.query("count_due", (begin_ms, end_ms)).fetchone()[0]
                - sum(begin_ms <= due_ms < end_ms for due_ms in hidden)
                for begin_ms, end_ms in pairwise(bounds_ms)
            ]

    def _all_blocks(self) -> Generator[tuple[int, bytes]]:
        with self._database.snapshot(), closing(self._database.query("all_blocks")) as blocks:
            yield from blocks

    def tail(self) -> str:
        with self._database.snapshot():
            last = self._database.query("last_block").fetchone()[0]
            return _position(last, hidden_block(self._database) or 0)

    def events_after(self, position: str, max_events: int) -> Tail:
        """Return events that became visible after a position; whole blocks, one at least.

        A position is the last block that was read, and the one before it whose cycle had no end
        yet. That one comes first once it has.
        """
        database = self._database
        with database.snapshot():
            last, missing = map(int, position.split("/"))
            hidden = hidden_block(database) or 0
            known = database.query("blocks_between", (missing - 1, missing + 1))
            with closing(database.query("blocks_between", (last, LAST_ID))) as later:
                visible = (one for one in chain(known, later) if one[0] != hidden)
                chosen = [block for block, _ in whole_blocks(visible, max_events)]
            events = [event for block in chosen for event in read_block(database, block)]
            return Tail(events, _position(max([last, *chosen]), hidden))

    # Operations.

    def event_mark(self) -> int:
        """Return a number below all events of later actions."""
        with self._database.mapped("be read"):
            return int(self._database.query("last_block").fetchone()[0])

    def add_operation(self, operation: Operation) -> Operation:
        database = self._database
        with self._written():
            taken, _ = read_in_flight(database)
            newest = database.query("newest_visible", {"hidden": json_ids(taken)}).fetchone()
            until_id = 0 if newest is None else newest[0]
            number = database.query("add_operation").fetchone()[0]
            return self._write(msgspec.structs.replace(operation, id=number, until_id=until_id))

    def open_operations(self) -> list[Operation]:
        """See `Store`; a member that was re-sent and may still come back has no outcome."""
        database = self._database
        with database.snapshot():
            numbers = {number for (number,) in database.query("running_operations")}
            for outcome in (None, OutcomeKind.RESENT):
                values = [OUTCOME_NUMBERS[outcome], 0]
                while row := database.query("next_followed", values).fetchone():
                    values[1] = row[0]
                    numbers.add(row[0])
            found = map(self.operation, sorted(numbers))
            return [operation for operation in found if operation is not None]

    def step_operation(
        self,
        number: int,
        change: RowChange,
        select: Select | None,
        limit: int,
        progress: Callable[[Operation], Operation],
        is_followed: bool,
    ) -> Operation:
        database = self._database
        with self._written():
            operation = self._locked(number)
            if operation.state is not OperationState.RUNNING:
                return operation
            portion = next_rows(database, operation, select, limit)
            left = left_to_others(database, operation, portion)
            free = [row for row in portion.rows if row[0] not in left]
            matched, changes = change_rows(database, free, change)
            record_events(database, [made.event for _, made in changes])
            doubled = add_members(database, number, changes) if is_followed else 0
            after = msgspec.structs.replace(
                operation,
                after_id=portion.until_id,
                matched=operation.matched + matched + len(left),
                overtaken=operation.overtaken + len(left),
                changed=operation.changed + len(changes),
                resent=operation.resent + doubled,
            )
            return self._write(progress(after))

    def forget_discarded(self, before_ms: int, limit: int) -> int:
        with self._written():
            return forget_discarded(self._database, before_ms, limit)

    def members(
        self, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
    ) -> list[Member]:
        query = "read_members" if outcome is None else "read_members_of_outcome"
        values: dict[str, Any] = {"operation": number, "after": storable(after), "limit": limit}
        if outcome is not None:
            values["outcome"] = OUTCOME_NUMBERS[outcome]
        with self._database.mapped("be read"):
            found = self._database.query(query, values)
            return structs_of(Member, ((*row[:4], OUTCOMES[row[4]], row[5]) for row in found))

    def member_counts(self, number: int) -> dict[OutcomeKind | None, int]:
        database = self._database
        with database.snapshot():
            counts = {
                one: database.query("count_members", (OUTCOME_NUMBERS[one], number)).fetchone()[0]
                for one in OUTCOMES
            }
        return {outcome: count for outcome, count in counts.items() if count}

    def _member_key(self, redelivery_id: str) -> str:
        return storable(redelivery_id)

    def _open_members(self, keys: Collection[str]) -> Iterator[tuple[int, Member]]:
        for key in keys:
            for number, *row, known in self._database.query("open_members", (key,)).fetchall():
                [member] = structs_of(Member, [(key, *row, OUTCOMES[known], "")])
                yield number, member

    def _write_members(self, changed: Sequence[tuple[int, Member]]) -> None:
        self._database.query_each(
            "set_member",
            [
                (
                    one.resent_at_ms,
                    OUTCOME_NUMBERS[one.outcome],
                    storable(one.evidence),
                    number,
                    one.redelivery_id,
                )
                for number, one in changed
            ],
        )

    def settle_members(self, number: int, outcomes: Sequence[MemberOutcome]) -> None:
        """Write outcomes of members; durable together."""
        with self._written():
            self._database.query_each(
                "set_outcome",
                [
                    (
                        OUTCOME_NUMBERS[one.outcome],
                        storable(one.evidence),
                        number,
                        storable(one.redelivery_id),
                        OUTCOME_NUMBERS[OutcomeKind.RESENT],
                    )
                    for one in outcomes
                ],
            )

    def record_outcomes(self, proved: Sequence[OutcomeProved]) -> None:
        database = self._database
        with self._written():
            known = read_since(database, (one.redelivery_id for one in proved), 0)
            record_events(database, new_outcomes(known, proved))

    # Editing.

    def replace_message(
        self, row_id: int, expected: bytes, message: bytes, event: AnyEvent, actor: str
    ) -> bool:
        database = self._database
        with self._written():
            row = database.query("row_of_message", (row_id,)).fetchone()
            taken, sent = read_in_flight(database)
            if row is None or row_id in taken | sent:
                return False
            redelivery_id, encoding, size_bytes, body = row
            if unpack_message(body, size_bytes) != expected:
                return False
            database.query(
                "add_original",
                (
                    redelivery_id,
                    row_id,
                    event.at_ms,
                    storable(actor),
                    database.word(encoding),
                    size_bytes,
                    body,
                ),
            )
            database.query("replace_message", (pack_message(message), row_id))
            database.query("set_size", (len(message), row_id))
            record_events(database, [event])
            return True

    def originals(self, redelivery_id: str) -> list[Original]:
        key = storable(redelivery_id)
        with self._database.mapped("be read"):
            found = self._database.query("read_originals", (key,))
            return structs_of(
                Original, ((key, *row[:4], unpack_message(row[5], row[4])) for row in found)
            )

    # Retention.

    def forget_ledger(
        self, before_ms: int, hours_before_ms: int, limit: int, steps_before_ms: int = 0
    ) -> int:
        database = self._database
        with self._written():
            removed = forget_counts(database, before_ms, hours_before_ms, limit, steps_before_ms)
            removed += self._forget_operations(before_ms, limit)
            old = {"before_ms": before_ms, "limit": limit}
            removed += database.change("forget_originals", **old)
            removed += database.change("forget_notes", **old)
            for query in ("forget_observations", "forget_service_marks"):
                removed += len(database.query(query, (before_ms, limit)).fetchall())
        return removed

    def _forget_operations(self, before_ms: int, limit: int) -> int:
        """Remove operations that ended before a time, after their members, at most `limit` of each.

        Returns:
            The number of removed rows.
        """
        database, members, operations = self._database, 0, 0
        for (number,) in database.query("ended_operations", (before_ms, limit)).fetchall():
            values = {"operation": number, "limit": limit - members}
            members += len(database.query("forget_members", values).fetchall())
            if members >= limit:
                break
            database.query("forget_operation", (number,))
            operations += 1
        return members + operations


def _position(last: int, hidden: int) -> str:
    return f"{last}/{hidden if hidden <= last else 0}"
