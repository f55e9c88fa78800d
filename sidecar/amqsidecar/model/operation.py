"""Operations: a person's action on many messages, as a value that survives a restart.

An operation goes in steps through the rows that match its selection, in the order of their numbers,
up to the newest row at its begin. `next_step` returns the next step; this module uses no store and
no clock.

The one rule of the automatic stop: more than `stop_share` of the messages sent since the last mark
came back. A mark is set at the begin, before each portion (the probe and each step of a ramp), and
after that with each window. A portion counts as if all of it had been sent, and the rest as if at
least `LEAST_EVIDENCE` had, so that one unlucky message among the first few stops nothing.
"""

from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.cause_note import WaitFor
from amqsidecar.model.schedule import RowFilter, WholeNumber
from amqsidecar.model.signal import DEFAULT_WAIT_MS


class Action(StrEnum):
    """The actions of operators on scheduled messages."""

    RETRY = "retry"
    """Redeliver now, held and parked messages too."""
    REDIRECT = "redirect"
    """Send now to another destination."""
    CANCEL = "cancel"
    """Give up: to the final dead-letter queue now."""
    DISCARD = "discard"
    """Give up: gone, with nothing left but its history; can be undone for `UNDO_MS`."""
    TAKE_BACK = "take-back"
    """Take exhausted messages out of their final queue, and keep them in the schedule."""
    HOLD = "hold"
    RELEASE = "release"

    @property
    def word(self) -> str:
        """Its name on the command line; programs and older stores use `cancel`."""
        return "give-up" if self is Action.CANCEL else self.value

    @classmethod
    def _missing_(cls, value: object) -> "Action | None":
        return cls.CANCEL if value == cls.CANCEL.word else None


SENDS: Final = frozenset({Action.RETRY, Action.REDIRECT})
"""Actions whose messages may come back."""


class OperationState(StrEnum):
    """Where an operation stands."""

    RUNNING = "running"
    PAUSED = "paused"
    """By a person."""
    STOPPED = "stopped"
    """By itself: too many came back. A person may resume it."""
    CANCELLED = "cancelled"
    DONE = "done"
    """Every row was looked at; outcomes may still come."""
    UNDOING = "undoing"
    """Its discarded messages are being put back."""
    UNDONE = "undone"
    """Its discarded messages were put back, if they were still kept."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of an operation.

    Attributes:
        rows: what the store filters by.
        properties: names of application properties and the texts that they must have; this decodes
            each message.
        contains: a text that the cause, a property or the body has, in any case; "" = any. This
            decodes each message, too.
    """

    rows: RowFilter = RowFilter()
    properties: tuple[tuple[str, str], ...] = ()
    contains: str = ""

    @property
    def looks_into_messages(self) -> bool:
        """Whether each message must be opened."""
        return bool(self.properties or self.contains)


class OperationPace(msgspec.Struct, frozen=True, kw_only=True):
    """How carefully an operation goes; nothing of it = all at once.

    Attributes:
        probe: number of messages in a first portion; 0 = none. After a portion nothing is sent
            until `window_ms` have passed. The portion passes if at most `stop_share` of it (by
            default a tenth) came back by then; otherwise the operation stops.
        per_second: maximum messages per second; None = unlimited.
        ramp: further portions, each twice the one before, until one would fill a window at
            `per_second`; without `per_second` to the end.
        stop_share: stop by itself when more than this share came back; None = never, but for
            portions.
        window_ms: time after a re-send in which the message may still come back.
        begin_at_ms: no step before this; None = at once.
    """

    probe: WholeNumber = 0
    per_second: float | None = None
    ramp: bool = False
    stop_share: float | None = None
    window_ms: WholeNumber = 60_000
    begin_at_ms: WholeNumber | None = None


