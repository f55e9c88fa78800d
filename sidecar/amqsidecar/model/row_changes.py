"""The changes of rows by operators' actions, for every store."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import msgspec

from amqsidecar.model.cause_note import CauseNote, Never, RedirectTo, RetryAfter, WaitFor
from amqsidecar.model.destination import final_queue, parse_destination
from amqsidecar.model.event import (
    About,
    AnyEvent,
    Cancelled,
    Discarded,
    Exhausted,
    Explained,
    Held,
    Missed,
    Redirected,
    Regrouped,
    Released,
    Restored,
    Retried,
    Scheduled,
    about_row,
)
from amqsidecar.model.schedule import WANTED, Recall, RowState, RowView, TakenRow
from amqsidecar.model.signal import EndedWait


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one row by an operator's action.

    Attributes:
        destination: where it belongs from now on.
        final_queue, recall, recall_operation: see `RowView`.
        is_removed: the row goes, and its message with it; the other fields say nothing then.
        undone_by: of a removed row: the operation whose undoing puts it back; 0 = none can.
        passes_gates: a person says that it goes now; true until it is sent, or acted on again.
        cause: why it died, where that is known better now; None = as before.
        cause_group: the group that it belongs to now; "" = as before.
        gate: the event outside that it waits for, where HELD; None = none.
    """

    state: RowState
    due_at_ms: int
    destination: str
    is_final: bool
    redelivery_count: int
    reason: str | None
    event: AnyEvent
    final_queue: str | None = None
    recall: Recall = Recall.NONE
    recall_operation: int = 0
    is_removed: bool = False
    undone_by: int = 0
    passes_gates: bool = False
    cause: str | None = None
    cause_group: str = ""
    gate: str | None = None


RowChange = Callable[[RowView], Change | None]
"""Returns the change of a row; None = it stays as it is."""


_Said = ParamSpec("_Said")


def _row_change(
    change: Callable[Concatenate[RowView, _Said], Change | None],
) -> Callable[_Said, RowChange]:
    """Make a `RowChange` of a function that takes the row before the action's arguments."""

    @wraps(change)
    def saying(*args: _Said.args, **more: _Said.kwargs) -> RowChange:
        return lambda row: change(row, *args, **more)

    return saying


FIRST_OF_LIFE = 1
"""The redelivery count of the first re-send of a new life."""

TAKEN_BACK = "taken back out of its final dead-letter queue"
"""The reason of messages that came back into the schedule."""


TO_EXPORT = "to be written to the journal's folder and discarded"
"""The reason of messages that a retention exports."""


def _about(row: RowView, now_ms: int) -> About:
    """Return the fields of an event about where a row goes."""
    return about_row(row, now_ms, row.goes_to)


@_row_change
def retry(
    row: RowView, now_ms: int, actor: str, reason: str = "", operation: int = 0
) -> Change | None:
    """Make rows due now, also held and parked rows; an exhausted row begins a new life.

    A message in its final queue is taken back for it.

    Args:
        row: which may change.
        actor: the person or program that acts.
        reason: why, in the person's words.
        operation: its number; 0 = none.
    """
    if row.recall is Recall.SEND:
        return None
    is_ended = row.state is RowState.EXHAUSTED
    about = about_row(row, now_ms, row.destination if is_ended else row.goes_to)
    event = Retried(**about, actor=actor, reason=reason)
    if row.is_in_final_queue:
        return _recalled(row, event, Recall.SEND, recall_operation=operation)
    if is_ended:
        return _sent_to(row.destination, row, event, now_ms)
    due_at_ms = min(row.due_at_ms, now_ms) if row.state is RowState.WAITING else now_ms
    return _changed(row, event, state=RowState.WAITING, due_at_ms=due_at_ms, passes_gates=True)


@_row_change
def cancel(
    row: RowView, now_ms: int, actor: str, suffix: str, *, is_given_up: bool = True
) -> Change | None:
    """Send rows to their final dead-letter queue now; if none is decided: source plus suffix.

    Messages that are there already are not taken back, even if that was requested before.

    Args:
        row: which may change.
        actor: the person or program that acts.
        suffix: of final dead-letter queues.
        is_given_up: False = there the rules or a hold have it again, where they had it before.
    """
    if row.is_final and not (row.is_in_final_queue and row.recall in (*WANTED, *_RULED)):
        return None
    queue = row.final_queue or str(final_queue(parse_destination(row.source), suffix))
    event = Cancelled(**about_row(row, now_ms, queue), actor=actor)
    recall = Recall.LEAVE if is_given_up else recall_there(row)
    if row.is_final:
        return _recalled(row, event, recall)
    return _changed(
        row,
        event,
        state=RowState.WAITING,
        due_at_ms=now_ms,
        is_final=True,
        # Why: a final row has the redeliveries that were, others have the next one.
        redelivery_count=row.redelivery_count - (row.state is not RowState.EXHAUSTED),
        final_queue=queue,
        recall=recall,
    )


