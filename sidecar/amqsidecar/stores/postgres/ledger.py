"""Reads of the PostgreSQL store for people: counts, pages of rows, and new events.

Several processes write events and commit out of order, and those of a cycle become visible when it
is finished. So a position is not a number but a snapshot: it records which transactions were
visible, and the blocks that were hidden then. The events between two snapshots are always the same,
except for those that were forgotten meanwhile.
"""

from collections.abc import Iterator, Sequence

import msgspec

from amqsidecar.ledger import RowKey, RowOrder, RowPage, Tail
from amqsidecar.model.failure import (
    BUCKET_MS,
    CountKey,
    CountKind,
    FailureCount,
    FailureGroup,
    GroupTally,
)
from amqsidecar.model.group_note import LATEST_KEPT, GroupNote
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import ExhaustedTally, GateTally, RowFilter
from amqsidecar.model.service_mark import MARKS_KEPT, ServiceMark
from amqsidecar.stores.outbox import whole_blocks
from amqsidecar.stores.packing import (
    events_called,
    exhausted_tallies,
    gate_tallies,
    pack_struct,
    read_group_note,
    read_service_mark,
    storable,
    unpack_events,
)
from amqsidecar.stores.postgres.database import PostgresDatabase, PostgresRows
from amqsidecar.stores.postgres.pages import page_of_rows
from amqsidecar.stores.postgres.rows import LAST_ID, STATES, group_name, grouped_name, pg_text

_MINUTE_MS = 60_000
_BLOCKS_AT_ONCE = 200


class _Moment(msgspec.Struct, frozen=True, array_like=True):
    snapshot: str
    hidden: list[int]

    @property
    def end(self) -> int:
        """No transaction with this number or a higher one had ended."""
        return int(self.snapshot.split(":")[1])


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """All that was visible at a moment, and of what came until another one all up to a block."""

    since: _Moment
    until: _Moment | None = None
    xid: str = "0"
    block: int = 0


