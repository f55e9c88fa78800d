"""Operations: begun, paused, resumed, cancelled, and carried out in steps by any sidecar."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import asdict

from amqsidecar.broker import BrokerKind
from amqsidecar.engine.judging.send_rules import fault_of_name
from amqsidecar.model import operation as course
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.marker import ServiceMarkKind
from amqsidecar.model.operation import (
    LEASE_MS,
    SENDS,
    STEP_MAX,
    Action,
    Finished,
    Operation,
    OperationPace,
    OperationState,
    Pause,
    Selection,
    Step,
    Stop,
)
from amqsidecar.model.schedule import Recall, RowFilter, RowView
from amqsidecar.model.signal import DEFAULT_WAIT_MS, WAIT_MAX_MS, signal_name
from amqsidecar.operations.act import ActionRefused, act_of
from amqsidecar.operations.follow import follow
from amqsidecar.operations.select import (
    NEEDED_STATES,
    conditions,
    narrowed,
    selector,
)
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

LONGEST_REASON: Final = 500
LONGEST_WINDOW_MS: Final = 30 * 24 * 3_600_000
LATEST_BEGIN_MS: Final = LONGEST_WINDOW_MS
SLOWEST_PER_SECOND: Final = 1 / 3_600


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The request for an operation; see `Operation`.

    Attributes:
        since: `event_mark` of the preview that the person saw; None = there was none.
        needs_second, exports: see `Operation`.
    """

    action: Action
    selection: Selection
    actor: str
    reason: str = ""
    pace: OperationPace = OperationPace()
    target: str | None = None
    expected: int | None = None
    since: int | None = None
    needs_second: bool = False
    exports: bool = False
    until: str = ""
    longest_ms: int = DEFAULT_WAIT_MS


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one turn of an operation.

    Attributes:
        operation: its current state.
        changed: rows that this turn changed.
        next_at_ms: when there is more to do; None = nothing for this runner, now.
    """

    operation: Operation
    changed: int
    next_at_ms: int | None


def checked(wish: Wish) -> Wish:
    """Return a wish whose target has the canonical form.

    Raises:
        ActionRefused: the request is invalid; the message gives the reason.
    """
    pace, action = wish.pace, wish.action
    if (wish.target is None) == (action is Action.REDIRECT):
        raise ActionRefused("a target is for redirect, and redirect needs one")
    if wish.target is not None:
        wish = msgspec.structs.replace(wish, target=str(checked_target(wish.target)))
    wish = _with_checked_wait(wish)
    is_judged = pace.probe or pace.ramp or pace.stop_share is not None
    if is_judged and action not in SENDS:
        raise ActionRefused(
            f"messages of {action} do not come back: probe, ramp and stop share are for re-sends"
        )
    if pace.probe < 0 or not 1 <= pace.window_ms <= LONGEST_WINDOW_MS:
        raise ActionRefused(
            "a probe has at least one message, and a window some time, at most 30 days"
        )
    if pace.per_second is not None and not SLOWEST_PER_SECOND <= pace.per_second < 1e9:
        raise ActionRefused("a pace is a number of messages a second, from one message an hour")
    if pace.stop_share is not None and not 0 <= pace.stop_share <= 1:
        raise ActionRefused("a stop share is from 0 to 1")
    check_reason(wish.reason)
    state = wish.selection.rows.state
    needed = NEEDED_STATES.get(action, state)
    if state not in (None, needed):
        raise ActionRefused(f"{action} is for {needed} messages, not for {state} ones")
    return wish


def check_reason(reason: str) -> None:
    """Check the reason of a person; raises ActionRefused."""
    if len(reason) > LONGEST_REASON:
        raise ActionRefused(f"a reason has at most {LONGEST_REASON} characters")


def _with_checked_wait(wish: Wish) -> Wish:
    if not 0 <= wish.longest_ms <= WAIT_MAX_MS:
        raise ActionRefused("messages wait for an event for 30 days at most")
    if not wish.until:
        if wish.longest_ms != DEFAULT_WAIT_MS:
            raise ActionRefused("a longest wait is for an event: name the event, too (until)")
        return wish
    if wish.action is not Action.HOLD:
        raise ActionRefused(f"{wish.action} does not wait for an event: hold does")
    try:
        return msgspec.structs.replace(wish, until=signal_name(wish.until))
    except ValueError as error:
        raise ActionRefused(str(error)) from error


def checked_target(text: str) -> Destination:
    """Return the target of a redirect.

    Raises:
        ActionRefused: sends there are forbidden, even if the broker permits them.
    """
    try:
        target = parse_destination(text)
    except ValueError as error:
        raise ActionRefused(str(error)) from error
    if not target.name.isprintable():
        raise ActionRefused("the target contains invisible characters")
    if target.is_temporary:
        raise ActionRefused(f"{target} is temporary: it ends with the connection that created it")
    for kind in BrokerKind:
        if (fault := fault_of_name(target, kind)) is not None:
            raise ActionRefused(fault)
    return target


def _check_no_circle(schedule: Schedule, target: Destination) -> None:
    """Refuse a queue that was ever read, by its queue or by its address."""
    for source in map(parse_destination, schedule.holds()):
        names = {source.name, *source.name.split("::")}
        if target.is_queue and target.name in names:
            raise ActionRefused(
                f"amqsidecar reads {source}, or has read it: messages sent there would circulate, "
                "or be taken for notes of consumers; use give-up to give messages up"
            )


def _check_no_place(schedule: Schedule, rows: RowFilter) -> None:
    """Refuse to hold messages where they lie until an event."""
    lying = {row.id for row in schedule.recalled(Recall.RULES, _RECALLED_MAX)}
    ids = lying if rows.ids is None else lying.intersection(rows.ids)
    for row in schedule.list_rows(msgspec.structs.replace(rows, ids=tuple(ids)), 1):
        raise ActionRefused(
            f"message {row.id} waits in its dead-letter queue, where no event releases a message: "
            "hold without an event (until), or choose only messages of the state waiting"
        )


def check_takes(schedule: Schedule) -> None:
    """Check that the program on a schedule takes and sends messages.

    Raises:
        ActionRefused: it only observes; the sentence names the rights that it would need.
    """
    starts = schedule.latest_starts()
    if starts and all(one.kind is ServiceMarkKind.OBSERVE for one in starts):
        raise ActionRefused(
            "this sidecar only observes (`run --observe`), and its user needs no right but to "
            "browse. To act, run it with redelivery.mode: manual, as a user that may consume from "
            "the dead-letter queues (Classic: read), send to the origins (Classic: write), and "
            "create and use amqsidecar.token.*"
        )


def begin(schedule: Schedule, wish: Wish, now_ms: int, runner: str = "") -> Operation:
    """Store a new operation; the runner carries it out, else the next holder of its lease.

    Promise: durable when this returns; if the process dies inside, it may have begun or not.

    Raises:
        ActionRefused: it makes no sense.
    """
    check_takes(schedule)
    wish = checked(wish)
    selection = narrowed(wish.action, wish.selection, schedule)
    wish = msgspec.structs.replace(wish, selection=selection)
    if wish.until and not selection.looks_into_messages:
        _check_no_place(schedule, selection.rows)
    if (wish.pace.begin_at_ms or 0) > now_ms + LATEST_BEGIN_MS:
        raise ActionRefused("an operation begins within 30 days")
    if wish.target is not None:
        _check_no_circle(schedule, parse_destination(wish.target))
    position = schedule.tail()
    followed = schedule.open_operations()
    running = [one for one in followed if _runs(one)]
    if not followed:
        # Why before storing it: a failure here must leave no operation that would begin by itself.
        schedule.update_members([], position)
    who = audit.actor()
    waits = "a second person has to resume it" if wish.needs_second else ""
    since = schedule.event_mark() if wish.since is None else wish.since
    operation = schedule.add_operation(
        Operation(
            id=0,
            created_at_ms=now_ms,
            until_id=0,
            beside=tuple({(one.action, one.actor): None for one in running}),
            way=who.way,
            address=who.address,
            runner=runner,
            runner_until_ms=now_ms + LEASE_MS if runner else 0,
            state=OperationState.PAUSED if waits else OperationState.RUNNING,
            state_reason=waits,
            **{**asdict(wish), "since": since},
        )
    )
    audit.write(
        wish.action.word,
        reason=wish.reason,
        operation=operation.id,
        selection=conditions(wish.selection),
        count=wish.expected,
        after={"state": operation.state, "target": wish.target, "pace": wish.pace}
        | ({"until": wish.until} if wish.until else {}),
    )
    return operation


def undo(schedule: Schedule, number: int, now_ms: int, actor: str, reason: str = "") -> Operation:
    """Begin to put back the discarded messages of an operation; return its new state.

    The first process that calls `carry_out` does the work. An operation that has not ended ends.

    Raises:
        ActionRefused: there is none of this number, or nothing of it can be put back.
    """
    operation = schedule.operation(number)
    if operation is not None and operation.action is not Action.DISCARD:
        raise ActionRefused(
            f"operation {number} is {operation.action.word}: only discard can be undone"
        )
    if operation is not None and not (course.is_open(operation) or undoable(schedule, operation)):
        raise ActionRefused(
            f"no message that operation {number} discarded is kept: discarded messages are kept "
            "for an hour, the latest 256 MiB, and not while the store is short of space"
        )
    return _undo(schedule, number, now_ms, actor, reason)


def undoable(schedule: Schedule, operation: Operation) -> int:
    """Return how many messages that an operation has discarded or will discard can be put back."""
    if operation.action is not Action.DISCARD:
        return 0
    # Why in this order: a message goes from one count to the next, also between the reads.
    wanted = sum(schedule.count_recalled(Recall.DISCARD).values())
    rows = _rows_to_discard(schedule)
    # Why of all operations: nothing shows which rows are in flight.
    in_flight = max(0, wanted - sum(row.recall is Recall.DISCARD for row in rows))
    coming = sum(row.recall_operation == operation.id for row in rows)
    kept = schedule.count_discarded(operation.id)
    return min(in_flight + coming + kept, operation.changed - operation.restored)


_RECALLED_MAX: Final = 100_000


def _rows_to_discard(schedule: Schedule) -> list[RowView]:
    """Return the rows, none in flight, whose messages operations will discard."""
    return [
        row
        for recall in (Recall.DISCARD, Recall.DROP, Recall.EXPORT)
        for row in schedule.recalled(recall, _RECALLED_MAX)
    ]


def _put_back(schedule: Schedule, operation: Operation, now_ms: Callable[[], int]) -> Turn:
    """Do a step of undoing a discard."""
    number, at_ms, by = operation.id, now_ms(), course.undoer(operation)
    wanted = (row.id for row in _rows_to_discard(schedule) if row.recall_operation == number)
    if ids := tuple(islice(wanted, STEP_MAX)):
        act = row_changes.undo_discard(at_ms, by, number)
        count = schedule.change(RowFilter(ids=ids), act)
        after = schedule.change_operation(
            number, lambda now: msgspec.structs.replace(now, restored=now.restored + count)
        )
    else:
        after = schedule.put_back(
            number,
            lambda row: row_changes.restored(row, at_ms, by),
            STEP_MAX,
            lambda now: course.claimed(now, operation.runner, at_ms),
        )
    count = after.restored - operation.restored
    if count == 0 and not ids:
        after = schedule.change_operation(
            number, lambda now: course.changed_to(now, OperationState.UNDONE, at_ms)
        )
        _audit_change(operation, after, "")
    is_over = not course.is_working(after)
    next_at_ms = None if is_over else now_ms() + max(30, now_ms() - at_ms)
    return Turn(operation=after, changed=count, next_at_ms=next_at_ms)


def _change(
    wanted: OperationState,
    schedule: Schedule,
    number: int,
    now_ms: int,
    actor: str,
    reason: str = "",
) -> Operation:
    """Change an operation as a person wants; return its new state.

    Raises:
        ActionRefused: there is none of this number, or its state does not allow it.
    """
    check_reason(reason)
    before: list[Operation] = []

    def signed(operation: Operation) -> Operation:
        before[:] = [operation]
        changed = course.changed_to(operation, wanted, now_ms, actor, reason)
        who = audit.actor()
        if changed is operation:
            return operation
        *earlier, last = changed.state_changes
        last = msgspec.structs.replace(last, way=who.way, address=who.address)
        return msgspec.structs.replace(changed, state_changes=(*earlier, last))

    try:
        operation = schedule.change_operation(number, signed)
    except KeyError as error:
        raise ActionRefused(f"there is no operation {number}") from error
    if operation.state is not wanted:
        second = operation.state_reason if operation.needs_second else ""
        why = "; ".join(filter(None, (course.left_to_newer(operation), second)))
        raise ActionRefused(f"operation {number} is {operation.state}{': ' * bool(why)}{why}")
    _audit_change(before[0], operation, reason)
    return operation


ChangeOperation = Callable[[Schedule, int, int, str, str], Operation]
"""Called with the schedule, the operation's number, the time, the actor and the reason."""