@_row_change
def redirect(
    row: RowView, now_ms: int, actor: str, target: str, reason: str = "", operation: int = 0
) -> Change | None:
    """Send rows to another destination now.

    The count stays; a final row becomes an ordinary one, whose re-send is one more redelivery; an
    exhausted one begins a new life. One that lies in its final queue is taken back for it.

    Args:
        row: which may change.
        now_ms: the new due time.
        actor: the person or program that acts.
        target: canonical text.
        reason: why, in the person's words.
        operation: its number; 0 = none.
    """
    event = Redirected(**about_row(row, now_ms, target), actor=actor, reason=reason)
    if row.is_in_final_queue:
        return _recalled(row, event, Recall.SEND, destination=target, recall_operation=operation)
    return _sent_to(target, row, event, now_ms)


@_row_change
def discard(
    row: RowView, now_ms: int, actor: str, operation: int = 0, *, exports: bool = False
) -> Change | None:
    """Drop rows and their messages; a message in its final queue is taken back first.

    Args:
        row: which may change.
        actor: the person or program that acts.
        operation: its number, by which it can be undone; 0 = none.
        exports: the messages are written to the journal's folder before.
    """
    if row.is_in_final_queue:
        if row.recall is Recall.DISCARD:
            return None
        reason = "to be taken back out of its final dead-letter queue and discarded"
        held = Held(**_about(row, now_ms), reason=reason, actor=actor)
        about = {"reason": row.reason, "gate": recall_there(row), "recall_operation": operation}
        return _recalled(row, held, Recall.DISCARD, **about)
    if exports:
        recall = Recall.DROP if row.recall is Recall.RETURN else Recall.EXPORT
        held = Held(**_about(row, now_ms), reason=TO_EXPORT, actor=actor)
        return _changed(row, held, recall=recall, recall_operation=operation, gate=row.gate)
    event = Discarded(**_about(row, now_ms), rule=f"discarded by {actor}", actor=actor)
    return _changed(row, event, is_removed=True, undone_by=operation)


_UNDONE = {Recall.DROP: Recall.RETURN, Recall.EXPORT: Recall.NONE}
_RULED = (Recall.RULES, Recall.HELD)


def recall_there(row: RowView | TakenRow) -> Recall:
    """Return what a message of a final queue has as its recall when no person wants it."""
    return row.recall if row.recall in _RULED else Recall(row.gate or Recall.LEAVE)


@_row_change
def undo_discard(row: RowView, now_ms: int, actor: str, operation: int) -> Change | None:
    """Leave in final queues, or put back there, messages not discarded yet by an operation."""
    if row.recall_operation != operation:
        return None
    event = restored(row, now_ms, actor)
    if row.recall is Recall.DISCARD:
        return _recalled(row, event, recall_there(row), reason=row.reason)
    if (recall := _UNDONE.get(row.recall)) is None:
        return None
    return _changed(row, event, recall=recall, gate=row.gate)


def restored(row: RowView, now_ms: int, actor: str) -> Restored:
    """Return the event that records the undoing of a discard."""
    return Restored(**_about(row, now_ms), actor=actor)


@_row_change
def take_back(row: RowView, now_ms: int, actor: str) -> Change | None:
    """Take exhausted messages out of their final queues, and keep them in the schedule."""
    is_kept = not row.is_in_final_queue and row.recall is not Recall.RETURN
    if row.state is not RowState.EXHAUSTED or is_kept or row.recall is Recall.KEEP:
        return None
    event = Held(**_about(row, now_ms), reason=TAKEN_BACK, actor=actor)
    recall = Recall.KEEP if row.is_final else Recall.NONE
    return _recalled(row, event, recall, gate=recall_there(row))


class OrderKeeper:
    """Gives due times by which rows are sent in the order in which they come here.

    Rows are sent by due time, then number, so that a time is new only where a number is lower than
    the one before it.
    """

    def __init__(self) -> None:
        self._last_ms = 0
        self._last_id = 0

    def due_at_ms(self, row_id: int, now_ms: int) -> int:
        """Return a time that is now, or shortly after it."""
        self._last_ms = max(now_ms, self._last_ms + (row_id < self._last_id))
        self._last_id = row_id
        return self._last_ms


