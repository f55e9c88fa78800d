"""A ledger against a recount of history and rows: whatever is done, its counts say the same."""

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from amqsidecar.ledger import RowOrder
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, Parked, Received, Resent, Returned
from amqsidecar.model.failure import CountKind, failure_cause, failures_of
from amqsidecar.model.operation import (
    Action,
    Operation,
    OperationState,
    OutcomeKind,
    Selection,
)
from amqsidecar.model.schedule import DueRow, RowFilter, RowState, RowView, TakenRow
from amqsidecar.operations.follow import follow
from support.stores.failure_counts import counts_of
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import resent, taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

ALL = RowFilter()
CAUSES = (None, "a.Refused: order 17", "b.Late: 3 s", "c.Odd: \u202e")
DESTINATIONS = ("queue://a", "queue://b", "queue://caf\u00e9")
FILTERS = st.builds(
    RowFilter,
    destination=st.none() | st.sampled_from(DESTINATIONS),
    state=st.none() | st.sampled_from(RowState),
    cause_group=st.none()
    | st.sampled_from([failure_cause(cause, expired=False) for cause in CAUSES]),
)
ENDS = st.sampled_from(["finish_cycle", "finish_cycle", "undo_cycle", "settle_in_doubt"])
ACTIONS = st.sampled_from(["retry", "hold", "release", "cancel", "redirect", "discard"])
TAKES = st.lists(
    st.tuples(
        st.sampled_from(CAUSES),
        st.sampled_from(DESTINATIONS),
        st.sampled_from([RowState.WAITING, RowState.WAITING, RowState.HELD, RowState.PARKED]),
        st.integers(0, 5),
    ),
    max_size=4,
)