CAREFUL: Final = OperationPace(probe=50, per_second=20.0, ramp=True, stop_share=0.1)
"""The default care, for an operator who does not know the destination.

If 30 % of the messages come back, the probe stops 99.9 % of such operations, and the following
portion of 100 the others; if 2 % come back, bad luck stops one operation in some thousands.
"""


class OperationSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of an operation at one moment; see `Operation`."""

    at_ms: int = 0
    changed: int = 0
    resent: int = 0
    came_back: int = 0


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an operation changed, by a person or by itself (actor = ""); or a remark.

    Attributes:
        way: as `Operation`.
        address: as `Operation`.
    """

    at_ms: int
    state: OperationState
    actor: str
    reason: str
    way: str = ""
    address: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with its progress.

    Attributes:
        id: number in the store, 1-based; 0 = not stored yet.
        actor: who asked, such as `cli:anna` or `console:anna`.
        way: how the actor proved the name, as the audit says; "" = an older version began it.
        address: source address of the actor; "" = this machine, or unknown.
        reason: why, in the person's words; may be empty.
        target: REDIRECT: where to, canonical text.
        expected: how many the preview counted; None = there was no preview.
        state_reason: why it is paused, stopped or cancelled.
        until_id: the newest row when it began: later ones are left alone.
        after_id: rows up to this were examined.
        since: the last event that its person could see; a row that others changed later is skipped.
            None = an older version began it, which ignored the others' changes.
        beside: actions and actors of operations that ran when it began: it overrides these.
        matched: rows that the selection matched; rows in flight or final may have been skipped.
        overtaken: matched rows that were skipped because another act has changed them since.
        changed: rows that were changed.
        resent: how many of the changed rows were sent since; of several rows of one message all
            but one count at once.
        came_back: how many of the re-sent rows died again.
        restored: how many of the changed rows were put back when it was undone.
        not_before_ms: no step before this.
        portion: size of the portion that is sent and judged; 0 = no more of them; None = not begun.
        window_until_ms: when the window of the portion ends; None = not all of it was sent yet.
        mark: the start of the period whose returns are judged.
        state_changes: the latest changes of its state, the oldest first.
        runner: unique name of the process that runs it now; "" = none.
        runner_until_ms: if the runner gives no sign until then, any other may go on.
        needs_second: it is paused until a person other than its actor resumes it.
        exports: its messages are written to the journal's folder before they are discarded.
        until: HOLD: the external event that ends it; "" = only a person does.
        longest_ms: HOLD: the longest wait of each message for that event.
        unread_fields: names of fields that a newer version wrote and this one can't read; only a
            newer one carries it out. Stores find them.
    """

    id: int
    action: Action
    selection: Selection
    actor: str
    reason: str
    created_at_ms: int
    until_id: int
    pace: OperationPace = OperationPace()
    target: str | None = None
    expected: int | None = None
    state: OperationState = OperationState.RUNNING
    state_reason: str = ""
    ended_at_ms: int | None = None
    after_id: int = 0
    since: int | None = None
    beside: tuple[tuple[Action, str], ...] = ()
    matched: int = 0
    overtaken: int = 0
    changed: int = 0
    resent: int = 0
    came_back: int = 0
    restored: int = 0
    not_before_ms: int = 0
    portion: int | None = None
    window_until_ms: int | None = None
    mark: OperationSnapshot = OperationSnapshot()
    state_changes: tuple[StateChange, ...] = ()
    way: str = ""
    address: str = ""
    runner: str = ""
    runner_until_ms: int = 0
    needs_second: bool = False
    exports: bool = False
    until: str = ""
    longest_ms: int = DEFAULT_WAIT_MS
    unread_fields: tuple[str, ...] = ()

    @property
    def wait(self) -> WaitFor | None:
        """The wait for an event outside that its messages begin; None = no such wait."""
        return WaitFor(self.until, self.longest_ms) if self.until else None


LEAST_EVIDENCE: Final = 100
"""Least divisor of the share that came back, outside of portions."""

PORTION_SHARE: Final = 0.1
"""More than this of a portion must not come back, where the operator names no share."""

FIRST_OF_RAMP: Final = 10
"""The first portion of a ramp without a probe."""

STEP_MAX: Final = 500
"""Maximum rows changed in one transaction."""

STEPS_PER_SECOND: Final = 4
"""Of an operation with a pace: small steps, so that messages go evenly."""

UNSENT_S: Final = 5
"""Seconds' worth of messages that may wait to be sent; so a destination that was blocked for a
while doesn't get a burst."""

