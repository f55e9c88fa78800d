"""The ledger contract: a store's data for operators besides the schedule.

Counts of failures, operations with their progress and the outcomes of their messages, originals of
edited messages, observations of destinations, and people's notes. Every store that keeps a schedule
of its own is a ledger too (SQLite, PostgreSQL); where the broker keeps waiting messages, there is
no ledger.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from amqsidecar.model.event import AnyEvent, OutcomeProved
from amqsidecar.model.failure import BUCKET_MS, CountKind, FailureCount, GroupNote
from amqsidecar.model.marker import Marker, ServiceMark
from amqsidecar.model.operation import Member, Operation, OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.model.signal import EndedWait, Signal


class RowOrder(StrEnum):
    """How rows are listed."""

    NEWEST = "newest"
    """By number, the highest first."""
    DUE = "due"
    """By due time, then number; rows that wait for a person come with their due time, too."""


class RowKey(NamedTuple):
    """Where a page of rows ended, in its order.

    Attributes:
        sort: NEWEST: 0; DUE: the due time.
    """

    sort: int
    id: int


def key_of(order: RowOrder, row: RowView) -> RowKey:
    """Return where a page ends whose last row this is."""
    return RowKey(row.due_at_ms if order is RowOrder.DUE else 0, row.id)


class RowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows.

    Attributes:
        rows: may be fewer than asked for although there are more: looking is bounded.
        next_after: where to go on; None = this is the end.
    """

    rows: list[RowView]
    next_after: RowKey | None


Select = Callable[[RowView, bytes], bool]
"""Decides by a row and its encoded message whether an operation is about it."""


class MemberUpdate(NamedTuple):
    """A member of an operation was seen.

    Attributes:
        has_returned: False = it was re-sent; True = it died again.
        destination: where it was sent to; None = unknown.
    """

    redelivery_id: str
    at_ms: int
    has_returned: bool
    destination: str | None = None


