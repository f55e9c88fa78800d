"""The store contract: the part of a schedule that cycles need.

A row that was taken in cycle k counts only once cycle k is finished; a row that was sent in cycle k
is removed when it is finished. So an undone cycle leaves no trace. All writes of one `transaction`
are durable together when its block is left, or none of them is.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from amqsidecar.model.cause_note import CauseNote, SharedNotes
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.operation import Operation
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import (
    DueRow,
    GroupPlace,
    InstanceView,
    Recall,
    RowFilter,
    RowView,
    StoreState,
    TakenRow,
    Tally,
)
from amqsidecar.model.signal import Signal

LEASE_S: Final = 30
"""Time without a heartbeat after which an instance of a shared store is free for others."""

ReportProgress = Callable[[int, int], None]
"""Called after each durable step of an action with the numbers of rows examined and changed.

An error that it raises ends the action between two steps; finished steps stay done.
"""


def unwatched(_matched: int, _changed: int) -> None:
    """Ignore the numbers."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the medium of a store has space for more.

    Attributes:
        at_once_bytes: bytes of messages that one cycle may take; one message may be larger. 0 =
            nothing is to be taken: the rest is for sending and for freeing space.
        reason: why nothing is to be taken, as a sentence; "" = it may.
    """

    at_once_bytes: int
    reason: str = ""

    @property
    def is_enough(self) -> bool:
        """Whether dead letters may be taken."""
        return self.at_once_bytes > 0


ENOUGH_ROOM: Final = Room(at_once_bytes=1 << 62)


AddLying = Callable[[Sequence[TakenRow], Sequence[AnyEvent]], None]
"""Adds EXHAUSTED rows of messages that lie in queues of the broker, with events; both count."""


class RowDelays(Protocol):
    """Where rows wait that can't be sent now."""

    def group_places(self, ids: Sequence[int], /) -> Mapping[int, GroupPlace]:
        """Return the places of rows in their groups, without rows that have no group.

        Empty in a schedule that sidecars share: it does not keep the groups.

        Rows of an unfinished cycle have a place, too; rows that go to a final dead-letter queue
        don't. A message that dies again keeps its place.

        Args:
            ids: rows out of `claim_due`.
        """
        ...

    def postpone(
        self, ids: Sequence[int], due_at_ms: int, reason: str, gate: str | None = None, /
    ) -> None:
        """Give rows a later due time because a gate or their destination delays them."""
        ...

    def park(self, ids: Sequence[int], reason: str) -> None:
        """Keep waiting rows for a person."""
        ...