POLL_MS: Final = 500
"""Interval of checks whether messages were sent."""

LEASE_MS: Final = 5_000
"""Time without a heartbeat after which a runner counts as dead."""

CLOCKS_APART_MS: Final = 60_000
"""Maximum difference between clocks of runners; a time further ahead means a clock was set back."""

UNDO_MS: Final = 3_600_000
"""Time for which discarded messages are kept."""

UNDO_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of discarded messages kept; the latest are kept."""

UNDO_ROW_BYTES: Final = 2048
"""Added to the bytes of each message, for its row."""

_OPEN = (OperationState.RUNNING, OperationState.PAUSED, OperationState.STOPPED)
_WORKING = (OperationState.RUNNING, OperationState.UNDOING)
_BEFORE: Final = {
    OperationState.RUNNING: (OperationState.PAUSED, OperationState.STOPPED),
    OperationState.PAUSED: (OperationState.RUNNING,),
    OperationState.STOPPED: (OperationState.RUNNING,),
    OperationState.CANCELLED: _OPEN,
    OperationState.DONE: (OperationState.RUNNING,),
    OperationState.UNDOING: frozenset(OperationState) - {OperationState.UNDOING},
    OperationState.UNDONE: (OperationState.UNDOING,),
}
"""The states that each can follow."""

_STATE_CHANGES_KEPT = 100


class Step(msgspec.Struct, frozen=True):
    """Change up to this many rows now."""

    limit: int


class Pause(msgspec.Struct, frozen=True):
    """Do nothing until then."""

    until_ms: int


class Stop(msgspec.Struct, frozen=True):
    """Too many came back."""

    reason: str


class Finished(msgspec.Struct, frozen=True):
    """Every row was looked at."""


def remarked(operation: Operation, now_ms: int, remark: str) -> Operation:
    """Return an operation with a remark on how its messages are taken, unless a person is next."""
    if operation.state in (OperationState.PAUSED, OperationState.STOPPED):
        return operation
    change = StateChange(at_ms=now_ms, state=operation.state, actor="", reason=remark)
    return msgspec.structs.replace(
        operation,
        state_reason=remark,
        state_changes=(*operation.state_changes, change)[-_STATE_CHANGES_KEPT:],
    )


def next_step(operation: Operation, now_ms: int) -> Step | Pause | Stop | Finished:
    """Return the next step of a running operation, once it is `settled`."""
    reason = _too_many(operation)
    if reason is not None:
        return Stop(reason)
    if operation.after_id >= operation.until_id:
        return Finished()
    until_ms = _waits_until(operation, now_ms)
    if until_ms > now_ms:
        return Pause(until_ms)
    limit = STEP_MAX
    if operation.portion:
        limit = min(limit, operation.portion - _changed_since_mark(operation))
        if limit <= 0:
            return Pause(operation.window_until_ms or now_ms + POLL_MS)
    per_second = operation.pace.per_second
    if per_second is not None:
        if operation.action in SENDS and _unsent(operation) > max(1, per_second) * UNSENT_S:
            return Pause(now_ms + POLL_MS)
        limit = min(limit, max(1, int(per_second / STEPS_PER_SECOND)))
    return Step(limit)


def settled(operation: Operation, now_ms: int) -> Operation:
    """Return a running operation with its portion begun, its window begun, or the next mark set.

    To be kept before `next_step` is asked, where it differs.
    """
    pace, mark = operation.pace, operation.mark
    if operation.portion is None:
        first = pace.probe or (FIRST_OF_RAMP if pace.ramp else 0)
        return _marked(operation, first, now_ms)
    if _too_many(operation) is not None:
        return operation
    if operation.portion:
        return _portion_settled(operation, now_ms)
    is_old = now_ms >= mark.at_ms + pace.window_ms
    is_enough = operation.resent - mark.resent >= LEAST_EVIDENCE
    return _marked(operation, 0, now_ms) if is_old and is_enough else operation


def _portion_settled(operation: Operation, now_ms: int) -> Operation:
    is_changed = _changed_since_mark(operation) >= (operation.portion or 0)
    until_ms, longest_ms = operation.window_until_ms, now_ms + operation.pace.window_ms
    has_begun = until_ms is not None and until_ms <= longest_ms
    if not has_begun and is_changed and _unsent(operation) <= 0:
        return msgspec.structs.replace(operation, window_until_ms=longest_ms)
    if until_ms is None or now_ms < until_ms:
        return operation
    return _marked(operation, _next_portion(operation), now_ms)


def stepped(before: Operation, after: Operation, now_ms: int) -> Operation:
    """Return an operation after a step: when the next one may be, and whether it was the last."""
    changed = after.changed - before.changed
    per_second = after.pace.per_second
    if per_second is not None and changed:
        after = msgspec.structs.replace(
            after, not_before_ms=now_ms + int(1000 * changed / per_second)
        )
    is_last = after.after_id >= after.until_id
    return changed_to(after, OperationState.DONE, now_ms) if is_last else after


def changed_to(
    operation: Operation, state: OperationState, now_ms: int, actor: str = "", reason: str = ""
) -> Operation:
    """Return an operation in a state that can follow its own, else as it is.

    Who resumes it begins a new probe. Its runner has it while it is open.

    Args:
        state: as it shall be.
        actor: the person or program that wants it; "" = itself.
        reason: in their words.
    """
    if operation.state not in _BEFORE[state] or (operation.unread_fields and state in _WORKING):
        return operation
    if state is OperationState.UNDOING and operation.action is not Action.DISCARD:
        return operation
    if state is OperationState.RUNNING:
        if operation.needs_second and _person(actor) == _person(operation.actor):
            return operation
        operation = msgspec.structs.replace(operation, portion=None, needs_second=False)
    change = StateChange(at_ms=now_ms, state=state, actor=actor, reason=reason)
    by = f"by {actor}" if actor else ""
    if state not in _OPEN:
        ended_at_ms = None if state is OperationState.UNDOING else now_ms
        operation = msgspec.structs.replace(
            operation, ended_at_ms=ended_at_ms, runner="", runner_until_ms=0
        )
    return msgspec.structs.replace(
        operation,
        state=state,
        state_reason=f"{reason} ({by})" if reason and by else reason or by,
        state_changes=(*operation.state_changes, change)[-_STATE_CHANGES_KEPT:],
    )


def _person(actor: str) -> str:
    """Return an actor's name, wherever they acted."""
    return actor.partition(":")[2]


