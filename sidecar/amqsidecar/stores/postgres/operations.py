"""Operations, their messages, and edits in the PostgreSQL store.

All writes here belong to no instance (instance 0) and lock its row first, so that steps, edits and
updates of all processes are serialised. A transaction with that lock does not wait for rows that
a cycle has locked: it ends, and another one tries again.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager

import msgspec

from amqsidecar.ledger import MemberOutcome, Original, Select
from amqsidecar.model.event import AnyEvent, OutcomeProved
from amqsidecar.model.failure import MERGED_BACK_MS
from amqsidecar.model.operation import Member, Operation, OperationState, OutcomeKind
from amqsidecar.model.row_changes import Change, RowChange
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.stores.ledger import CommonLedger, decode_operation
from amqsidecar.stores.member_updates import new_outcomes, overtaken_rows
from amqsidecar.stores.packing import structs_of
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text
from amqsidecar.stores.postgres.events import event_key, read_since
from amqsidecar.stores.postgres.free_rows import lock_free
from amqsidecar.stores.postgres.pages import next_window
from amqsidecar.stores.postgres.rows import conditions_of
from amqsidecar.stores.postgres.schema import Schema
from amqsidecar.stores.postgres.shared_notes import KEPT
from amqsidecar.stores.postgres.transaction import CLAIM_BYTES, PostgresTransaction, within

STEP_ROWS = 1_000
"""Maximum rows locked in one step."""
ATTEMPTS = 20
"""So often rows are tried that others have locked,"""
PAUSE_S = 0.05
"""with such pauses."""

_MINUTE_MS = 60_000


class PostgresOperations(CommonLedger):
    """The side of a `Ledger` that people act through, of the store that inherits it."""

    _database: PostgresDatabase
    _schema: Schema
    _lock_operation = "lock_operation"
    _written: Callable[[], AbstractContextManager[PostgresTransaction]]

    def event_mark(self) -> int:
        """See `Ledger`; people's transactions come one after the other, so their numbers rise."""
        ((number,),) = self._database.rows("event_mark")
        return int(number)

    def add_operation(self, operation: Operation) -> Operation:
        database = self._database
        with self._written():
            ((until_id,),) = database.rows("newest_id")
            ((number,),) = database.rows("add_operation", state="", body=b"")
            return self._write(msgspec.structs.replace(operation, id=number, until_id=until_id))

    def open_operations(self) -> list[Operation]:
        return [decode_operation(body) for (body,) in self._database.rows("open_operations")]

    def step_operation(
        self,
        number: int,
        change: RowChange,
        select: Select | None,
        limit: int,
        progress: Callable[[Operation], Operation],
        is_followed: bool,
    ) -> Operation:
        """See `Ledger`.

        A row that is locked now ends the step before it, so that none is passed over: a
        cycle may give it back.
        """
        attempt = 0
        while True:
            attempt += 1
            with self._written() as transaction:
                before = self._locked(number)
                if before.state is not OperationState.RUNNING:
                    return before
                step = _Step(self._database, transaction, before, is_followed)
                after = step.take(change, select, min(limit, STEP_ROWS))
                if after != before or not step.is_held_up or attempt == ATTEMPTS:
                    return self._write(progress(after))
            time.sleep(PAUSE_S)

    def forget_discarded(self, before_ms: int, limit: int) -> int:
        with self._written():
            return self._database.change("forget_discarded", before_ms=before_ms, limit=limit)

    # Members.

    def members(
        self, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
    ) -> list[Member]:
        rows = self._database.rows(
            "list_members",
            number=number,
            outcome=None if outcome is None else outcome.value,
            limit=limit,
            after=event_key(after),
        )
        return structs_of(Member, rows)

    def member_counts(self, number: int) -> dict[OutcomeKind | None, int]:
        return {
            None if outcome is None else OutcomeKind(outcome): count
            for outcome, count in self._database.rows("count_members", number=number)
        }

    def _member_key(self, redelivery_id: str) -> str:
        return event_key(redelivery_id)

    def _open_members(self, keys: Collection[str]) -> Iterable[tuple[int, Member]]:
        rows = self._database.rows("open_members", redelivery_ids=list(keys))
        numbers, fields = [row[0] for row in rows], (row[1:] for row in rows)
        return zip(numbers, structs_of(Member, fields), strict=True)

    def _write_members(self, changed: Sequence[tuple[int, Member]]) -> None:
        self._database.queue(
            "write_member_updates",
            operations=[number for number, _ in changed],
            redelivery_ids=[member.redelivery_id for _, member in changed],
            resent=[member.resent_at_ms for _, member in changed],
            outcomes=[str(member.outcome) for _, member in changed],
            evidence=[pg_text(member.evidence) for _, member in changed],
        )

    def settle_members(self, number: int, outcomes: Sequence[MemberOutcome]) -> None:
        with self._written():
            self._database.queue(
                "write_outcomes",
                number=number,
                redelivery_ids=[event_key(one.redelivery_id) for one in outcomes],
                outcomes=[one.outcome.value for one in outcomes],
                evidence=[pg_text(one.evidence) for one in outcomes],
            )

    def record_outcomes(self, proved: Sequence[OutcomeProved]) -> None:
        with self._written() as transaction:
            known = read_since(self._database, (one.redelivery_id for one in proved), 0)
            transaction.record(new_outcomes(known, proved))

    # Editing.

    def replace_message(
        self, row_id: int, expected: bytes, message: bytes, event: AnyEvent, actor: str
    ) -> bool:
        """See `Ledger`; all of it is done or nothing."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S)
            with self._written() as transaction:
                found = lock_free(self._database, [row_id], conditions_of(RowFilter()))
                if found.skipped:
                    continue
                read = self._database.rows("read_message", id=row_id) if found.views else []
                if [body for (body,) in read] != [expected]:
                    return False
                values = {"id": row_id, "edited_at_ms": event.at_ms, "actor": pg_text(actor)}
                self._database.queue("keep_original", **values)
                self._database.queue("replace_message", id=row_id, body=message)
                transaction.record([event])
                return True
        return False

    def originals(self, redelivery_id: str) -> list[Original]:
        found = self._database.rows("read_originals", redelivery_id=event_key(redelivery_id))
        return structs_of(Original, ((redelivery_id, *row) for row in found))

    # Retention.

    def forget_ledger(
        self, before_ms: int, hours_before_ms: int, limit: int, steps_before_ms: int = 0
    ) -> int:
        """See `Ledger`; makes the indexes that a migration left to a better time, too."""
        self._schema.make_indexes()
        database, old = self._database, {"before_ms": before_ms, "limit": limit}
        with self._written():
            removed = sum(
                database.change(name, **old)
                for name in (
                    "forget_counts",
                    "forget_failures",
                    "forget_members",
                    "forget_operations",
                    "forget_originals",
                    "forget_notes",
                    "forget_service_marks",
                )
            )
            removed += database.change("forget_shared_notes", **KEPT)
            before_minute = before_ms // _MINUTE_MS
            removed += database.change(
                "forget_observations", before_minute=before_minute, limit=limit
            )
            database.queue("forget_group_tally", limit=limit)
            database.queue("forget_exhausted_tally", limit=limit)
            ((merged,),) = database.rows("merge_hours", before_ms=hours_before_ms, limit=limit)
            ((joined,),) = database.rows(
                "merge_minutes",
                from_ms=max(hours_before_ms, steps_before_ms - MERGED_BACK_MS),
                before_ms=steps_before_ms,
                limit=limit,
            )
        return int(removed + merged + joined)


class _Step:
    """One step of an operation in a transaction."""

    def __init__(
        self,
        database: PostgresDatabase,
        transaction: PostgresTransaction,
        operation: Operation,
        is_followed: bool,
    ) -> None:
        self._database = database
        self._transaction = transaction
        self._operation = operation
        self._is_followed = is_followed
        self.is_held_up = False

    def take(self, change: RowChange, select: Select | None, limit: int) -> Operation:
        """Change the next rows; returns the operation after them."""
        operation = self._operation
        row_filter = operation.selection.rows
        window = limit if select is None else STEP_ROWS
        views, end = next_window(
            self._database, row_filter, operation.after_id, operation.until_id, window
        )
        if select is not None:
            # Why: all messages of a step are in memory at once.
            count = within(CLAIM_BYTES, [view.size_bytes for view in views])
            if count < len(views):
                views, end = views[:count], views[count - 1].id
            views = self._selected(views, select)
        chosen = views[:limit]
        if len(views) > limit:
            end = chosen[-1].id
        ids = [view.id for view in chosen]
        free = lock_free(self._database, ids, conditions_of(row_filter))
        # Why: a row being taken back comes again, changed; a row being sent does not.
        lying = {view.id for view in chosen if view.is_in_final_queue}
        if held_up := [*free.skipped, *lying.intersection(free.in_flight)]:
            self.is_held_up = True
            end = min(held_up) - 1
        done = self._done_before(chosen)
        views = [view for view in free.views if view.id <= end and view.id not in done]
        left = self._left_to_others(views)
        changes = [
            (view, made)
            for view in views
            if view.id not in left and (made := change(view)) is not None
        ]
        doubled = 0
        if changes:
            self._transaction.change(changes)
            doubled = self._follow(changes) if self._is_followed else 0
        in_flight = [number for number in free.in_flight if number <= end]
        return msgspec.structs.replace(
            operation,
            after_id=end,
            matched=operation.matched + len(views) + len(in_flight),
            overtaken=operation.overtaken + len(left),
            changed=operation.changed + len(changes),
            resent=operation.resent + doubled,
        )

    def _left_to_others(self, views: Sequence[RowView]) -> set[int]:
        """Return which of the rows people did something else to since the operation began."""
        operation = self._operation
        if operation.since is None or not views:
            return set()
        messages = [view.redelivery_id for view in views]
        later = overtaken_rows(operation, read_since(self._database, messages, operation.since))
        return later.intersection(view.id for view in views)

    def _selected(self, views: Sequence[RowView], select: Select) -> list[RowView]:
        found = self._database.rows("read_messages", ids=[view.id for view in views])
        messages: dict[int, bytes] = dict(found)
        return [view for view in views if view.id in messages and select(view, messages[view.id])]

    def _done_before(self, chosen: Sequence[RowView]) -> set[int]:
        """Return rows of messages that came back since this operation changed them.

        Numbers of rows rise in each sidecar, not over all: such a row may lie below `until_id`.
        """
        if not self._is_followed:
            return set()
        keys = {view.id: event_key(view.redelivery_id) for view in chosen}
        found = self._database.rows(
            "members_among", number=self._operation.id, redelivery_ids=list(keys.values())
        )
        changed_at_ms: dict[str, int] = dict(found)
        return {
            view.id
            for view in chosen
            if (at_ms := changed_at_ms.get(keys[view.id])) is not None
            and view.received_at_ms >= at_ms
        }

    def _follow(self, changes: Sequence[tuple[RowView, Change]]) -> int:
        """Follow the messages of changed rows; return how many of them end at once.

        A message may have several rows, and is waited for once.
        """
        members = {
            event_key(view.redelivery_id): (pg_text(made.destination), made.event.at_ms)
            for view, made in changes
        }
        ((waited_for,),) = self._database.rows(
            "count_unsent_members", number=self._operation.id, redelivery_ids=list(members)
        )
        self._database.queue(
            "add_members",
            number=self._operation.id,
            redelivery_ids=list(members),
            destinations=[destination for destination, _ in members.values()],
            changed=[at_ms for _, at_ms in members.values()],
        )
        return len(changes) - len(members) + int(waited_for)