class MemberOutcome(NamedTuple):
    """The outcome of a member."""

    redelivery_id: str
    outcome: OutcomeKind
    evidence: str


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it was before a person edited it; kept as long as the history."""

    redelivery_id: str
    row_id: int
    edited_at_ms: int
    actor: str
    encoding: str
    message: bytes


class Tail(NamedTuple):
    """Events in the order in which they became visible, and where they end.

    Attributes:
        position: opaque; give it to `events_after` for later events.
    """

    events: Sequence[AnyEvent]
    position: str


class Ledger(Protocol):
    """The part of a schedule that people act through, and look at beside `ScheduleView`."""

    # Looking. Events of an unfinished cycle count nowhere yet.

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        """Return counts of buckets that begin in [from, until), summed up by steps.

        A key has the begin of its step, which may lie before `from_ms`. Old buckets may be merged
        to five minutes or hours.
        """
        ...

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        """Return how many waiting rows are due in [bound, next bound), one less than bounds."""
        ...

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """Return matching rows; examines a bounded number of rows."""
        ...

    def tail(self) -> str:
        """Return the position after all events that are visible now."""
        ...

    def events_after(self, position: str, max_events: int) -> Tail:
        """Return events that became visible after a position; whole blocks, one at least.

        No event is left out or repeated, even if several processes write and commit out of order;
        only events removed meanwhile are missing.
        """
        ...

    # Operations.

    def event_mark(self) -> int:
        """Return a number; later events of people's actions are above it (`Operation.since`).

        Events of a transaction that is just being committed may be above or below.
        """
        ...

    def add_operation(self, operation: Operation) -> Operation:
        """Store an operation; return it with its number, and with the newest row as `until_id`."""
        ...

    def operations(self, limit: int, before: int | None = None) -> list[Operation]:
        """Return operations, the newest first, only those with a number below `before`."""
        ...

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

        One transaction: rows, events, `after_id`, `matched`, `changed`, and members; so a process
        that dies leaves the step done or not done. In-flight rows and `overtaken_rows` stay
        unchanged. Examines a bounded number of rows: a step without a match need not be the last.

        Messages that an action removes with `Change.undone_by` are kept for `put_back`: the latest
        `UNDO_BYTES` in all, and nothing while `Store.room` has no room.

        Args:
            number: of the operation; if it isn't running (any more), nothing is done.
            change: returns the new state of a row; None = it stays unchanged.
            select: narrows the rows that the filter matches; None = all of them.
            limit: maximum rows changed.
            progress: called in the transaction with the operation after the step, its cursor and
                counts set; its result is stored. `after_id == until_id`: it was the last.
            is_followed: keep the changed rows as members, whose outcome is wanted.
        """
        ...

    def put_back(
        self,
        number: int,
        event_of: Callable[[RowView], AnyEvent],
        limit: int,
        progress: Callable[[Operation], Operation],
    ) -> Operation:
        """Put back discarded messages of an operation, unchanged; durable with its progress.

        A message taken out of its final queue to be discarded goes back there (`Recall.RETURN`).

        Args:
            number: of the operation; if it is not being undone, nothing is done.
            event_of: the event of each row that came back.
            limit: maximum rows put back.
            progress: called in the transaction with the operation after the step, `restored` set;
                its result is stored.
        """
        ...

    def count_discarded(self, number: int) -> int:
        """Return how many messages of an operation `put_back` would find."""
        ...

    def forget_discarded(self, before_ms: int, limit: int) -> int:
        """Remove at most `limit` messages that were discarded before a time; returns how many."""
        ...

    def members(
        self, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
    ) -> list[Member]:
        """Return members by redelivery id, only those above `after`; None = any outcome."""
        ...

    def member_counts(self, number: int) -> dict[OutcomeKind | None, int]:
        """Return the number of members by outcome; None = not sent yet."""
        ...

    def followed_until(self) -> str | None:
        """Return the position up to which events were searched for members; None = never."""
        ...

    def update_members(self, updates: Sequence[MemberUpdate], position: str) -> None:
        """Store observations of members, and the position in the events; durable together.

        Ids without an open member are left out, and updates before the member's change. Adds to
        `resent` and `came_back` of the operations.
        """
        ...

    def due_members(self, number: int, resent_before_ms: int, limit: int) -> list[Member]:
        """Return members with outcome RESENT that were sent before a time, the oldest first."""
        ...

    def settle_members(self, number: int, outcomes: Sequence[MemberOutcome]) -> None:
        """Write outcomes of members, unless they are known by now; durable together."""
        ...

    # Editing.

    def replace_message(
        self, row_id: int, expected: bytes, message: bytes, event: AnyEvent, actor: str
    ) -> bool:
        """Replace the bytes of a row, with an event; the old ones become an `Original`.

        Returns:
            False = the row is gone, in flight, or has another message: nothing was done.
        """
        ...

    def originals(self, redelivery_id: str) -> list[Original]:
        """Return the versions of a message before its edits, the oldest first."""
        ...

    # What was seen of destinations.

    def add_observations(self, observations: Sequence[Observation]) -> None:
        """Store observations; of each destination at most one a minute, the latest."""
        ...

    def record_outcomes(self, proved: Sequence[OutcomeProved]) -> None:
        """Record proved outcomes, each once even if other instances record it too.

        Skips an outcome whose message has an event after the re-send. Durable together.
        """
        ...

    # Notes.

    def add_note(self, note: GroupNote) -> None:
        """Store a note, durably; keeps the latest `LATEST_KEPT` of each group."""
        ...

    def notes(self, destination: str, cause_group: str) -> list[GroupNote]:
        """Return the notes on a group, the latest first."""
        ...

    def latest_notes(self, limit: int) -> list[GroupNote]:
        """Return the latest note of each group, the latest first, at most `limit`."""
        ...

    # Values of programs.

    def read_value(self, name: str) -> bytes | None:
        """Return the value that is kept under a name; None = there is none."""
        ...

    def swap_value(self, name: str, expected: bytes, body: bytes) -> bool:
        """Store a value in place of the expected one, durably; one of several writers succeeds.

        Args:
            expected: by `read_value`; empty = there is none.
            body: the new value; empty = none any more.

        Returns:
            False = there is another value by now.
        """
        ...

    def value_names(self, prefix: str) -> list[str]:
        """Return the names of values that begin with a prefix."""
        ...

    # Services.

    def add_service_mark(self, mark: ServiceMark) -> None:
        """Store service marks; of each instance the latest `MARKS_KEPT`. Durable."""
        ...

    def service_marks(self, limit: int) -> list[ServiceMark]:
        """Return the acts of services, the latest first, at most `limit`."""
        ...

    def add_marker(self, marker: Marker) -> None:
        """Store a marker with its event; of each pattern the latest `MARKS_KEPT`. Durable."""
        ...

    def markers(self, since_ms: int, limit: int) -> list[Marker]:
        """Return markers since a time, the latest first, at most `limit`."""
        ...

    def latest_starts(self) -> list[ServiceMark]:
        """Return the latest start of each instance, the latest first."""
        ...

    # Signals.

    def add_signal(self, signal: Signal) -> None:
        """Store that an event outside was reported; the latest report counts. Durable."""
        ...

    def ended_waits(self, since_ms: int, now_ms: int, limit: int) -> list[EndedWait]:
        """Return held rows whose event was reported since a time, or whose time has passed.

        A report that no `forget_signals` has dated counts as reported now. Finds rows by indexes.
        At most `limit`, rows in flight among them; a row may come twice.
        """
        ...

    def forget_signals(self, now_ms: int, kept_ms: int) -> int:
        """Date new signals, then remove those of a longer time ago; returns how many.

        A shared schedule asks its database for the time, since clocks of services differ.
        """
        ...

    # Retention.

    def forget_ledger(
        self, before_ms: int, hours_before_ms: int, limit: int, steps_before_ms: int = 0
    ) -> int:
        """Remove older records, and merge older counts; returns how many.

        Counts before `hours_before_ms` are merged to hours, later counts before `steps_before_ms`
        to five minutes; counts far before it wait for their hour.

        Removes at most `limit` older records of each kind: groups by their last death, ended
        operations by their end, originals by their edit, observations; and notes whose group is
        gone, markers, and service marks except the latest of each instance that the store knows.
        An operation stays while a row is to be discarded for it.
        """
        ...