pause = partial(_change, OperationState.PAUSED)
"""Pause a running operation; see `_change`."""

resume = partial(_change, OperationState.RUNNING)
"""Resume a paused or stopped operation with a new probe; see `_change`."""

cancel = partial(_change, OperationState.CANCELLED)
"""End an operation; finished changes stay, the other rows stay untouched. See `_change`."""

_undo = partial(_change, OperationState.UNDOING)


def _audit_change(before: Operation, after: Operation, reason: str) -> None:
    """Audit a change of state, if there is one."""
    if after.state is before.state:
        return
    counts = {name: getattr(after, name) for name in ("matched", "changed", "restored")}
    audit.write(
        f"operation-{after.state}",
        by=None if after.state_changes[-1].actor else audit.SIDECAR,
        reason=reason,
        operation=after.id,
        selection=conditions(after.selection),
        count=after.changed,
        asked_by=after.actor,
        before={"state": before.state},
        after={"state": after.state, **counts},
    )


class _LostLease(Exception):
    """Another runner goes on, or a newer version has to: the step is rolled back."""


def carry_out(
    schedule: Schedule, number: int, runner: str, suffix: str, now_ms: Callable[[], int]
) -> Turn:
    """Do at most one step of an operation, if this runner gets its lease.

    Promise: if the process dies inside, the step is done with its progress, or not done; the next
    holder of the lease continues.

    Raises:
        ActionRefused: no operation has this number.
    """
    operation = schedule.operation(number)
    if operation is None:
        raise ActionRefused(f"there is no operation {number}")
    if operation.action in SENDS and operation.pace != OperationPace():
        # Why first: nothing is judged, and nothing goes on, before all is read that happened.
        if not follow(schedule):
            return Turn(operation=operation, changed=0, next_at_ms=now_ms())
        operation = schedule.operation(number) or operation
    ready = _ready(operation, runner, now_ms())
    if ready != operation:
        operation = schedule.change_operation(number, lambda now: _ready(now, runner, now_ms()))
    if not course.is_working(operation) or operation.runner != runner:
        return Turn(operation=operation, changed=0, next_at_ms=None)
    if operation.state is OperationState.UNDOING:
        return _put_back(schedule, operation, now_ms)
    match course.next_step(operation, now_ms()):
        case Step(limit):
            return _step(schedule, operation, limit, suffix, now_ms)
        case Pause(until_ms):
            return Turn(operation=operation, changed=0, next_at_ms=until_ms)
        case Stop(reason):
            end, why = OperationState.STOPPED, reason
        case Finished():
            end, why = OperationState.DONE, ""
    at_ms = now_ms()
    ended = schedule.change_operation(
        number, lambda now: course.changed_to(now, end, at_ms, reason=why)
    )
    _audit_change(operation, ended, ended.state_reason)
    return Turn(operation=ended, changed=0, next_at_ms=None)


