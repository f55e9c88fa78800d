"""Reads of the PostgreSQL store for people: counts, pages of rows, and new events.

Several processes write events and commit out of order, and a cycle's events become visible when it
is finished. So a position is not a number but a snapshot: it records which transactions were
visible, and the blocks that were hidden then. The events between two snapshots never change, except
that old events are forgotten.
"""

from collections.abc import Generator, Sequence

import msgspec

from amqsidecar.ledger import Tail
from amqsidecar.model.failure import (
    BUCKET_MS,
    CountKind,
    FailureCount,
    GroupTally,
)
from amqsidecar.model.schedule import ExhaustedTally, GateTally
from amqsidecar.stores.ledger import CommonLedger, counts_of
from amqsidecar.stores.outbox import whole_blocks
from amqsidecar.stores.packing import (
    exhausted_tallies,
    gate_tallies,
    structs_of,
    unpack_events,
)
from amqsidecar.stores.postgres.database import PostgresDatabase, PostgresRows
from amqsidecar.stores.postgres.pages import PostgresPages
from amqsidecar.stores.rows import LAST_ID, STATES

_BLOCKS_AT_ONCE = 200


class _Moment(msgspec.Struct, frozen=True, array_like=True):
    snapshot: str
    hidden: list[int]

    @property
    def end(self) -> int:
        """No transaction with this number or a higher one had ended."""
        return int(self.snapshot.split(":")[1])


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """All events visible at `since`, and of the events until `until` those up to a block."""

    since: _Moment
    until: _Moment | None = None
    xid: str = "0"
    block: int = 0


class PostgresLooking(CommonLedger, PostgresPages):
    """The read-only side of a `Ledger`, for the store that inherits it."""

    _database: PostgresDatabase

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        return counts_of(
            self._database.rows(
                "failure_counts",
                from_ms=from_ms,
                until_ms=until_ms,
                kinds=[str(kind) for kind in kinds],
                step_ms=step_ms,
            )
        )

    def group_tallies(self) -> list[GroupTally]:
        found = self._database.rows("group_tallies")
        return structs_of(GroupTally, ((one, STATES[state], *rest) for one, state, *rest in found))

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        return exhausted_tallies(self._database.rows("exhausted_tallies"))

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        return gate_tallies(self._database.rows("gate_tallies", now_ms=now_ms))

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        values = {"bounds": list(bounds_ms), "from_ms": bounds_ms[0], "until_ms": bounds_ms[-1]}
        counts: dict[int, int] = dict(self._database.rows("due_counts", **values))
        return [counts.get(number, 0) for number in range(1, len(bounds_ms))]

    def _all_blocks(self) -> Generator[tuple[int, bytes]]:
        before = LAST_ID
        while blocks := self._database.rows("blocks_before", before=before, limit=_BLOCKS_AT_ONCE):
            yield from ((packing, body) for _, packing, body in blocks)
            before = blocks[-1][0]

    def tail(self) -> str:
        return _encode(_Position(since=self._now()))

    def events_after(self, position: str, max_events: int) -> Tail:
        """See `Ledger`; in a database restored from a dump a position of before is the end."""
        found, now = msgspec.json.decode(position, type=_Position), self._now()
        if found.since.end > now.end:
            return Tail(events=[], position=_encode(_Position(since=now)))
        until = found.until or now
        blocks = self._blocks(found, until, max_events)
        if not blocks and found.until is not None:  # The rest was forgotten meanwhile.
            found, until = _Position(since=until), now
            blocks = self._blocks(found, until, max_events)
        if not blocks:
            return Tail(events=[], position=_encode(found))
        chosen = whole_blocks([(seq, count) for _, seq, count in blocks], max_events)
        if len(chosen) == len(blocks) < max_events:
            found = _Position(since=until)
        else:
            xid, block, _ = blocks[len(chosen) - 1]
            found = _Position(since=found.since, until=until, xid=xid, block=block)
        events = [
            event
            for _, packing, body in self._database.rows(
                "read_blocks", seqs=[block for block, _ in chosen]
            )
            for event in unpack_events(packing, body)
        ]
        return Tail(events=events, position=_encode(found))

    def _blocks(self, found: _Position, until: _Moment, limit: int) -> PostgresRows:
        return self._database.rows(
            "blocks_since",
            since=found.since.snapshot,
            hidden_since=found.since.hidden,
            until=until.snapshot,
            hidden_until=until.hidden,
            after_xid=found.xid,
            after_seq=found.block,
            limit=limit,
        )

    def _now(self) -> _Moment:
        ((snapshot, hidden),) = self._database.rows("tail")
        return _Moment(snapshot=snapshot, hidden=hidden)


def _encode(position: _Position) -> str:
    return msgspec.json.encode(position).decode()