def undoer(operation: Operation) -> str:
    """Return the name of the person who undid a discard; "" = it was not undone."""
    for change in reversed(operation.state_changes):
        if change.state is OperationState.UNDOING:
            return change.actor
    return ""


def is_open(operation: Operation) -> bool:
    """Return whether it may still change rows, perhaps once a person resumed it."""
    return operation.state in _OPEN


def awaits_second(operation: Operation) -> bool:
    """Return whether it has not begun, and a second person has to resume it."""
    return operation.needs_second and is_open(operation)


def left_to_newer(operation: Operation) -> str:
    """Return why only a newer version carries it out; "" = this one can."""
    names = ", ".join(operation.unread_fields)
    return f"only sidecars of a newer version carry it out, which can read {names}" if names else ""


def lacks_sends(operation: Operation) -> bool:
    """Return whether it is over, and messages that it wanted re-sent are not."""
    is_over = operation.state in (OperationState.DONE, OperationState.CANCELLED)
    return operation.action in SENDS and is_over and operation.resent < operation.changed


def is_working(operation: Operation) -> bool:
    """Return whether a runner carries it out, or should."""
    return operation.state in _WORKING


def claimed(operation: Operation, runner: str, now_ms: int) -> Operation:
    """Return the operation with the lease of a runner begun or renewed, unless another has it."""
    has_lease = 0 < operation.runner_until_ms - now_ms <= LEASE_MS + CLOCKS_APART_MS
    is_free = operation.runner in ("", runner) or not has_lease
    if not is_working(operation) or not is_free or operation.unread_fields:
        return operation
    return msgspec.structs.replace(operation, runner=runner, runner_until_ms=now_ms + LEASE_MS)


