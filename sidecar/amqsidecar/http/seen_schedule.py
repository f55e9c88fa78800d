"""A schedule reduced to the destinations that a person may view.

Every question of pages, API, exports and streams gets this schedule (`StoreQueries`). It reads each
viewable destination separately, so that neither an answer nor its cost depends on other
destinations. Methods that it lacks are refused.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from secrets import randbits
from typing import Any, Final, NoReturn, cast

import msgspec

from amqsidecar.engine.send_gate import GateAnswer
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.rights import Right, Rights, right_of
from amqsidecar.ledger import Original, RowKey, RowOrder, RowPage, key_of
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    Exhausted,
    Missed,
    Received,
    Restored,
)
from amqsidecar.model.failure import (
    BUCKET_MS,
    CountKind,
    FailureCount,
    FailureGroup,
    GroupNote,
    GroupTally,
)
from amqsidecar.model.marker import Marker
from amqsidecar.model.operation import Member, Operation, OperationState, OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import (
    ExhaustedTally,
    GateTally,
    InstanceView,
    Recall,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    Tally,
)
from amqsidecar.model.signal import Signal
from amqsidecar.operations.active_rules import ActiveRules, Policies
from amqsidecar.operations.explain import Explainer
from amqsidecar.operations.preview import AskGate, OpenGate
from amqsidecar.schedule import Schedule
from amqsidecar.store import ENOUGH_ROOM, ReportProgress, Room, unwatched
from amqsidecar.webhooks.outbox import (
    PREFIX,
    Notice,
    WebhookOutbox,
    read_outbox,
)

DUE_MAX: Final = 5_000
"""Messages that are counted by due time; the others count as due later."""

_AT_FINAL_QUEUES: Final = (Exhausted, DeadLettered, Cancelled, Missed, Discarded, Restored)
"""Events whose destination may be a final dead-letter queue, which several destinations share."""

_OPERATIONS_AT_ONCE: Final = 200
_ALL: Final = 2**31


def seen_schedule(store: Schedule, rights: Rights, right: Right = Right.VIEW) -> Schedule:
    """Return a schedule of only the destinations on which a right is given."""
    if not rights.is_limited:
        return store
    return cast("Schedule", _SeenSchedule(store, rights, right))


def seen_state(state: StoreState, rights: Rights) -> StoreState:
    """Return the state of a schedule without the parts that other destinations change."""
    if not rights.is_limited:
        return state
    return StoreState(
        instance=state.instance,
        uid=state.uid,
        cycle=0,
        unfinished=None,
        token_created=state.token_created,
    )


def seen_policies(policies: Policies, rights: Rights) -> Policies:
    """Return policies that decide only on viewable destinations, and hide the rules' text."""
    acting = policies.acting
    return msgspec.structs.replace(policies, acting=lambda: _SeenRules(acting(), rights))


@contextmanager
def seen_gate(gate: OpenGate, rights: Rights) -> Iterator[AskGate]:
    """Open a connection that asks the broker about destinations to which a person may send."""
    with gate() as ask:

        def ask_own(destination: Destination) -> GateAnswer:
            check_right(rights, Right.ACT, str(destination))
            return ask(destination)

        yield ask_own


def check_right(rights: Rights, right: Right, destination: str | None) -> None:
    """Check that a right is given on a destination.

    Raises:
        HttpRefused: it is not.
    """
    if not destination or not rights.allows(right, destination):
        raise HttpRefused(403, f"your role has no right to {right} at {destination}")


class _SeenRules(ActiveRules):
    """Rules whose text names destinations of all; only answers about some are given."""

    def __init__(self, acting: ActiveRules, rights: Rights) -> None:
        self.__dict__.update(acting.__dict__)
        self.rules = None
        self._rights = rights

    def explainer_at(self, destination: Destination) -> Explainer | None:
        is_seen = self._rights.allows(Right.VIEW, str(destination))
        return super().explainer_at(destination) if is_seen else None