class PostgresLooking:
    """The side of a `Ledger` that only looks, of the store that inherits it."""

    _database: PostgresDatabase

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        """Return groups of which one died since, the latest death first, at most `limit`."""
        return [
            FailureGroup(
                destination=destination,
                cause_group=cause_group,
                first_at_ms=first_at_ms,
                last_at_ms=last_at_ms,
                total=total,
                example_id=example_id,
            )
            for destination, cause_group, first_at_ms, last_at_ms, total, example_id in (
                self._database.query("failure_groups", since_ms=since_ms, limit=limit)
            )
        ]

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        """Return counts of buckets that begin in [from, until), summed up by steps."""
        return [
            FailureCount(
                key=CountKey(
                    bucket_ms=bucket_ms,
                    kind=CountKind(kind),
                    destination=destination,
                    cause_group=cause_group,
                    attempt=attempt,
                ),
                count=count,
            )
            for bucket_ms, kind, destination, cause_group, attempt, count in self._database.query(
                "failure_counts",
                from_ms=from_ms,
                until_ms=until_ms,
                kinds=[str(kind) for kind in kinds],
                step_ms=step_ms,
            )
        ]

    def group_tallies(self) -> list[GroupTally]:
        """Return the number of rows by destination, state and cause group; scans no rows."""
        return [
            GroupTally(
                destination=destination,
                state=STATES[state],
                cause_group=cause_group,
                count=count,
            )
            for destination, state, cause_group, count in self._database.query("group_tallies")
        ]

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        """Return where exhausted messages are, the largest number first; scans no rows."""
        return exhausted_tallies(self._database.query("exhausted_tallies"))

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        """Return how many messages gates delay beyond a time, the largest number first."""
        return gate_tallies(self._database.query("gate_tallies", now_ms=now_ms))

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        """Return how many waiting rows are due in [bound, next bound), one less than bounds."""
        values = {"bounds": list(bounds_ms), "from_ms": bounds_ms[0], "until_ms": bounds_ms[-1]}
        counts: dict[int, int] = dict(self._database.query("due_counts", **values))
        return [counts.get(number, 0) for number in range(1, len(bounds_ms))]

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """Return matching rows; examines a bounded number of rows."""
        return page_of_rows(self._database, row_filter, order, limit, after)

    def messages_called(self, name: str, limit: int) -> list[str]:
        """Return redelivery ids of messages by the id that consumers saw, or a row's number."""
        values = {"message_id": pg_text(name), "limit": limit}
        found = dict.fromkeys(one for (one,) in self._database.query("rows_called", **values))
        for redelivery_id in events_called(self._all_blocks(), storable(name)):
            if len(found) >= limit:
                break
            found[redelivery_id] = None
        return list(found)

    def _all_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Return the whole history, the newest first."""
        before = LAST_ID
        while blocks := self._database.query("blocks_before", before=before, limit=_BLOCKS_AT_ONCE):
            yield from ((packing, body) for _, packing, body in blocks)
            before = blocks[-1][0]

    def tail(self) -> str:
        """Return the position after all events that are visible now."""
        return _encode(_Position(since=self._now()))

    def events_after(self, position: str, max_events: int) -> Tail:
        """Return events that became visible after a position; whole blocks, one at least.

        No event is left out and none comes twice, also where several processes write and commit out
        of order. What was forgotten meanwhile is left out. In a database restored from a
        dump a position of before says nothing: there it is the end.
        """
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
            for _, packing, body in self._database.query(
                "read_blocks", seqs=[block for block, _ in chosen]
            )
            for event in unpack_events(packing, body)
        ]
        return Tail(events=events, position=_encode(found))

    def _blocks(self, found: _Position, until: _Moment, limit: int) -> PostgresRows:
        return self._database.query(
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
        ((snapshot, hidden),) = self._database.query("tail")
        return _Moment(snapshot=snapshot, hidden=hidden)

    def add_observations(self, observations: Sequence[Observation]) -> None:
        """Store observations; of each destination at most one a minute, the latest."""
        latest = dict[tuple[str, int], Observation]()
        for seen in sorted(observations, key=lambda seen: seen.at_ms):
            latest[grouped_name(seen.destination), seen.at_ms // _MINUTE_MS] = seen
        # Why sorted: two writers at once must not deadlock.
        kept = sorted(latest.items())
        self._database.query(
            "add_observations",
            destinations=[destination for (destination, _), _ in kept],
            minutes=[minute for (_, minute), _ in kept],
            times=[seen.at_ms for _, seen in kept],
            bodies=[pack_struct(seen) for _, seen in kept],
        )

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        """Return the observations of a destination in [from, until), the oldest first."""
        return [
            msgspec.json.decode(body, type=Observation)
            for (body,) in self._database.query(
                "read_observations",
                destination=grouped_name(destination),
                from_ms=from_ms,
                until_ms=until_ms,
                from_minute=from_ms // _MINUTE_MS,
                until_minute=until_ms // _MINUTE_MS,
            )
        ]

    def recent_observations(self, since_ms: int) -> list[Observation]:
        """Return the observations of all destinations since a time, the oldest first."""
        found = self._database.query(
            "recent_observations", since_ms=since_ms, since_minute=since_ms // _MINUTE_MS
        )
        return [msgspec.json.decode(body, type=Observation) for (body,) in found]

    def add_note(self, note: GroupNote) -> None:
        """Keep a note; of each group the latest `LATEST_KEPT`. Durable.

        Where two people write at once, one more may stay until the next is written.
        """
        self._database.query(
            "add_note",
            destination=grouped_name(note.destination),
            cause_group=group_name(note.cause_group),
            at_ms=note.at_ms,
            author=pg_text(note.author),
            text=pg_text(note.text),
            owner=pg_text(note.owner),
            snoozed_until_ms=note.snoozed_until_ms,
            muted_deaths=note.muted_deaths,
            merged_into=group_name(note.merged_into),
            kept=LATEST_KEPT,
        )

    def notes(self, destination: str, cause_group: str) -> list[GroupNote]:
        """Return the notes on a group, the latest first."""
        place = {"destination": grouped_name(destination), "cause_group": group_name(cause_group)}
        return [read_group_note(row) for row in self._database.query("read_notes", **place)]

    def latest_notes(self, limit: int) -> list[GroupNote]:
        """Return the latest note of each group, the latest first, at most `limit`."""
        return [read_group_note(row) for row in self._database.query("latest_notes", limit=limit)]

    def add_service_mark(self, mark: ServiceMark) -> None:
        """Store service marks; of each instance the latest `MARKS_KEPT`. Durable."""
        self._database.query(
            "add_service_mark",
            at_ms=mark.at_ms,
            instance=pg_text(mark.instance),
            kind=mark.kind.value,
            rules_digest=mark.rules_digest,
            kept=MARKS_KEPT,
        )

    def service_marks(self, limit: int) -> list[ServiceMark]:
        """Return the marks of services, the latest first, at most `limit`."""
        found = self._database.query("read_service_marks", limit=limit)
        return [read_service_mark(row) for row in found]

    def latest_starts(self) -> list[ServiceMark]:
        """Return the latest start of each instance, the latest first."""
        return [read_service_mark(row) for row in self._database.query("latest_starts")]


def _encode(position: _Position) -> str:
    return msgspec.json.encode(position).decode()
