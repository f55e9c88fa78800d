"""The ledger of the SQLite store: views and actions of people."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain

import msgspec

from amqsidecar.ledger import (
    MemberOutcome,
    MemberUpdate,
    Original,
    RowKey,
    RowOrder,
    RowPage,
    Select,
    Tail,
)
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import (
    BUCKET_MS,
    CountKind,
    FailureCount,
    FailureGroup,
    GroupTally,
)
from amqsidecar.model.group_note import LATEST_KEPT, GroupNote
from amqsidecar.model.operation import Member, Operation, OperationState, OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import ExhaustedTally, GateTally, RowFilter, RowView
from amqsidecar.model.service_mark import MARKS_KEPT, ServiceMark
from amqsidecar.stores.outbox import whole_blocks
from amqsidecar.stores.packing import (
    events_called,
    exhausted_tallies,
    pack_message,
    pack_struct,
    read_group_note,
    read_service_mark,
    storable,
    unpack_message,
)
from amqsidecar.stores.sqlite.changes import change_rows, forget_discarded, put_rows_back
from amqsidecar.stores.sqlite.counts import (
    forget_counts,
    read_counts,
    read_groups,
    record_events,
)
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.events import read_block
from amqsidecar.stores.sqlite.operations import (
    add_members,
    count_members,
    due_members,
    forget_operations,
    left_to_others,
    next_rows,
    open_numbers,
    read_members,
    read_operation,
    read_operations,
    update_members,
    write_operation,
    write_outcomes,
)
from amqsidecar.stores.sqlite.outbox import hidden_block
from amqsidecar.stores.sqlite.pages import count_due, page_rows, read_gate_tallies
from amqsidecar.stores.sqlite.rows import (
    LAST_ID,
    STATES,
    json_ids,
    read_in_flight,
)

_MINUTE_MS = 60_000
_decode_observation = msgspec.json.Decoder(Observation).decode


class SqliteLedger:
    """The `Ledger` of the store that inherits it.

    Promise: each write is one transaction; if the process dies inside, nothing happened.
    """

    _database: SqliteDatabase

    # Looking.

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        """Return groups of which one died since, the latest death first, at most `limit`."""
        with self._database.mapped("be read"):
            return read_groups(self._database, since_ms, limit)

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        """Return counts of buckets that begin in [from, until), summed up by steps."""
        with self._database.mapped("be read"):
            return read_counts(self._database, from_ms, until_ms, kinds, step_ms)

    def group_tallies(self) -> list[GroupTally]:
        """Return the number of rows by destination, state and cause group; scans no rows."""
        database = self._database
        with database.snapshot():
            return [
                GroupTally(
                    destination=database.word(destination),
                    state=STATES[state],
                    cause_group=database.word(group) if group else "",
                    count=count,
                )
                for destination, state, group, count in database.query("read_group_tallies")
            ]

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        """Return where exhausted messages are, the largest number first; scans no rows."""
        database = self._database
        with database.snapshot():
            taken, _ = read_in_flight(database)
            found = database.query("read_exhausted", {"hidden": json_ids(taken)}).fetchall()
            return exhausted_tallies(
                (database.word(row[0]), database.word(row[1]), *row[2:]) for row in found
            )

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        """Return how many messages gates delay beyond a time, the largest number first."""
        return read_gate_tallies(self._database, now_ms)

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        """Return how many waiting rows are due in [bound, next bound), one less than bounds."""
        return count_due(self._database, bounds_ms)

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """Return matching rows; examines a bounded number of rows."""
        return page_rows(self._database, row_filter, order, limit, after)

    def messages_called(self, name: str, limit: int) -> list[str]:
        """Return redelivery ids of messages by the id that consumers saw, or a row's number."""
        database, name = self._database, storable(name)
        with database.snapshot():
            found = dict.fromkeys(one for (one,) in database.query("rows_called", (name, limit)))
            with closing(database.query("all_blocks")) as blocks:
                for redelivery_id in events_called(blocks, name):
                    if len(found) >= limit:
                        break
                    found[redelivery_id] = None
        return list(found)

    def tail(self) -> str:
        """Return the position after all events that are visible now."""
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
        """Store an operation; return it with its number, and with the newest row as `until_id`."""
        database = self._database
        with database.transaction(), database.mapped("be written"):
            taken, _ = read_in_flight(database)
            newest = database.query("newest_visible", {"hidden": json_ids(taken)}).fetchone()
            until_id = 0 if newest is None else newest[0]
            number = database.query("add_operation").fetchone()[0]
            return write_operation(
                database, msgspec.structs.replace(operation, id=number, until_id=until_id)
            )

    def operation(self, number: int) -> Operation | None:
        """Return an operation; None = no operation has this number."""
        with self._database.mapped("be read"):
            return read_operation(self._database, number)

    def operations(self, limit: int, before: int | None = None) -> list[Operation]:
        """Return operations, the newest first, only those with a number below `before`."""
        with self._database.mapped("be read"):
            return read_operations(self._database, limit, LAST_ID if before is None else before)

    def open_operations(self) -> list[Operation]:
        """Return operations that are running, and all others with members without an outcome.

        A member that was re-sent and may still come back has none.
        """
        database = self._database
        with database.snapshot():
            found = (read_operation(database, number) for number in sorted(open_numbers(database)))
            return [operation for operation in found if operation is not None]

    def change_operation(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        """Replace an operation by the result of `change` on its current state; durable, atomic.

        Raises:
            KeyError: no operation has this number.
        """
        database = self._database
        with database.transaction(), database.mapped("be written"):
            return write_operation(database, change(self._expected(number)))

    def step_operation(
        self,
        number: int,
        change: RowChange,
        select: Select | None,
        limit: int,
        progress: Callable[[Operation], Operation],
        is_followed: bool,
    ) -> Operation:
        """Apply an action to the next rows of a running operation; durable with its progress.

        Args:
            number: of the operation; if it isn't running (any more), nothing is done.
            change: returns the new state of a row; None = it is left as it is.
            select: which of the rows that the filter hits are meant; None = all of them.
            limit: maximum rows changed.
            progress: called in the transaction with the operation after the step, its cursor and
                counts set; its result is stored. `after_id == until_id`: it was the last.
            is_followed: keep the changed rows as members, whose outcome is wanted.

        Raises:
            KeyError: no operation has this number.
        """
        database = self._database
        with database.transaction(), database.mapped("be written"):
            operation = self._expected(number)
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
            return write_operation(database, progress(after))

    def put_back(
        self,
        number: int,
        event_of: Callable[[RowView], AnyEvent],
        limit: int,
        progress: Callable[[Operation], Operation],
    ) -> Operation:
        """Put back discarded messages of an operation, unchanged; durable with its progress.

        Raises:
            KeyError: no operation has this number.
        """
        database = self._database
        with database.transaction(), database.mapped("be written"):
            operation = self._expected(number)
            if operation.state is not OperationState.UNDOING:
                return operation
            views = put_rows_back(database, number, limit)
            record_events(database, [event_of(view) for view in views])
            count = operation.restored + len(views)
            after = msgspec.structs.replace(operation, restored=count)
            return write_operation(database, progress(after))

    def count_discarded(self, number: int) -> int:
        """Return how many messages of an operation `put_back` would find."""
        with self._database.mapped("be read"):
            return int(self._database.query("count_discarded", (number,)).fetchone()[0])

    def forget_discarded(self, before_ms: int, limit: int) -> int:
        """Remove at most `limit` messages that were discarded before a time; returns how many."""
        with self._database.transaction(), self._database.mapped("be written"):
            return forget_discarded(self._database, before_ms, limit)

    def _expected(self, number: int) -> Operation:
        operation = read_operation(self._database, number)
        if operation is None:
            raise KeyError(number)
        return operation

    def members(
        self, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
    ) -> list[Member]:
        """Return members by redelivery id, only those above `after`; None = any outcome."""
        with self._database.mapped("be read"):
            return read_members(self._database, number, outcome, limit, after)

    def member_counts(self, number: int) -> dict[OutcomeKind | None, int]:
        """Return the number of members by outcome; None = not sent yet."""
        with self._database.snapshot():
            return count_members(self._database, number)

    def followed_until(self) -> str | None:
        """Return the position up to which events were searched for members; None = never."""
        with self._database.mapped("be read"):
            row = self._database.query("read_followed").fetchone()
            return None if row is None else str(row[0])

    def update_members(self, updates: Sequence[MemberUpdate], position: str) -> None:
        """Store observations of members, and the position in the events; durable together.

        Ids without an open member are left out, and updates before the member's change. Adds to
        `resent` and `came_back` of the operations.
        """
        with self._database.transaction(), self._database.mapped("be written"):
            update_members(self._database, updates)
            self._database.query("set_followed", (position,))

    def due_members(self, number: int, resent_before_ms: int, limit: int) -> list[Member]:
        """Return members with outcome RESENT that were sent before a time, the oldest first."""
        with self._database.mapped("be read"):
            return due_members(self._database, number, resent_before_ms, limit)

    def settle_members(self, number: int, outcomes: Sequence[MemberOutcome]) -> None:
        """Write outcomes of members; durable together."""
        with self._database.transaction(), self._database.mapped("be written"):
            write_outcomes(self._database, number, outcomes)

    # Editing.

    def replace_message(
        self, row_id: int, expected: bytes, message: bytes, event: AnyEvent, actor: str
    ) -> bool:
        """Replace the bytes of a row, with an event; the old ones become an `Original`.

        Returns:
            False = the row is gone, in flight, or its message is not the expected one: nothing was
            done.
        """
        database = self._database
        with database.transaction(), database.mapped("be written"):
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
        """Return the versions of a message before its edits, the oldest first."""
        key = storable(redelivery_id)
        with self._database.mapped("be read"):
            return [
                Original(
                    redelivery_id=key,
                    row_id=row_id,
                    edited_at_ms=edited_at_ms,
                    actor=actor,
                    encoding=encoding,
                    message=unpack_message(body, size_bytes),
                )
                for row_id, edited_at_ms, actor, encoding, size_bytes, body in self._database.query(
                    "read_originals", (key,)
                )
            ]

    # What was seen of destinations.

    def add_observations(self, observations: Sequence[Observation]) -> None:
        """Store observations; of each destination at most one a minute, the latest."""
        with self._database.transaction(), self._database.mapped("be written"):
            self._database.query_each(
                "add_observation",
                [
                    (
                        storable(one.destination),
                        one.at_ms // _MINUTE_MS,
                        one.at_ms,
                        pack_struct(one),
                    )
                    for one in observations
                ],
            )

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        """Return the observations of a destination in [from, until), the oldest first."""
        values = {"destination": storable(destination), "from_ms": from_ms, "until_ms": until_ms}
        with self._database.mapped("be read"):
            found = self._database.query("read_observations", values)
            return [_decode_observation(body) for (body,) in found]

    def recent_observations(self, since_ms: int) -> list[Observation]:
        """Return the observations of all destinations since a time, the oldest first."""
        with self._database.mapped("be read"):
            found = self._database.query("recent_observations", (since_ms,))
            return [_decode_observation(body) for (body,) in found]

    # Notes.

    def add_note(self, note: GroupNote) -> None:
        """Store a note, durably; keeps the latest `LATEST_KEPT` of each group."""
        place = storable(note.destination), storable(note.cause_group)
        with self._database.transaction(), self._database.mapped("be written"):
            texts = storable(note.author), storable(note.text), storable(note.owner)
            ends = note.snoozed_until_ms, note.muted_deaths, storable(note.merged_into)
            values = (*place, note.at_ms, *texts, *ends)
            self._database.query("add_note", values)
            self._database.query("drop_notes", (*place, LATEST_KEPT))

    def notes(self, destination: str, cause_group: str) -> list[GroupNote]:
        """Return the notes on a group, the latest first."""
        place = storable(destination), storable(cause_group)
        with self._database.mapped("be read"):
            return [read_group_note(row) for row in self._database.query("read_notes", place)]

    def latest_notes(self, limit: int) -> list[GroupNote]:
        """Return the latest note of each group, the latest first, at most `limit`."""
        with self._database.mapped("be read"):
            return [read_group_note(row) for row in self._database.query("latest_notes", (limit,))]

    # Services.

    def add_service_mark(self, mark: ServiceMark) -> None:
        """Store service marks; the latest `MARKS_KEPT`. Durable."""
        with self._database.transaction(), self._database.mapped("be written"):
            values = mark.at_ms, storable(mark.instance), mark.kind.value, mark.rules_digest
            self._database.query("add_service_mark", values)
            self._database.query("drop_service_marks", (MARKS_KEPT,))

    def service_marks(self, limit: int) -> list[ServiceMark]:
        """Return the marks of the service, the latest first, at most `limit`."""
        with self._database.mapped("be read"):
            found = self._database.query("read_service_marks", (limit,))
            return [read_service_mark(row) for row in found]

    def latest_starts(self) -> list[ServiceMark]:
        """Return the latest start; none before the first one."""
        with self._database.mapped("be read"):
            return [read_service_mark(row) for row in self._database.query("latest_starts")]

    # Retention.

    def forget_ledger(
        self, before_ms: int, hours_before_ms: int, limit: int, steps_before_ms: int = 0
    ) -> int:
        """Remove older records, and merge older counts; returns how many.

        Groups whose last death, ended operations whose end, originals whose edit and observations
        that lie before are removed, at most `limit` of each; and such notes whose group is gone,
        and service marks, but for the latest.
        """
        database = self._database
        with database.transaction(), database.mapped("be written"):
            removed = forget_counts(database, before_ms, hours_before_ms, limit, steps_before_ms)
            removed += forget_operations(database, before_ms, limit)
            for query in (
                "forget_originals",
                "forget_observations",
                "forget_notes",
                "forget_service_marks",
            ):
                removed += len(database.query(query, (before_ms, limit)).fetchall())
        return removed


def _position(last: int, hidden: int) -> str:
    return f"{last}/{hidden if hidden <= last else 0}"