class _SeenSchedule:
    """See the module; has the methods of `Schedule` that limited rights allow."""

    def __init__(self, store: Schedule, rights: Rights, right: Right) -> None:
        self._store = store
        self._rights = rights
        self._right = right
        self.keeps_exhausted_rows = store.keeps_exhausted_rows
        self.group_key = store.group_key
        # The same for everybody.
        self.service_marks = store.service_marks
        self.latest_starts = store.latest_starts
        self.tail = store.tail
        self.snapshot = store.snapshot

    def __getattr__(self, name: str) -> NoReturn:
        raise HttpRefused(403, f"this needs a role that may view everything ({name})")

    def _sees(self, destination: str | None) -> bool:
        return bool(destination) and self._rights.allows(self._right, destination)

    def _names(self) -> list[str]:
        return sorted({one.destination for one in self.tallies()})

    # What the sidecar does besides: the same for everybody, or nothing.

    def next_due_ms(self) -> int | None:
        page = self.page_rows(RowFilter(state=RowState.WAITING), RowOrder.DUE, 1)
        return page.rows[0].due_at_ms if page.rows else None

    def holds(self) -> dict[str, int]:
        return {one: count for one, count in self._store.holds().items() if self._sees(one)}

    def size_bytes(self) -> int:
        return 0

    def room(self) -> Room:
        return ENOUGH_ROOM

    def instances(self) -> Sequence[InstanceView]:
        return [
            InstanceView(
                instance=one.instance,
                uid=one.uid,
                is_held=one.is_held,
                seen_seconds_ago=0.0,
                cycle=0,
                unfinished_cycle=None,
            )
            for one in self._store.instances()
        ]

    def add_marker(self, marker: Marker) -> None:
        if not self._rights.allows_all_of(Right.ACT, marker.destination):
            place = marker.destination or "all destinations"
            raise HttpRefused(403, f"your role has no right to {Right.ACT} at {place}")
        self._store.add_marker(marker)

    def add_signal(self, signal: Signal) -> None:
        self._check_event(signal.name)
        self._store.add_signal(signal)

    def _check_event(self, name: str) -> None:
        if not self._rights.allows(Right.ACT, f"queue://{name}"):
            raise HttpRefused(403, "your role acts on events whose names its patterns match")

    def markers(self, since_ms: int, limit: int) -> list[Marker]:
        found = self._store.markers(since_ms, _ALL)
        return [one for one in found if self._rights.sees_some_of(one.destination)][:limit]

    def event_mark(self) -> int:
        salted = (randbits(_SALT) << _MARK) + self._store.event_mark() % (1 << _MARK)
        return _veiled(self.group_key, salted, _ROUNDS)

    # Counts.

    def tallies(self) -> list[Tally]:
        return [one for one in self._store.tallies() if self._sees(one.destination)]

    def group_tallies(self) -> list[GroupTally]:
        return [one for one in self._store.group_tallies() if self._sees(one.destination)]

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        return [one for one in self._store.exhausted_tallies() if self._sees(one.destination)]

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        return [one for one in self._store.gate_tallies(now_ms) if self._sees(one.destination)]

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        found = self._store.failure_groups(since_ms, _ALL)
        return [one for one in found if self._sees(one.destination)][:limit]

    def failure_counts(
        self, from_ms: int, until_ms: int, kinds: Sequence[CountKind], step_ms: int = BUCKET_MS
    ) -> list[FailureCount]:
        found = self._store.failure_counts(from_ms, until_ms, kinds, step_ms)
        return [one for one in found if self._sees(one.key.destination)]

    def due_counts(self, bounds_ms: Sequence[int]) -> list[int]:
        page = self.page_rows(RowFilter(state=RowState.WAITING), RowOrder.DUE, DUE_MAX)
        due = [row.due_at_ms for row in page.rows]
        return [sum(begin <= one < end for one in due) for begin, end in pairwise(bounds_ms)]

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        if not self._sees(destination):
            return []
        return self._store.observations(destination, from_ms, until_ms)

    def recent_observations(self, since_ms: int) -> list[Observation]:
        found = self._store.recent_observations(since_ms)
        return [one for one in found if self._sees(one.destination)]

    # Rows.

    def _parts(self, wanted: RowFilter) -> list[RowFilter]:
        """Return filters that together select this filter's rows of viewable destinations."""
        if wanted.destination is not None:
            return [wanted] if self._sees(wanted.destination) else []
        if self._rights.patterns(self._right) is None:
            return [wanted]
        names = self._names()
        if wanted.ids is not None or wanted.redelivery_id is not None:
            return [msgspec.structs.replace(wanted, destinations=tuple(names))]
        return [msgspec.structs.replace(wanted, destination=name) for name in names]

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        found = [
            row
            for part in self._parts(row_filter)
            for row in self._store.list_rows(part, limit, after_id)
        ]
        return sorted(found, key=lambda row: row.id)[:limit]

    def count_rows(self, row_filter: RowFilter) -> int:
        return sum(self._store.count_rows(part) for part in self._parts(row_filter))

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """See `Ledger`; a page is full unless it is the last."""
        rows = [
            row
            for part in self._parts(row_filter)
            for row in self._page_of(part, order, limit + 1, after)
        ]
        rows.sort(key=lambda row: key_of(order, row), reverse=order is RowOrder.NEWEST)
        end = key_of(order, rows[limit - 1]) if len(rows) > limit else None
        return RowPage(rows=rows[:limit], next_after=end)

    def _page_of(
        self, part: RowFilter, order: RowOrder, limit: int, after: RowKey | None
    ) -> list[RowView]:
        rows: list[RowView] = []
        while len(rows) < limit:
            page = self._store.page_rows(part, order, limit - len(rows), after)
            rows += page.rows
            after = page.next_after
            if after is None:
                break
        return rows

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        found = self._store.recalled(recall, _ALL)
        return [row for row in found if self._sees(row.destination)][:limit]

    def count_recalled(self, recall: Recall) -> Mapping[str, int]:
        """See `Store`; without rows in flight, whose destinations nothing shows."""
        return Counter(row.goes_to for row in self.recalled(recall, _ALL))

    def message(self, row_id: int) -> bytes | None:
        return self._store.message(row_id) if self._row(row_id) else None

    def _row(self, row_id: int) -> RowView | None:
        return next(iter(self.list_rows(RowFilter(ids=(row_id,)), 1)), None)

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        """See `Store`; omits events from while the message had another destination."""
        return [event for event, is_seen in self._life(redelivery_id, self._right) if is_seen]

    def _life(self, redelivery_id: str, right: Right) -> Iterator[tuple[AnyEvent, bool]]:
        rows = self._store.list_rows(RowFilter(redelivery_id=redelivery_id), _ALL)
        place = rows[0].destination if rows else None
        for event in self._store.history(redelivery_id):
            if isinstance(event, Received):
                place = event.origin or place
            elif not isinstance(event, _AT_FINAL_QUEUES):
                place = getattr(event, "destination", place)
            yield event, bool(place) and self._rights.allows(right, place)

    def originals(self, redelivery_id: str) -> list[Original]:
        """See `Ledger`; none of a message that was ever where its content may not be seen."""
        lives = [*self._life(redelivery_id, Right.BODIES)]
        is_seen = bool(lives) and all(is_seen for _, is_seen in lives)
        return self._store.originals(redelivery_id) if is_seen else []

    def change(
        self, row_filter: RowFilter, change: RowChange, progress: ReportProgress = unwatched
    ) -> int:
        names = [one for one in self._names() if self._rights.allows(Right.ACT, one)]
        wanted = msgspec.structs.replace(row_filter, destinations=tuple(names))
        return self._store.change(wanted, change, progress)

    def replace_message(
        self, row_id: int, expected: bytes, message: bytes, event: AnyEvent, actor: str
    ) -> bool:
        row = self._row(row_id)
        if row is None:
            return False
        check_right(self._rights, Right.EDIT, row.destination)
        return self._store.replace_message(row_id, expected, message, event, actor)

    def read_value(self, name: str) -> bytes | None:
        """See `Ledger`; of a webhook's outbox, only notices about viewable destinations."""
        body = self._store.read_value(name) if name.startswith(PREFIX) else None
        if not body:
            return None

        def seen(notices: list[Notice]) -> list[Notice]:
            # Why without: ids count the notices of all, and a problem may name the receiver.
            return [
                msgspec.structs.replace(one, id="", problem=one.problem and "see the sidecar's log")
                for one in notices
                if self._sees(one.matter.destination)
            ]

        outbox = read_outbox(body, 0)
        log, pending = seen(outbox.log), seen(outbox.pending)
        return msgspec.json.encode(WebhookOutbox(stream="", begun_ms=0, log=log, pending=pending))

    # Notes.

    def add_note(self, note: GroupNote) -> None:
        check_right(self._rights, Right.ACT, note.destination)
        self._store.add_note(note)

    def notes(self, destination: str, cause_group: str) -> list[GroupNote]:
        return self._store.notes(destination, cause_group) if self._sees(destination) else []

    def latest_notes(self, limit: int) -> list[GroupNote]:
        found = self._store.latest_notes(_ALL)
        return [one for one in found if self._sees(one.destination)][:limit]

    # Operations that name their destinations.

    def _places(self, operation: Operation) -> list[str]:
        rows = operation.selection.rows
        names = [rows.destination] if rows.destination is not None else rows.destinations or ()
        return [*names, *([] if operation.target is None else [operation.target])]

    def _shown(self, operation: Operation | None) -> Operation | None:
        """Return an operation without numbers that others move; None = it is not seen."""
        if operation is None:
            return None
        places = self._places(operation)
        if not places or not all(map(self._sees, places)):
            return None
        is_over = operation.after_id >= operation.until_id
        return msgspec.structs.replace(
            operation, until_id=1, after_id=int(is_over), since=None, beside=()
        )

    def operation(self, number: int) -> Operation | None:
        return self._shown(self._store.operation(number))

    def operations(self, limit: int, before: int | None = None) -> list[Operation]:
        found: list[Operation] = []
        while len(found) < limit:
            some = self._store.operations(_OPERATIONS_AT_ONCE, before)
            found += [one for one in map(self._shown, some) if one is not None]
            if len(some) < _OPERATIONS_AT_ONCE:
                break
            before = some[-1].id
        return found[:limit]

    def open_operations(self) -> list[Operation]:
        found = map(self._shown, self._store.open_operations())
        return [one for one in found if one is not None]

    def members(
        self, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
    ) -> list[Member]:
        is_seen = self.operation(number) is not None
        return self._store.members(number, outcome, limit, after) if is_seen else []

    def member_counts(self, number: int) -> dict[OutcomeKind | None, int]:
        return self._store.member_counts(number) if self.operation(number) is not None else {}

    def count_discarded(self, number: int) -> int:
        return self._store.count_discarded(number) if self.operation(number) is not None else 0

    def update_members(self, updates: Sequence[Any], position: str) -> None:
        """Begin to follow, where nothing is followed; see `operate.begin`."""
        if not updates and not self._store.open_operations():
            self._store.update_members(updates, position)

    def add_operation(self, operation: Operation) -> Operation:
        """See `Ledger`; the operation is about destinations on which its right is given now."""
        right, rows = right_of(operation.action), operation.selection.rows
        if operation.target is not None:
            check_right(self._rights, Right.ACT, operation.target)
        if operation.until:
            self._check_event(operation.until)
        if rows.destination is not None:
            check_right(self._rights, right, rows.destination)
        else:
            names = [one for one in self._names() if self._rights.allows(right, one)]
            if not names:
                raise HttpRefused(409, f"no message waits on which you have the right to {right}")
            rows = msgspec.structs.replace(rows, destinations=tuple(names))
        beside = [
            (one.action, one.actor)
            for one in self._store.open_operations()
            if one.state is OperationState.RUNNING
        ]
        added = self._store.add_operation(
            msgspec.structs.replace(
                operation,
                selection=msgspec.structs.replace(operation.selection, rows=rows),
                beside=tuple(dict.fromkeys(beside)),
                since=None if operation.since is None else self._unveiled(operation.since),
            )
        )
        return self._shown(added) or added

    def _unveiled(self, mark: int) -> int:
        return _veiled(self.group_key, mark, _ROUNDS[::-1]) % (1 << _MARK)

    def change_operation(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        operation = self.operation(number)
        if operation is None:
            raise KeyError(number)
        for place in self._places(operation):
            check_right(self._rights, right_of(operation.action), place)
        return self._shown(self._store.change_operation(number, change)) or operation


_ROUNDS: Final = (0, 1, 2, 3)
_MARK: Final = 36
_SALT: Final = 16
"""Bits of an event mark, and of the random salt beside it: marks must not reveal others' work."""


def _veiled(key: bytes, number: int, rounds: Sequence[int]) -> int:
    """Return a number below 2**52 for another one, by a secret; rounds back return that one."""
    half = (_MARK + _SALT) // 2
    left, right = divmod(number % (1 << 2 * half), 1 << half)
    for one in rounds:
        mixed = hmac.digest(key, b"%d %d" % (one, right), "sha256")
        left, right = right, left ^ (int.from_bytes(mixed[:4]) % (1 << half))
    return (right << half) + left
