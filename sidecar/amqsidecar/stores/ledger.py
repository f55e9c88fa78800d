"""The ledger's common part: the same columns of the same tables in all stores.

A store overrides the storage of texts, and parts that its data model or locks change.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

import msgspec

from amqsidecar.ledger import MemberUpdate
from amqsidecar.model.event import AnyEvent, Marked
from amqsidecar.model.failure import LATEST_KEPT, CountKey, FailureCount, FailureGroup, GroupNote
from amqsidecar.model.marker import MARKS_KEPT, Marker, ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import (
    Action,
    Member,
    Operation,
    OperationState,
    OutcomeKind,
    Selection,
    is_working,
)
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowView
from amqsidecar.model.signal import EndedWait, Signal
from amqsidecar.store import StoreTransaction
from amqsidecar.stores.member_updates import updated
from amqsidecar.stores.packing import (
    events_called,
    of_newer_version,
    pack_struct,
    storable,
    structs_of,
)
from amqsidecar.stores.rows import GROUPED_CHARACTERS, INDEXED_CHARACTERS, LAST_ID

_MINUTE_MS = 60_000
_FOLLOWED = "followed"
"""Name of the value with the position of `Ledger.followed_until`."""
_MARKER = "marker"

_decode_whole = msgspec.json.Decoder(Operation).decode
_decode_observation = msgspec.json.Decoder(Observation).decode


def decode_operation(body: bytes) -> Operation:
    """Return an operation, with the names of fields that only a newer version can read.

    An unknown field that is null, false, zero or empty asks for nothing.

    Raises:
        StoreUnavailable: it is or was in a state that this version does not know.
    """
    try:
        operation = _decode_whole(body)
        if pack_struct(operation) == body:  # Why: ten times as fast.
            return operation
    except msgspec.ValidationError:
        operation = _decode_parts(msgspec.json.decode(body))
    known = msgspec.to_builtins(operation)
    unread = [*operation.unread_fields, *_unread("", msgspec.json.decode(body), known)]
    return msgspec.structs.replace(operation, unread_fields=tuple(dict.fromkeys(unread)))


def _decode_parts(written: Mapping[str, Any]) -> Operation:
    # Why HOLD: it stands for an action that this version does not know.
    fields: dict[str, Any] = {"action": Action.HOLD, "selection": Selection()}
    unread = []
    for field in msgspec.structs.fields(Operation):
        if field.name in written:
            try:
                fields[field.name] = msgspec.convert(written[field.name], field.type)
            except msgspec.ValidationError as error:
                if field.name in ("state", "state_changes"):
                    raise of_newer_version(error) from error
                unread.append(field.name)
    return Operation(**fields | {"unread_fields": tuple(unread)})


def _unread(place: str, written: object, known: object) -> Iterator[str]:
    """Yield the names of fields in a written value that are not known and ask for something."""
    if isinstance(written, dict) and isinstance(known, dict):
        for name, value in written.items():
            if name in known:
                yield from _unread(f"{place}{name}.", value, known[name])
            elif value:
                yield f"{place}{name}"
    elif isinstance(written, list) and isinstance(known, list | tuple):
        for value, other in zip(written, known, strict=False):
            yield from _unread(place, value, other)


def _with_unread(written: bytes, operation: Operation) -> bytes:
    """Return an operation as a newer version wrote it, with what has changed since."""
    before = msgspec.to_builtins(decode_operation(written))
    after = msgspec.json.decode(pack_struct(operation))
    changed = {
        name: after[name]
        for name, value in msgspec.to_builtins(operation).items()
        if value != before[name]
    }
    return msgspec.json.encode(msgspec.json.decode(written) | changed)


class StoreDatabase(Protocol):
    """The connection of a store; runs named queries."""

    @property
    def place(self) -> str:
        """The store, as in `the store /var/lib/amqsidecar.db`."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Write; durable when the block is left without an exception, else undone."""
        ...

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Read several times from one snapshot."""
        ...

    def change(self, name: str, /, **values: Any) -> int:
        """Run a query and return the number of changed rows."""
        ...

    def queue(self, name: str, /, **values: Any) -> None:
        """Run a query, perhaps only at the end of its transaction."""
        ...

    def text(self, text: str, indexed_characters: int | None = None) -> str:
        """Return a text as the database stores it; cut where its index takes only so many."""
        ...


def set_followed(database: StoreDatabase, position: str) -> None:
    """Store up to where events were searched for members, in a transaction."""
    values = {"name": _FOLLOWED, "expected": None, "body": position.encode()}
    database.queue("swap_value", **values)


class LedgerTransaction(StoreTransaction, Protocol):
    """A transaction for a person's action."""

    def put_back(self, number: int, limit: int) -> list[RowView]:
        """Put back discarded rows of an operation, unchanged; return them, at most `limit`."""
        ...