@_row_change
def give_back(row: RowView, now_ms: int, due_at_ms: Mapping[int, int]) -> Change | None:
    """Return messages that were taken back beside others to their final queue.

    Args:
        row: which may change.
        due_at_ms: of rows, by number; the others are left as they are.
    """
    if row.recall is not Recall.RETURN or row.id not in due_at_ms:
        return None
    reason = "goes back to its final dead-letter queue: it was not chosen"
    event = Held(**about_row(row, now_ms, row.final_queue or row.destination), reason=reason)
    return _changed(
        row,
        event,
        state=RowState.WAITING,
        due_at_ms=due_at_ms[row.id],
        is_final=True,
        recall=recall_there(row),
    )


@_row_change
def miss(row: RowView, now_ms: int, queue: str) -> Change | None:
    """Forget exhausted rows whose messages are not in their final dead-letter queue any more."""
    if not row.is_in_final_queue or row.final_queue != queue:
        return None
    return _changed(row, Missed(**about_row(row, now_ms, queue)), is_removed=True)


class Exhausting(msgspec.Struct, frozen=True, kw_only=True):
    """Where exhausted messages go; see `Judge`."""

    final_suffix: str
    keeps_exhausted: bool


def waits_until(name: str, until_ms: int, rule: str) -> str:
    """Return the reason of a message that waits for an event outside."""
    latest = datetime.fromtimestamp(until_ms / 1000, UTC)
    return f"waits for {name}, at the latest until {latest:%Y-%m-%d %H:%M:%S}Z: {rule}"


@_row_change
def hold(row: RowView, now_ms: int, actor: str, wait: WaitFor | None = None) -> Change | None:
    """Keep waiting rows until a person releases them, or an external event is reported.

    Of rows that wait for an event already the wait changes. No event releases a message that is
    kept in its queue.

    Args:
        row: which may change.
        actor: the person or program that acts.
        wait: for the event; None = only a person releases them.
    """
    reason = f"held by {actor}"
    if row.recall is Recall.RULES and row.is_in_final_queue and wait is None:
        event = Held(**_about(row, now_ms), reason=reason, actor=actor)
        return _recalled(row, event, Recall.HELD, reason=reason)
    if row.state is not RowState.WAITING and row.awaits is None:
        return None
    if wait is not None:
        until_ms = now_ms + wait.longest_ms
        return _waiting_for(row, now_ms, wait.event, until_ms, reason, actor)
    event = Held(**about_row(row, now_ms, row.destination), reason=reason, actor=actor)
    return _changed(row, event, state=RowState.HELD, reason=reason)


def _waiting_for(
    row: RowView, now_ms: int, name: str, until_ms: int, rule: str, actor: str | None = None
) -> Change:
    reason = waits_until(name, until_ms, rule)
    event = Held(**about_row(row, now_ms, row.destination), reason=reason, actor=actor)
    return _changed(row, event, state=RowState.HELD, due_at_ms=until_ms, reason=reason, gate=name)


@_row_change
def end_wait(
    row: RowView, ended: Mapping[int, EndedWait], now_ms: int, exhausting: Exhausting | None
) -> Change | None:
    """Release rows whose event was reported, and those whose longest wait has passed.

    Args:
        row: which may change.
        ended: by number of the row.
        exhausting: decides the place of messages whose longest wait has passed; None = they are
            released, too.
    """
    wait = ended[row.id]
    if row.state is not RowState.HELD or row.gate != wait.name:
        return None
    if wait.author is not None:
        # Why: an event of before must not make a message that dies again and again spin.
        due_at_ms = row.received_at_ms + row.delay_ms if wait.began_later else now_ms
        return _released(row, now_ms, due_at_ms, f"event {wait.name} of {wait.author}")
    if row.due_at_ms > now_ms:
        return None
    rule = f"the longest wait for {wait.name} has passed"
    if exhausting is None or row.is_final:
        return _released(row, now_ms, now_ms, rule)
    return _exhausted(row, rule, now_ms, exhausting)


@_row_change
def release(row: RowView, now_ms: int, actor: str) -> Change | None:
    """Release held rows: they are sent at their due time, at once if it has passed."""
    if row.state is not RowState.HELD and not (row.is_in_final_queue and row.recall is Recall.HELD):
        return None
    # Why: the due time of a message that waits for an event is the end of that wait.
    due_at_ms = row.due_at_ms if row.gate is None else row.received_at_ms + row.delay_ms
    return _released(row, now_ms, due_at_ms, actor)