class StoreTransaction(RowDelays, Protocol):
    """Writes that become durable together."""

    def finish_cycle(self, cycle: int) -> None:
        """The broker committed this cycle: taken messages wait, sent ones are removed.

        A message sent to a final dead-letter queue stays as EXHAUSTED, without its body.
        """
        ...

    def undo_cycle(self, cycle: int) -> None:
        """The broker did not commit this cycle: restore the state before it."""
        ...

    def settle_in_doubt(self, cycle: int) -> None:
        """The outcome is unknown: taken messages wait, sent messages wait again."""
        ...

    def claim_due(self, now_ms: int, limit: int) -> list[DueRow]:
        """Return waiting rows that are due, by due time, then number; at most `limit`.

        Reads only; in the same transaction, `record_cycle` records the rows to send, and `postpone`
        or `park` the others.
        """
        ...

    def record_cycle(
        self,
        cycle: int,
        taken: Sequence[TakenRow],
        sent: Sequence[DueRow | TakenRow],
        events: Sequence[AnyEvent],
        holds: Mapping[str, int] | None = None,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        """Begin a cycle: its takes, sends and events count when it is finished.

        Args:
            cycle: the last finished cycle plus one.
            taken: new rows.
            sent: rows out of `claim_due`, and messages that are sent without ever being a row.
            events: of this cycle; discarded if it is undone.
            holds: how many dead letters of a source it takes out of the backlog.
            replaced: EXHAUSTED rows that are removed when it is finished, by the number of the new
                row that takes their place and number then.
        """
        ...

    def remove(self, ids: Sequence[int]) -> None:
        """Treat rows as sent whose earlier send the broker has proved."""
        ...

    def record(self, events: Sequence[AnyEvent]) -> None:
        """Write events that belong to no cycle; they count at once."""
        ...

    def set_token_created(self) -> None:
        """The first token is in the broker."""
        ...

    def set_cycle(self, cycle: int) -> None:
        """Continue after this cycle number; only when no cycle is unfinished."""
        ...

    def renew_uid(self) -> str:
        """Take and return another uid: store and broker are from different points in time.

        `known_lives` forgets all lives: the broker may have messages of the history again.
        """
        ...

    def skip_ids(self) -> None:
        """Continue with row numbers that no earlier state of this store can have used."""
        ...

    def holds(self) -> dict[str, int]:
        """Return for each source ever seen how many more of its dead letters are backlog.

        Messages of unfinished cycles count as taken, and no other instance takes from a backlog
        until the transaction ends.
        """
        ...

    def set_hold(self, source: str, remaining: int) -> None:
        """Store how many more dead letters of a source are backlog; 0 = none, but it is known."""
        ...

    def add_signal(self, signal: Signal) -> None:
        """Store that an event outside was reported, after the events that are written before."""
        ...


class Rows(Protocol):
    """The waiting messages and the state of a schedule, in a store or in a broker."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Read all in the block as of one moment, where a store keeps it; write nothing there."""
        ...

    def state(self) -> StoreState:
        """Return where things stand now.

        Raises:
            StoreUnavailable: it can't be read.
        """
        ...

    def next_due_ms(self) -> int | None:
        """Return the earliest due time of a waiting row; None = nothing waits."""
        ...

    def holds(self) -> dict[str, int]:
        """Return for each source ever seen how many more of its dead letters are backlog."""
        ...

    def tallies(self) -> list[Tally]:
        """Return how many rows there are by destination and state; costs no scan of the rows."""
        ...

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        """Return rows by number, only those with a number above `after_id`."""
        ...

    def count_rows(self, row_filter: RowFilter) -> int:
        """Return how many rows the filter hits."""
        ...

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        """Return exhausted and parked rows by their next step, by number, none in flight."""
        ...

    def message(self, row_id: int) -> bytes | None:
        """Return the encoded message of a row; None = no such row, or the broker has it."""
        ...

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        """Return the latest 2,000 events of a message over all its deaths, oldest first."""
        ...

    def size_bytes(self) -> int:
        """Return how much space the store takes on its medium."""
        ...

    def room(self) -> Room:
        """Return whether there is space to take dead letters; cheap, asked before each cycle.

        A store that the service holds also keeps its reserve: space that gives way where the medium
        is full, so that sending, discarding and housekeeping go on.

        Raises:
            StoreUnavailable: the store can't be reached.
        """
        ...

    def instances(self) -> Sequence[InstanceView]:
        """Return all that share the schedule, the oldest first; empty = it is not shared."""
        ...


class Store(Rows, Protocol):
    """The part of a schedule that cycles need; one object belongs to one thread."""

    def set_manual(self, instance: str, patterns: Sequence[str]) -> None:
        """Store the patterns that an instance leaves to a person, for `instances`. Durable."""
        ...

    def reopen(self) -> StoreState:
        """Close and open again, as the same instance if it is still free.

        For use after an error of the store: the new state shows what was committed.

        Raises:
            StoreUnavailable: it can't be opened. Only `reopen` and `close` may be called then.
            SchemaMismatch: it was written by an unknown version.
        """
        ...

    def close(self) -> None:
        """Close; safe to call twice."""
        ...

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Begin a transaction; durable when the block is left without an exception.

        If the process dies inside the block, nothing of it happened. If the end of the block raises
        StoreUnavailable, all of it happened or nothing; `close` and `open` find out which.

        Raises:
            StoreUnavailable: it can't be written (no space, locked for too long).
        """
        ...

    def allocate_ids(self, count: int) -> int:
        """Return the first of `count` consecutive row numbers that were never used before."""
        ...

    def lying(self, redelivery_ids: Collection[str]) -> list[RowView]:
        """Return the rows of these messages that lie in their final queues, none in flight.

        Inside a transaction no other connection changes them until it ends.
        """
        ...

    def adding_lying(self) -> AbstractContextManager[AddLying]:
        """Begin a transaction that adds rows for messages that stay in the broker's queues.

        One process at a time is in it, and `lying` shows the rows that others have added. It needs
        no instance. If the process dies inside the block, nothing of it happened.

        Raises:
            StoreUnavailable: as `transaction`.
        """
        ...

    def known_lives(self, lives: Collection[str]) -> Mapping[str, bool]:
        """Return the lives (`Received.life`) of these that the history has.

        Includes lives of unfinished cycles. False = only an unfinished cycle of another instance
        has it, which may still be undone. Until this transaction ends, no other transaction gets an
        answer about the same deliveries.
        """
        ...

    def recalled_by_due(self, recall: Recall, limit: int) -> list[RowView]:
        """Return the rows of `recalled` by due time, then number."""
        ...

    def count_recalled(self, recall: Recall) -> Mapping[str, int]:
        """Return the number of rows of this kind in each final queue."""
        ...

    def change(
        self, row_filter: RowFilter, change: RowChange, progress: ReportProgress = unwatched
    ) -> int:
        """Change the rows that match the filter for a person's action; returns how many.

        Rows in flight are left. Done in small steps, each durable with its events, that cycles of
        others go between; interrupted, calling it again does the rest. Rows that come meanwhile are
        left alone.

        Args:
            change: returns the new state of a row; None = it is left. It may be asked again of a
                row.
            progress: called after each step.
        """
        ...

    def forget_history(self, before_ms: int, limit: int) -> int:
        """Remove at most `limit` of the oldest events before a time; returns how many.

        Events kept for the journal stay (`journal.Outbox.keep_for_journal`).
        """
        ...

    def trim_history(self, max_events: int, limit: int) -> int:
        """Remove at most `limit` of the oldest events beyond a number, as `forget_history`."""
        ...

    def shrink(self) -> bool:
        """Give a little unused space back to the medium; returns whether there is more to give."""
        ...

    def keep(self) -> None:
        """Give a sign of life when it is time; called more often than every third of a lease.

        Raises:
            StoreUnavailable: another process took the instance over; `reopen` takes another one.
        """
        ...

    def share_notes(self, notes: Sequence[CauseNote]) -> None:
        """Hand notes over to the other instances; nothing where the schedule is not shared.

        Durable. They are kept for ten minutes and up to 16 MiB, the newest, and dropped where the
        medium is short.
        """
        ...

    def shared_notes(self, position: int | None) -> SharedNotes:
        """Return notes that other instances handed over since a position.

        Args:
            position: of the last call; None = all kept notes, this instance's too.
        """
        ...

    def abandoned(self) -> Sequence[str]:
        """Return instances without an owner whose last cycle is unsettled."""
        ...

    def open_operations(self) -> list[Operation]:
        """Return operations that are running, and all others with members without an outcome."""
        ...

    def change_operation(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        """Replace an operation by the result of `change` on its current state; durable, atomic.

        Raises:
            KeyError: no operation has this number.
        """
        ...