def leave(schedule: Schedule, number: int, runner: str) -> None:
    """Give up a runner's lease, so that another runner continues at once."""
    operation = schedule.operation(number)
    if operation is not None and operation.runner == runner:
        schedule.change_operation(number, lambda now: course.left(now, runner))


def _runs(operation: Operation) -> bool:
    return operation.state is OperationState.RUNNING


def _ready(operation: Operation, runner: str, now_ms: int) -> Operation:
    """Return an operation with the lease ours for a while, if it can be, and its course settled."""
    if operation.runner != runner or operation.runner_until_ms - now_ms < LEASE_MS / 2:
        operation = course.claimed(operation, runner, now_ms)
    if operation.runner != runner or not _runs(operation):
        return operation
    return course.settled(operation, now_ms)


def _step(
    schedule: Schedule, operation: Operation, limit: int, suffix: str, now_ms: Callable[[], int]
) -> Turn:
    action, began_ms = operation.action, now_ms()

    def progress(after: Operation) -> Operation:
        if after.runner != operation.runner or after.unread_fields:
            raise _LostLease
        after = course.claimed(after, operation.runner, began_ms)
        return course.stepped(operation, after, began_ms)

    act = act_of(operation, began_ms, suffix)
    select = selector(operation.selection)
    try:
        after = schedule.step_operation(
            operation.id, act, select, limit, progress, is_followed=action in SENDS
        )
    except _LostLease:
        return Turn(operation=operation, changed=0, next_at_ms=None)
    _audit_change(operation, after, "")
    ended_ms = now_ms()
    # Why: a store's lock need not be fair; others get it for as long as we had it, and for longer
    # than they wait before they ask again.
    rest_ms = max(30, min(1_000, ended_ms - began_ms))
    return Turn(
        operation=after,
        changed=after.changed - operation.changed,
        next_at_ms=max(ended_ms + rest_ms, after.not_before_ms) if _runs(after) else None,
    )