class LedgerMachine(RuleBasedStateMachine):
    """Each thing that is done has a time of its own, so that the order is known."""

    store: UnsyncedStore | EmptiedStore

    @initialize()
    def begin(self) -> None:
        self.store = self.opened()
        self.now_ms = 1_000
        self.ids = set[str]()
        self.sent = list[str]()
        self.unfinished: int | None = None
        self.position = self.store.tail()
        assert follow(self.store)
        self.read = list[AnyEvent]()
        self.discarded = dict[int, dict[int, RowView]]()
        self.discarded_at_ms = dict[int, int]()

    def opened(self) -> UnsyncedStore | EmptiedStore:
        """Open the store, empty the first time."""
        raise NotImplementedError

    def tick(self) -> int:
        self.now_ms += 97_003  # Three of them are in one bucket.
        return self.now_ms

    # Cycles.

    @precondition(lambda self: self.unfinished is None)
    @rule(takes=TAKES, limit=st.integers(0, 4))
    def begin_cycle(self, takes: Sequence[tuple[Any, ...]], limit: int) -> None:
        cycle = self.store.open().cycle + 1
        at_ms = self.tick()
        first = self.store.allocate_ids(len(takes) or 1)
        taken = [self.row(first + n, at_ms, *fields) for n, fields in enumerate(takes)]
        with self.store.transaction() as tx:
            claimed = tx.claim_due(10**12, limit)
            tx.record_cycle(cycle, taken, claimed, self.events_of(taken, claimed, at_ms))
        self.sent += [row.redelivery_id for row in claimed]
        self.unfinished = cycle

    def row(
        self, row_id: int, at_ms: int, cause: str | None, destination: str, state: RowState, n: int
    ) -> TakenRow:
        redelivery_id = self.sent[n] if n < len(self.sent) else f"m-{row_id:06d}"
        self.ids.add(redelivery_id)
        return taken_row(
            row_id,
            redelivery_id=redelivery_id,
            cause=cause,
            cause_group=failure_cause(cause, expired=False),
            destination=destination,
            state=state,
            due_at_ms=n,
            received_at_ms=at_ms,
            redelivery_count=n,
        )

    def events_of(
        self, taken: Sequence[TakenRow], sent: Sequence[DueRow], at_ms: int
    ) -> list[AnyEvent]:
        died: list[AnyEvent] = []
        for row in taken:
            event: Received = took(row)
            if row.redelivery_id in self.sent:
                fields = msgspec.structs.asdict(event) | {"redelivery_count": row.redelivery_count}
                event = Returned(**fields)
            died.append(event)
        return [*died, *(resent(row, at_ms) for row in sent)]

    @precondition(lambda self: self.unfinished is not None)
    @rule(end=ENDS)
    def end_cycle(self, end: str) -> None:
        with self.store.transaction() as tx:
            getattr(tx, end)(self.unfinished)
        self.unfinished = None

    # What operators do.

    @rule(cause=st.sampled_from(CAUSES), destination=st.sampled_from(DESTINATIONS))
    def record(self, cause: str | None, destination: str) -> None:
        at_ms, redelivery_id = self.tick(), "m-recorded"
        self.ids.add(redelivery_id)
        with self.store.transaction() as tx:
            tx.record(
                [
                    Received(
                        at_ms=at_ms, redelivery_id=redelivery_id, source=destination, cause=cause
                    ),
                    Parked(at_ms=at_ms, redelivery_id=redelivery_id, destination="", reason="none"),
                ]
            )

    @rule(action=st.sampled_from(["retry", "hold", "release"]), row_filter=FILTERS)
    def act(self, action: str, row_filter: RowFilter) -> None:
        self.store.change(row_filter, getattr(row_changes, action)(self.tick(), "ann"))

    @rule(row_filter=FILTERS, is_parked=st.booleans())
    def park_or_remove(self, row_filter: RowFilter, is_parked: bool) -> None:
        rows = [row for row in self.store.list_rows(row_filter, 2) if not row.in_flight]
        ids = [row.id for row in rows]
        with self.store.transaction() as tx:
            if is_parked:
                tx.park(ids, "refused")
            else:
                tx.remove(ids)

    @rule(row_filter=FILTERS)
    def add_operation(self, row_filter: RowFilter) -> None:
        self.store.add_operation(
            Operation(
                id=0,
                action=Action.RETRY,
                selection=Selection(rows=row_filter),
                actor="ann",
                reason="",
                created_at_ms=self.now_ms,
                until_id=0,
            )
        )

    @rule(
        back=st.integers(0, 2),
        action=ACTIONS,
        limit=st.integers(1, 3),
        only_even=st.booleans(),
        is_followed=st.booleans(),
    )
    def step(self, back: int, action: str, limit: int, only_even: bool, is_followed: bool) -> None:
        operations = self.store.operations(back + 1)
        if len(operations) <= back:
            return
        before = operations[back]
        actor, at_ms = f"op{before.id}{'followed' * is_followed}", self.tick()
        if action == "cancel":
            act = row_changes.cancel(at_ms, actor, ".final")
        elif action == "redirect":
            act = row_changes.redirect(at_ms, actor, "queue://b")
        else:
            act = getattr(row_changes, action)(at_ms, actor)
        after = self.store.step_operation(
            before.id,
            act,
            (lambda row, _message: row.id % 2 == 0) if only_even else None,
            limit,
            lambda operation: operation,
            is_followed,
        )
        assert after.changed - before.changed <= limit
        assert before.after_id <= after.after_id <= after.until_id

    @rule(back=st.integers(0, 2), filters=FILTERS)
    def discard(self, back: int, filters: RowFilter) -> None:
        operations = self.store.operations(back + 1)
        if len(operations) <= back:
            return
        number, at_ms = operations[back].id, self.tick()
        before = {row.id: row for row in self.store.list_rows(ALL, 10_000)}
        self.store.change(filters, row_changes.discard(at_ms, "ann", number))
        left = {row.id for row in self.store.list_rows(ALL, 10_000)}
        discarded = {row_id: row for row_id, row in before.items() if row_id not in left}
        self.discarded.setdefault(number, {}).update(discarded)
        self.discarded_at_ms |= dict.fromkeys(discarded, at_ms)

    @rule(back=st.integers(0, 2), limit=st.integers(1, 3))
    def put_back(self, back: int, limit: int) -> None:
        operations = self.store.operations(back + 1)
        if len(operations) <= back:
            return
        number, at_ms = operations[back].id, self.tick()
        kept = self.discarded.get(number, {})
        was = self.store.change_operation(
            number, lambda now: msgspec.structs.replace(now, state=OperationState.UNDOING)
        )
        after = self.store.put_back(
            number, lambda row: row_changes.restored(row, at_ms, "ann"), limit, lambda now: now
        )
        self.store.change_operation(
            number, lambda now: msgspec.structs.replace(now, state=operations[back].state)
        )
        back_ids = sorted(kept)[:limit]
        assert after.restored - was.restored == len(back_ids)
        rows = {row.id: row for row in self.store.list_rows(ALL, 10_000)}
        for row_id in back_ids:
            assert rows[row_id] == kept.pop(row_id)
            assert self.store.message(row_id) == taken_row(row_id).message

    @rule(age_ms=st.integers(0, 500_000), limit=st.integers(1, 3))
    def forget_discarded(self, age_ms: int, limit: int) -> None:
        before_ms = self.now_ms - age_ms
        old = sorted(
            (self.discarded_at_ms[row_id], row_id)
            for kept in self.discarded.values()
            for row_id in kept
            if self.discarded_at_ms[row_id] < before_ms
        )[:limit]
        assert self.store.forget_discarded(before_ms, limit) == len(old)
        for _, row_id in old:
            for kept in self.discarded.values():
                kept.pop(row_id, None)

    @invariant()
    def what_was_discarded_is_counted(self) -> None:
        for operation in self.store.operations(1_000):
            count = len(self.discarded.get(operation.id, {}))
            assert self.store.count_discarded(operation.id) == count

    @rule(limit=st.integers(1, 5))
    def follow(self, limit: int) -> None:
        tail = self.store.events_after(self.position, limit)
        self.read += tail.events
        self.position = tail.position
        assert follow(self.store)
        self.check_outcomes()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store.open()

    # What is true.

    def history(self) -> list[AnyEvent]:
        return list(chain.from_iterable(map(self.store.history, sorted(self.ids))))

    @invariant()
    def failures_are_a_recount_of_the_history(self) -> None:
        events = self.history()
        found = self.store.failure_counts(0, 10**15, list(CountKind))
        assert Counter({one.key: one.count for one in found}) == counts_of(events)
        assert len(found) == len(counts_of(events))
        groups = {
            (one.destination, one.cause_group): msgspec.structs.replace(one, example_id="")
            for one in self.store.failure_groups(0, 100)
        }
        assert groups == {
            place: msgspec.structs.replace(one, example_id="")
            for place, one in failures_of(events).groups.items()
        }

    @invariant()
    def tallies_are_a_recount_of_the_rows(self) -> None:
        rows = self.store.list_rows(ALL, 10_000)
        told = self.store.group_tallies()
        counted = Counter((row.destination, row.state, row.cause_group) for row in rows)
        assert {(one.destination, one.state, one.cause_group): one.count for one in told} == counted
        assert {(one.destination, one.state): one.count for one in self.store.tallies()} == Counter(
            (row.destination, row.state) for row in rows
        )
        assert sum(self.store.due_counts([0, 10, 10**15])) == sum(
            row.state is RowState.WAITING for row in rows
        )
        page = self.store.page_rows(ALL, RowOrder.NEWEST, 10_000)
        assert (page.rows[::-1], page.next_after) == (rows, None)

    @invariant()
    def operations_are_a_recount_of_their_events(self) -> None:
        changed, members = Counter[int](), dict[int, set[str]]()
        for event in self.history():
            actor = getattr(event, "actor", None) or ""
            if actor.startswith("op"):
                number = int(actor[2:].removesuffix("followed"))
                changed[number] += 1
                if actor.endswith("followed"):
                    members.setdefault(number, set()).add(event.redelivery_id)
        for operation in self.store.operations(1_000):
            assert operation.changed == changed[operation.id]
            assert operation.matched >= operation.changed
            found = self.store.members(operation.id, None, 1_000)
            assert {one.redelivery_id for one in found} == members.get(operation.id, set())
            outcomes = Counter(member.outcome for member in found)
            assert self.store.member_counts(operation.id) == outcomes

    def check_outcomes(self) -> None:
        """The updates of members are those in the history after they were changed."""
        if self.store.followed_until() != self.store.tail():
            return
        for operation in self.store.operations(1_000):
            for member in self.store.members(operation.id, None, 1_000):
                later = [
                    event
                    for event in self.store.history(member.redelivery_id)
                    if event.at_ms >= member.changed_at_ms
                ]
                came_back = any(isinstance(event, Returned) for event in later)
                was_sent = any(isinstance(event, Resent) for event in later)
                outcome = OutcomeKind.CAME_BACK if came_back else OutcomeKind.RESENT
                assert member.outcome == (outcome if came_back or was_sent else None)

    @precondition(lambda self: self.unfinished is None)
    @rule()
    def read_to_the_end(self) -> None:
        """No event is left out and none comes twice."""
        while (tail := self.store.events_after(self.position, 3)).position != self.position:
            self.read += tail.events
            self.position = tail.position

        def numbered(events: Sequence[AnyEvent]) -> Counter[bytes]:
            return Counter(map(msgspec.json.encode, events))

        assert numbered(self.read) == numbered(self.history())