def counts_of(rows: Iterable[Sequence[Any]]) -> list[FailureCount]:
    """Return rows of a query for counts: the fields of the key in their order, and the count."""
    return [FailureCount(key=structs_of(CountKey, [key])[0], count=count) for *key, count in rows]


class CommonPart:
    """A part of a store that works on its connection."""

    _database: StoreDatabase


class CommonLedger(CommonPart):
    """The part of a `Ledger` that does not depend on the store, of the store that inherits it."""

    _lock_operation = "read_operation"

    def snapshot(self) -> AbstractContextManager[None]:
        return self._database.snapshot()

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        return structs_of(
            FailureGroup, self._database.rows("read_groups", since_ms=since_ms, limit=limit)
        )

    def messages_called(self, name: str, limit: int) -> list[str]:
        text = self._database.text(name)
        rows = self._database.rows("rows_called", message_id=text, limit=limit)
        found = dict.fromkeys(one for (one,) in rows)
        with closing(self._all_blocks()) as blocks:
            for redelivery_id in events_called(blocks, storable(name)):
                if len(found) >= limit:
                    break
                found[redelivery_id] = None
        return list(found)

    def _all_blocks(self) -> Generator[tuple[int, bytes]]:
        """Yield the packings and the bodies of the whole history, the newest first."""
        raise NotImplementedError

    # Operations.

    def operation(self, number: int) -> Operation | None:
        found = self._database.rows("read_operation", number=number)
        return decode_operation(found[0][0]) if found else None

    def operations(self, limit: int, before: int | None = None) -> list[Operation]:
        before = LAST_ID if before is None else before
        found = self._database.rows("read_operations", limit=limit, before=before)
        return [decode_operation(body) for (body,) in found]

    def change_operation(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        with self._written():
            return self._write(change(self._locked(number)))

    def _written(self) -> AbstractContextManager[LedgerTransaction]:
        """Begin a transaction for a person's action."""
        raise NotImplementedError

    def _locked(self, number: int) -> Operation:
        """Return an operation that nobody else changes until the transaction ends.

        Raises:
            KeyError: no operation has this number.
        """
        found = self._database.rows(self._lock_operation, number=number)
        if not found:
            raise KeyError(number)
        return decode_operation(found[0][0])

    def _write(self, operation: Operation) -> Operation:
        """Store an operation's present state; return it."""
        body = pack_struct(operation)
        if operation.unread_fields:
            ((written,),) = self._database.rows("read_operation", number=operation.id)
            body = _with_unread(written, operation)
        self._database.queue(
            "write_operation",
            number=operation.id,
            state=operation.state.value,
            is_running=is_working(operation),
            ended_at_ms=operation.ended_at_ms,
            body=body,
        )
        return decode_operation(body)

    def put_back(
        self,
        number: int,
        event_of: Callable[[RowView], AnyEvent],
        limit: int,
        progress: Callable[[Operation], Operation],
    ) -> Operation:
        """See `Ledger`; the step is done whole or not at all."""
        with self._written() as transaction:
            before = self._locked(number)
            if before.state is not OperationState.UNDOING:
                return before
            views = transaction.put_back(number, limit)
            transaction.record([event_of(view) for view in views])
            count = before.restored + len(views)
            return self._write(progress(msgspec.structs.replace(before, restored=count)))

    # Members.

    def update_members(self, updates: Sequence[MemberUpdate], position: str) -> None:
        by_member = defaultdict[str, list[MemberUpdate]](list)
        for update in updates:
            by_member[self._member_key(update.redelivery_id)].append(update)
        changed: list[tuple[int, Member]] = []
        resent, came_back = Counter[int](), Counter[int]()
        with self._written():
            for number, before in self._open_members(by_member) if by_member else ():
                member = before
                for update in by_member[member.redelivery_id]:
                    if member.outcome in (None, OutcomeKind.RESENT):
                        member = updated(member, update) or member
                if member is not before:
                    resent[number] += before.resent_at_ms is None
                    came_back[number] += member.outcome is OutcomeKind.CAME_BACK
                    changed.append((number, member))
            if changed:
                self._write_members(changed)
                self._count_members(resent, came_back)
            set_followed(self._database, position)

    def _member_key(self, redelivery_id: str) -> str:
        """Return a redelivery id as members store it."""
        raise NotImplementedError

    def _open_members(self, keys: Collection[str]) -> Iterable[tuple[int, Member]]:
        """Return members of which something is to come still, with their operations."""
        raise NotImplementedError

    def _write_members(self, changed: Sequence[tuple[int, Member]]) -> None:
        """Write observations of members of operations."""
        raise NotImplementedError

    def _count_members(self, resent: Mapping[int, int], came_back: Mapping[int, int]) -> None:
        """Add to the counts of operations by their numbers; `resent` names all."""
        for number in sorted(resent):
            operation = self._locked(number)
            self._write(
                msgspec.structs.replace(
                    operation,
                    resent=operation.resent + resent[number],
                    came_back=operation.came_back + came_back[number],
                )
            )

    def count_discarded(self, number: int) -> int:
        return int(self._database.rows("count_discarded", number=number)[0][0])

    def due_members(self, number: int, resent_before_ms: int, limit: int) -> list[Member]:
        values = {"number": number, "before_ms": resent_before_ms, "limit": limit}
        return structs_of(Member, self._database.rows("due_members", **values))

    def followed_until(self) -> str | None:
        position = self.read_value(_FOLLOWED)
        return None if position is None else position.decode()

    # Values.

    def read_value(self, name: str) -> bytes | None:
        found = self._database.rows("read_value", name=name)
        return (bytes(found[0][0]) or None) if found else None

    def swap_value(self, name: str, expected: bytes, body: bytes) -> bool:
        values = {"name": name, "expected": expected, "body": body}
        with self._database.transaction():
            return self._database.change("swap_value", **values) == 1

    def value_names(self, prefix: str) -> list[str]:
        return [name for (name,) in self._database.rows("value_names", prefix=prefix)]

    # Observations of destinations.

    def add_observations(self, observations: Sequence[Observation]) -> None:
        latest = dict[tuple[str, int], Observation]()
        for seen in sorted(observations, key=lambda seen: seen.at_ms):
            latest[self._destination(seen.destination), seen.at_ms // _MINUTE_MS] = seen
        with self._database.transaction():
            # Why sorted: two writers at once must not deadlock.
            for (destination, minute), seen in sorted(latest.items(), key=lambda one: one[0]):
                values = {"destination": destination, "minute": minute, "at_ms": seen.at_ms}
                self._database.queue("add_observation", **values, body=pack_struct(seen))

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        found = self._database.rows(
            "read_observations",
            destination=self._destination(destination),
            from_ms=from_ms,
            until_ms=until_ms,
        )
        return [_decode_observation(body) for (body,) in found]

    def recent_observations(self, since_ms: int) -> list[Observation]:
        values = {"since_ms": since_ms, "since_minute": since_ms // _MINUTE_MS}
        found = self._database.rows("recent_observations", **values)
        return [_decode_observation(body) for (body,) in found]

    # Notes on groups.

    def add_note(self, note: GroupNote) -> None:
        """See `Ledger`; where two people write at once, one more may stay until the next write."""
        text = self._database.text
        place = self._place(note.destination, note.cause_group)
        values = msgspec.structs.asdict(note) | place
        values |= {name: text(values[name]) for name in ("author", "text", "owner")}
        values["merged_into"] = text(note.merged_into, INDEXED_CHARACTERS)
        with self._database.transaction():
            self._database.queue("add_note", **values)
            self._database.queue("drop_notes", **place, kept=LATEST_KEPT)

    def notes(self, destination: str, cause_group: str) -> list[GroupNote]:
        place = self._place(destination, cause_group)
        return structs_of(GroupNote, self._database.rows("read_notes", **place))

    def latest_notes(self, limit: int) -> list[GroupNote]:
        return structs_of(GroupNote, self._database.rows("latest_notes", limit=limit))

    def _place(self, destination: str, cause_group: str) -> dict[str, str]:
        return {
            "destination": self._destination(destination),
            "cause_group": self._database.text(cause_group, INDEXED_CHARACTERS),
        }

    def _destination(self, destination: str) -> str:
        return self._database.text(destination, GROUPED_CHARACTERS)

    # Services.

    def add_service_mark(self, mark: ServiceMark) -> None:
        instance = self._database.text(mark.instance)
        values = msgspec.structs.asdict(mark) | {"instance": instance, "kind": mark.kind.value}
        with self._database.transaction():
            self._add_mark(**values, destination="", text="", author="")

    def _add_mark(self, **values: Any) -> None:
        place = {name: values[name] for name in ("instance", "destination")}
        self._database.queue("add_service_mark", **values)
        self._database.queue("drop_service_marks", **place, kept=MARKS_KEPT)

    def service_marks(self, limit: int) -> list[ServiceMark]:
        values = {"is_marker": False, "since_ms": 0, "limit": limit}
        found = self._database.rows("read_service_marks", **values)
        return structs_of(ServiceMark, (row[:4] for row in found))

    def add_marker(self, marker: Marker) -> None:
        text = self._database.text
        values = {
            name: text(value) if isinstance(value, str) else value
            for name, value in msgspec.structs.asdict(marker).items()
        }
        event = Marked(
            at_ms=marker.at_ms,
            destination=marker.destination,
            actor=marker.author,
            reason=marker.text,
        )
        with self._written() as transaction:
            self._add_mark(**values, instance="", kind=_MARKER, rules_digest="")
            transaction.record([event])

    def markers(self, since_ms: int, limit: int) -> list[Marker]:
        values = {"is_marker": True, "since_ms": since_ms, "limit": limit}
        found = self._database.rows("read_service_marks", **values)
        return structs_of(Marker, ((row[0], *row[4:]) for row in found))

    def latest_starts(self) -> list[ServiceMark]:
        starts = dict[str, ServiceMark]()
        for one in self.service_marks(LAST_ID):
            if one.kind is not ServiceMarkKind.RULES:
                starts.setdefault(one.instance, one)
        return [*starts.values()]

    # Signals.

    def add_signal(self, signal: Signal) -> None:
        with self._written() as transaction:
            transaction.add_signal(signal)

    def ended_waits(self, since_ms: int, now_ms: int, limit: int) -> list[EndedWait]:
        values = {"since_ms": since_ms, "now_ms": now_ms, "limit": limit}
        found = self._database.rows("ended_waits", **values)
        return [
            EndedWait(number, name, author, bool(is_later))
            for number, name, author, is_later in found
        ]

    def forget_signals(self, now_ms: int, kept_ms: int) -> int:
        values = {"schedule_ms": now_ms}
        with self._database.transaction():
            self._database.change("date_signals", **values)
            return self._database.change("forget_signals", **values, kept_ms=kept_ms)