def _released(row: RowView, now_ms: int, due_at_ms: int, actor: str) -> Change:
    due_at_ms = max(due_at_ms, now_ms)
    about = about_row(row, now_ms, row.destination)
    event = Released(**about, due_at_ms=due_at_ms, actor=actor)
    if row.is_in_final_queue:
        return _recalled(row, event, Recall.RULES, due_at_ms=due_at_ms)
    return _changed(row, event, state=RowState.WAITING, due_at_ms=due_at_ms)


def waits_for_redelivery(row: RowView) -> bool:
    """Return whether a row is redelivered by itself when its time comes."""
    return row.state is RowState.WAITING and not row.is_final and row.recall is Recall.NONE


@_row_change
def explain(row: RowView, event: Explained) -> Change | None:
    """Give a row the cause and the group that its consumer's note names."""
    return _regrouped(row, event, cause=event.cause, cause_group=event.cause_group)


@_row_change
def regroup(row: RowView, group: str, now_ms: int) -> Change | None:
    """Move rows to the group that theirs became a part of."""
    about = about_row(row, now_ms, row.destination)
    event = Regrouped(**about, cause_group=group, former_group=row.cause_group)
    return _regrouped(row, event, cause_group=group)


@_row_change
def obey(
    row: RowView, note: CauseNote, died_at_ms: int, now_ms: int, exhausting: Exhausting
) -> Change | None:
    """Apply a note's verdict to waiting rows; does nothing without a verdict.

    Args:
        row: which may change.
        note: with the verdict.
        died_at_ms: from when a delay counts.
        exhausting: decides the place of exhausted messages.
    """
    rule = f"verdict of {note.author}: {note.verdict}"
    if not waits_for_redelivery(row):
        return None
    match note.verdict:
        case RetryAfter(delay_ms):
            due_at_ms = max(now_ms, died_at_ms + delay_ms)
            event = Scheduled(
                **about_row(row, now_ms, row.destination),
                delay_ms=delay_ms,
                due_at_ms=due_at_ms,
                redelivery_count=row.redelivery_count,
                rule=rule,
            )
            return _changed(row, event, state=RowState.WAITING, due_at_ms=due_at_ms)
        case WaitFor(event, longest_ms):
            until_ms = max(row.due_at_ms, died_at_ms + longest_ms)
            return _waiting_for(row, now_ms, event, until_ms, rule)
        case Never():
            return _exhausted(row, rule, now_ms, exhausting)
        case RedirectTo(destination):
            target = str(parse_destination(destination))
            redirected = Redirected(**about_row(row, now_ms, target), actor=rule)
            return _changed(row, redirected, destination=target)
        case None:
            return None


def _exhausted(row: RowView, rule: str, now_ms: int, exhausting: Exhausting) -> Change:
    queue = str(final_queue(parse_destination(row.source), exhausting.final_suffix))
    is_kept = exhausting.keeps_exhausted
    return _changed(
        row,
        Exhausted(**about_row(row, now_ms, queue), rule=rule),
        state=RowState.EXHAUSTED if is_kept else RowState.WAITING,
        due_at_ms=now_ms,
        is_final=not is_kept,
        # Why: a final row has the redeliveries that were, others have the next one.
        redelivery_count=row.redelivery_count - 1,
        final_queue=queue,
    )


def _sent_to(destination: str, row: RowView, event: AnyEvent, now_ms: int) -> Change:
    # Why: a final row has the redeliveries that were, others have the next one.
    count = row.redelivery_count + row.is_final
    return _changed(
        row,
        event,
        state=RowState.WAITING,
        due_at_ms=now_ms,
        destination=destination,
        is_final=False,
        redelivery_count=FIRST_OF_LIFE if row.state is RowState.EXHAUSTED else count,
        final_queue=None,
        passes_gates=True,
    )


def _recalled(row: RowView, event: AnyEvent, recall: Recall, **new: Any) -> Change:
    """Return the step to take with a row's final queue; the row stays exhausted until then."""
    return _changed(row, event, state=RowState.EXHAUSTED, recall=recall, **new)


def _regrouped(row: RowView, event: AnyEvent, **new: Any) -> Change:
    """Return a change of nothing that decides about the row."""
    kept = {"reason": row.reason, "recall": row.recall, "recall_operation": row.recall_operation}
    kept["gate"] = row.gate
    return _changed(row, event, **kept, **new)


def _changed(row: RowView, event: AnyEvent, **new: Any) -> Change:
    """Return a change to these new values; reason and recall end, all else stays."""
    change = Change(
        state=row.state,
        due_at_ms=row.due_at_ms,
        destination=row.destination,
        is_final=row.is_final,
        redelivery_count=row.redelivery_count,
        reason=None,
        event=event,
        final_queue=row.final_queue,
    )
    return msgspec.structs.replace(change, **new)