class SqliteMachine(LedgerMachine):
    """Its texts are counted as well."""

    folder: Path | None = None

    def opened(self) -> UnsyncedStore:
        self.folder = Path(tempfile.mkdtemp())
        store = UnsyncedStore(self.folder / "schedule.db", clock=VirtualClock())
        store.open()
        return store

    @precondition(lambda self: self.unfinished is None)
    @invariant()
    def texts_are_counted(self) -> None:
        if self.folder is None:
            return
        with closing(sqlite3.connect(self.folder / "schedule.db")) as database:
            counted = dict(database.execute("SELECT text, uses FROM word WHERE uses <> 0"))
        rows = self.store.list_rows(ALL, 10_000)
        rows += chain.from_iterable(kept.values() for kept in self.discarded.values())
        texts = [(one.destination, one.source, one.rule, one.encoding) for one in rows]
        groups = [one.cause_group for one in rows if one.cause_group]
        assert counted == Counter([*chain.from_iterable(texts), *groups])

    def teardown(self) -> None:
        if self.folder is not None:
            self.store.close()
            shutil.rmtree(self.folder)


class PostgresMachine(LedgerMachine):
    """On a schema that is emptied."""

    url = ""

    def opened(self) -> EmptiedStore:
        empty(self.url)
        store = EmptiedStore(self.url, clock=VirtualClock())
        store.open()
        return store

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


SETTINGS = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestSqliteLedger = SqliteMachine.TestCase
TestSqliteLedger.settings = SETTINGS


def test_postgres_ledger(postgres: PostgresServer) -> None:
    PostgresMachine.url = postgres.url()
    run_state_machine_as_test(PostgresMachine, settings=settings(SETTINGS, max_examples=8))