def left(operation: Operation, runner: str) -> Operation:
    """Return the operation with the lease of a runner given up, so that any other may go on."""
    if operation.runner != runner:
        return operation
    return msgspec.structs.replace(operation, runner="", runner_until_ms=0)


def _marked(operation: Operation, portion: int, now_ms: int) -> Operation:
    mark = OperationSnapshot(
        at_ms=now_ms,
        changed=operation.changed,
        resent=operation.resent,
        came_back=operation.came_back,
    )
    return msgspec.structs.replace(operation, portion=portion, window_until_ms=None, mark=mark)


def _next_portion(operation: Operation) -> int:
    pace, portion = operation.pace, 2 * (operation.portion or 0)
    if not pace.ramp:
        return 0
    is_small = pace.per_second is None or portion <= pace.per_second * pace.window_ms / 1000
    return portion if is_small else 0


def _waits_until(operation: Operation, now_ms: int) -> int:
    """Return before when there is no step, a time that has passed if there is one now."""
    begin_ms, next_ms = operation.pace.begin_at_ms or 0, operation.not_before_ms
    is_near = next_ms - now_ms <= (
        1000 * max(1 / STEPS_PER_SECOND, 1 / (operation.pace.per_second or STEPS_PER_SECOND))
    )
    return max(begin_ms, next_ms if is_near else 0)


def _changed_since_mark(operation: Operation) -> int:
    return operation.changed - operation.mark.changed


def _unsent(operation: Operation) -> int:
    """Return how many rows changed since the mark were not sent yet."""
    return _changed_since_mark(operation) - (operation.resent - operation.mark.resent)


def _too_many(operation: Operation) -> str | None:
    """Return why the operation is to stop; None = not too many came back."""
    share = operation.pace.stop_share
    if share is None:
        if not operation.portion:
            return None
        share = PORTION_SHARE
    sent = operation.resent - operation.mark.resent
    back = operation.came_back - operation.mark.came_back
    # Why rounded: 0.29 * 100 is a little less than 29.
    if back <= round(share * max(sent, operation.portion or LEAST_EVIDENCE), 9):
        return None
    return f"{back} of {sent} re-sent messages came back; no more than {share:.0%} may"


class OutcomeKind(StrEnum):
    """The outcome of a re-send. There is no SUCCEEDED: being moved is not success."""

    RESENT = "re-sent"
    """It was sent, its window is still open."""
    CONSUMED = "consumed"
    """It left its queue by an acknowledgement, and did not come back within its window."""
    CAME_BACK = "came back"
    UNKNOWN = "unknown"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A message that an operation changed.

    Attributes:
        destination: where it was to go.
        changed_at_ms: when the operation changed it.
        resent_at_ms: None = not sent yet.
        outcome: None = not sent yet, or an action that sends nothing.
        evidence: the proof of the outcome, a sentence.
    """

    redelivery_id: str
    destination: str
    changed_at_ms: int
    resent_at_ms: int | None = None
    outcome: OutcomeKind | None = None
    evidence: str = ""
