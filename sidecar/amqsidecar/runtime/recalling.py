"""Chooses the final dead-letter queues to read, and puts back messages taken along with them.

A queue is read while rows of it are to be taken back. A link that can select messages takes only
theirs. Any other takes the whole queue, so that messages put back keep their order; so does a link
that can't see the end of a queue in which it misses some. Messages to put back wait in the schedule
until nothing is read and no operation runs: an operation's next step may need them.

All of this state is in the schedule, so a restarted process continues there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from amqsidecar.broker import IntakeQueue, IntakeSession
from amqsidecar.clock import Clock
from amqsidecar.engine.recall import FinalQueues, wanted_by_queue
from amqsidecar.errors import BrokerRefused, ManagementRefused
from amqsidecar.model import operation as course
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.operation import OperationState, changed_to, undoer
from amqsidecar.model.provenance import BY_NUMBER, again_id
from amqsidecar.model.schedule import WANTED, Recall, RowFilter, RowView
from amqsidecar.runtime.final_queues import forget_gone
from amqsidecar.schedule import Schedule

CHOSEN_AT_ONCE: Final = 500
"""A selector names no more messages."""

CHANGED_AT_ONCE: Final = 1_000
"""Rows that one look gives back, discards or gives up as missing."""

QUIET_S: Final = 1.0
"""A queue without deliveries for this long is read to its end, if the broker counts none in it."""

STALLED_S: Final = 10.0
"""A queue without deliveries for this long holds undeliverable messages, if it holds any."""

_READ_WHOLE: Final = (
    "chosen messages were not found among those that the broker hands over at once; so all of {} "
    "are taken, and the others put back in their order"
)
_NOT_HANDED_OVER: Final = (
    "chosen messages of {} are not handed over: another consumer has them in hand, or goes first"
)
_UNTOLD: Final = (
    "chosen messages of {} are not handed over: another consumer has them in hand, or they are "
    "gone; only the broker can tell ({}), and give-up ends the wait"
)
_NOT_HANDED_OVER_MS: Final = 60_000
_REST_SHARE: Final = 10
_RESTING_S: Final = 1.0
_BUSY_S: Final = 0.2

log = structlog.get_logger("amqsidecar.service")


class Recalling:
    """Reads final queues over one link; one object belongs to one thread.

    Args:
        finals: learns which queues are read.
        clock: measures how long no message came.
        final_suffix: ends the names of the queues that `keeps_exhausted` empties.
        keeps_exhausted: everything is taken back except messages that a person gave up.
        admit: admits messages that the rules redeliver from their queue; None = they don't.
    """

    def __init__(
        self,
        store: Schedule,
        link: IntakeSession,
        finals: FinalQueues,
        clock: Clock,
        *,
        final_suffix: str,
        keeps_exhausted: bool,
        admit: Callable[[Sequence[RowView]], None] | None = None,
    ) -> None:
        self._place, self._admit = finals.place, admit
        self._place.admitted.clear()
        self._place.gives_back = False
        self._ask_at_s = 0.0
        self._store = store
        self._link = link
        self._finals = finals
        self._clock = clock
        self._suffix = final_suffix
        self._keeps = keeps_exhausted
        self._reading: dict[str, IntakeQueue] = {}
        self._look_at_s = 0.0
        self._arrivals = 0
        self._quiet_since_s = clock.monotonic_s()
        self._suspects: frozenset[int] = frozenset()
        self._waits_for: IntakeQueue | None = None
        self._order = row_changes.OrderKeeper()

    def queues(self) -> list[IntakeQueue]:
        """Return the final queues to read now."""
        for name in self._kept():
            if name not in self._reading:
                self._reading[name] = IntakeQueue(parse_destination(name), is_final=True)
                self._quiet_since_s = self._clock.monotonic_s()
        self._finals.replace([one.destination for one in self._reading.values()])
        self._place.whole = frozenset(
            name for name, one in self._reading.items() if not one.redelivery_ids
        )
        return list(self._reading.values())

    def tend(self) -> bool:
        """Do the next step, if it is time; return whether `queues` has changed.

        Promise: each change of rows is durable by itself; if the process dies, the next look of
        another goes on.

        Raises:
            LinkLost: the connection is gone.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s:
            return False
        if self._finals.arrivals != self._arrivals:
            self._arrivals, self._quiet_since_s = self._finals.arrivals, now_s
        rows = [
            row
            for recall in WANTED
            for row in self._store.recalled(recall, CHOSEN_AT_ONCE)
            if row.is_in_final_queue
        ]
        if self._admit is not None:
            queues = {row.goes_to for row in rows}
            rows += [row for row in self._due_in_place() if row.goes_to not in queues]
        is_changed = self._read(wanted_by_queue(rows))
        is_busy = bool(self._reading) or self._settle_taken()
        self._look_at_s = self._clock.monotonic_s() + (_BUSY_S if is_busy else _RESTING_S)
        return is_changed

    def _due_in_place(self) -> list[RowView]:
        """Return admitted rows of messages that the rules redeliver from where they lie."""
        place, store, now_ms = self._place, self._store, self._clock.now_ms()
        for row_id, reason in [*place.refused.items()]:
            # Why repeatedly: rows in flight in the last cycle stay unchanged.
            if store.change(RowFilter(ids=(row_id,)), row_changes.hold(now_ms, f"rule: {reason}")):
                del place.refused[row_id]
        admitted = self._admitted()
        began_s = self._clock.monotonic_s()
        if self._admit is None or began_s < self._ask_at_s or 2 * len(admitted) > CHOSEN_AT_ONCE:
            return admitted
        kept_ms = now_ms - _NOT_HANDED_OVER_MS
        later = place.later_ms = {one: ms for one, ms in place.later_ms.items() if ms > kept_ms}
        due = [
            row
            for row in store.recalled_by_due(Recall.RULES, 2 * CHOSEN_AT_ONCE + len(later))
            if row.due_at_ms <= now_ms
            and later.get(row.id, 0) <= now_ms
            and row.id not in place.admitted
            and row.id not in place.refused
        ]
        if due:
            due.sort(key=lambda row: later.get(row.id, row.due_at_ms))
            self._admit(due[: CHOSEN_AT_ONCE - len(admitted)])
            admitted = self._admitted()
        # Why a share: of many rows the database sorts all.
        took_s = self._clock.monotonic_s() - began_s
        self._ask_at_s = began_s + max(_BUSY_S, took_s * _REST_SHARE)
        return admitted

    def _admitted(self) -> list[RowView]:
        """Return the rows of the admitted messages; forget rows that are gone."""
        numbers = self._place.admitted
        found = self._store.list_rows(RowFilter(ids=tuple(numbers)), CHOSEN_AT_ONCE)
        rows = [row for row in found if row.recall is Recall.RULES] if numbers else []
        numbers.intersection_update(row.id for row in rows)
        return [row for row in rows if not row.in_flight]

    def _kept(self) -> list[str]:
        """Return the final queues of this sidecar whose messages belong into the schedule."""
        if not self._keeps:
            return []
        left = self._store.count_recalled(Recall.LEAVE)
        lying: dict[str, int] = {}
        for one in self._store.exhausted_tallies():
            if one.is_in_queue and one.queue.endswith(self._suffix):
                lying[one.queue] = lying.get(one.queue, 0) + one.count
        return [name for name, count in lying.items() if count > left.get(name, 0)]

    def _read(self, wanted: Mapping[str, list[RowView]]) -> bool:
        """Begin, go on or end to read queues; return whether anything began or ended."""
        before = dict(self._reading)
        for name, rows in wanted.items():
            reading = self._reading.get(name)
            known = () if reading is None else reading.redelivery_ids
            if reading is None or (known and not {row.redelivery_id for row in rows} & set(known)):
                self._reading[name] = self._queue_to_read(parse_destination(name), rows)
                self._quiet_since_s = self._clock.monotonic_s()
        is_quiet = self._clock.monotonic_s() - self._quiet_since_s >= QUIET_S
        for name, reading in before.items():
            rows = wanted.get(name, [])
            if rows and is_quiet:
                self._miss(reading, rows)
            elif not rows and (reading.redelivery_ids or (is_quiet and self._is_over(reading))):
                del self._reading[name]
        return self._reading != before

    def _is_over(self, reading: IntakeQueue) -> bool:
        """Return whether a quiet queue hands over nothing more; else the rest would go ahead."""
        if self._clock.monotonic_s() - self._quiet_since_s >= STALLED_S:
            return True
        try:
            return self._link.count(reading, 1) == 0
        except BrokerRefused:
            return False

    def _queue_to_read(self, queue: Destination, rows: Sequence[RowView]) -> IntakeQueue:
        if self._link.features.choosing is None:
            return IntakeQueue(queue, is_final=True)
        count = 0
        if rows[0].recall is Recall.RULES:
            # Why: a message that dies again meanwhile waits for its own time.
            count = rows[0].redelivery_count + 1
            rows = [row for row in rows if row.redelivery_count == count - 1]
        ids = tuple(dict.fromkeys(row.redelivery_id for row in rows))[:CHOSEN_AT_ONCE]
        return IntakeQueue(queue, is_final=True, redelivery_ids=ids, except_count=count)

    def _miss(self, reading: IntakeQueue, rows: Sequence[RowView]) -> None:
        """Forget rows whose messages are not in their queue, after two looks at it."""
        queue, is_second = reading.destination, self._waits_for == reading
        holds, remark = self._holds(reading, is_second=is_second)
        self._waits_for = None if holds is False else reading
        self._quiet_since_s = self._clock.monotonic_s()
        if holds is not False and rows[0].recall is Recall.RULES:
            until_ms = self._clock.now_ms() + _NOT_HANDED_OVER_MS
            self._place.postpone([row.id for row in rows], until_ms)
            log.info("not_handed_over", meaning=remark, count=len(rows))
            return
        if holds is None:
            self._reading[str(queue)] = IntakeQueue(queue, is_final=True)
            log.warning("final_queue_read_whole", queue=str(queue), meaning=remark)
        if holds is None or (holds and is_second):
            self._remark(rows, remark)
        if holds is not False or self._looks_for_others(reading, rows):
            self._suspects = frozenset()
            return
        ids = frozenset(
            row.id
            for row in rows
            if not reading.redelivery_ids or row.redelivery_id in reading.redelivery_ids
        )
        self._suspects, before = ids, self._suspects
        if gone := tuple(sorted(ids & before)):
            for row in rows:
                self._finals.died_again.pop((row.goes_to, row.message_id or ""), None)
            forget_gone(self._store, str(queue), gone, self._clock.now_ms())

    def _remark(self, rows: Sequence[RowView], remark: str) -> None:
        """Say in the operations that want these rows how their messages are taken."""
        for number in {row.recall_operation for row in rows}:
            operation = self._store.operation(number)
            if operation is not None and operation.state_reason != remark:
                now_ms = self._clock.now_ms()
                remarked = partial(course.remarked, now_ms=now_ms, remark=remark)
                self._store.change_operation(number, remarked)

    def _looks_for_others(self, reading: IntakeQueue, rows: Sequence[RowView]) -> bool:
        """Look for messages that died once more, by message id; return whether that began."""
        queue, died = str(reading.destination), self._finals.died_again
        chosen = [row for row in rows if row.redelivery_id in reading.redelivery_ids]
        new = {
            place: row.redelivery_id
            for row in chosen[: CHOSEN_AT_ONCE // 2]
            if row.redelivery_id.startswith(BY_NUMBER)
            and row.message_id
            and (place := (queue, row.message_id)) not in died
        }
        if not new:
            return False
        died.update(new)
        address = reading.destination.address
        ids = *new.values(), *(again_id(address, message_id) for _, message_id in new)
        self._reading[queue] = IntakeQueue(reading.destination, is_final=True, redelivery_ids=ids)
        return True

    def _holds(self, reading: IntakeQueue, *, is_second: bool) -> tuple[bool | None, str]:
        """Return whether a queue may hold messages to take back, and a remark on that.

        None = only reading the whole queue finds them; True = assumed where nothing shows it.
        """
        queue, choosing = reading.destination, self._link.features.choosing
        remark = _NOT_HANDED_OVER.format(queue)
        try:
            if choosing is None or not reading.redelivery_ids:
                return self._link.count(reading, 1) > 0, remark
            holds = choosing.holds_chosen(queue, reading.redelivery_ids)
        except BrokerRefused as refused:
            # Why at the second look: what another consumer gives back comes without that.
            may_manage = not isinstance(refused, ManagementRefused)
            holds = None if is_second and not may_manage and self._shows(reading) else True
            remark = _UNTOLD.format(queue, refused)
        return holds, _READ_WHOLE.format(queue) if holds is None else remark

    def _shows(self, reading: IntakeQueue) -> bool:
        """Return whether a browse shows any of the chosen messages."""
        try:
            return any(True for _ in self._link.browse(reading, 1))
        except BrokerRefused:
            return False

    def _settle_taken(self) -> bool:
        """Discard the messages taken back for it, return the others; True = it discarded any."""
        dropped = self._store.recalled(Recall.DROP, CHANGED_AT_ONCE)
        for number in {row.recall_operation for row in dropped}:
            operation = self._store.operation(number)
            # Why: they are discarded where they are written, or by a newer version.
            if operation is None or not (operation.exports or operation.unread_fields):
                ids = tuple(row.id for row in dropped if row.recall_operation == number)
                end_discard(self._store, number, ids, self._clock.now_ms())
        if not self._store.recalled(Recall.RETURN, 1):
            return bool(dropped)
        if not self._is_operating():
            now_ms = self._clock.now_ms()
            rows = self._store.recalled_by_due(Recall.RETURN, CHANGED_AT_ONCE)
            due_at_ms = {row.id: self._order.due_at_ms(row.id, now_ms) for row in rows}
            act = row_changes.give_back(now_ms, due_at_ms)
            self._store.change(RowFilter(ids=tuple(due_at_ms)), act)
        return True

    def _is_operating(self) -> bool:
        now_ms = self._clock.now_ms()
        return any(
            one.state is OperationState.RUNNING and (one.pace.begin_at_ms or 0) <= now_ms
            for one in self._store.open_operations()
        )


def end_discard(store: Schedule, number: int, ids: tuple[int, ...], now_ms: int) -> None:
    """Discard rows that an operation took back for it; put back rows of an undone operation."""
    operation = store.operation(number)
    actor = "amqsidecar" if operation is None else operation.actor
    act = row_changes.discard(now_ms, actor, number)
    if operation is not None and (by := undoer(operation)):
        act = row_changes.undo_discard(now_ms, by, number)

    def end(row: RowView) -> row_changes.Change | None:
        is_wanted = row.recall in (Recall.DROP, Recall.EXPORT) and row.recall_operation == number
        return act(row) if is_wanted else None

    store.change(RowFilter(ids=ids), end)
    operation = store.operation(number)
    is_undone = operation is not None and operation.state is OperationState.UNDONE
    # Why: they were discarded while their operation was being undone.
    if is_undone and store.count_discarded(number):
        store.change_operation(
            number,
            lambda now: changed_to(now, OperationState.UNDOING, now_ms, undoer(now)),
        )
