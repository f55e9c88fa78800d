"""`amqsidecar retry`, `give-up`, `hold`, and the other commands that act on waiting messages."""

import csv
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import typer

from amqsidecar.cli.opened import opened_broker, opened_schedule, opened_view, service_time_of
from amqsidecar.cli.operate.operations_command import (
    leave_unless_done,
    print_progress,
    usage_errors,
)
from amqsidecar.cli.operate.options import JUDGED, WAITING, Asked, read_chosen, read_pace
from amqsidecar.cli.options import OutputFormat, duration_ms
from amqsidecar.cli.printing import (
    confirmed,
    print_json,
    print_line,
    print_table,
    progress_bar,
    say,
)
from amqsidecar.cli.reading import check_of_broker, find_group, takes
from amqsidecar.cli.times import zoned_time
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.errors import NothingFound
from amqsidecar.model.cause import reason_line, root_reason
from amqsidecar.model.operation import Action, Operation, OperationPace, OperationState, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.act import ActionRefused, ActionResult, act_directly, check_direct
from amqsidecar.operations.failures.find_group import where_else
from amqsidecar.operations.listing import Bounds, select_oldest
from amqsidecar.operations.operate import Wish, begin, cancel, carry_out, checked, undoable
from amqsidecar.operations.preview import (
    OpenGate,
    Preview,
    drift,
    examine,
    gate_notes,
    preview,
    running_notes,
)
from amqsidecar.operations.progress import read_progress
from amqsidecar.operations.select import IDS_MAX, is_tallied, narrowed, resolve
from amqsidecar.operations.words import clock_time, many, one_line
from amqsidecar.schedule import Schedule, ScheduleView

_EXIT_INTERRUPTED = 130
_ENDS_AS = {
    "cancel": ", to their final dead-letter queue (of the queue that they were taken from)",
    "discard": "; for an hour `operation undo` restores them, then only their history is left",
}
"""The end of messages that nothing redelivers afterwards."""

_LOOK_MS = 1_000
_INTERRUPTED_WITHIN_S = 0.1


@takes(Asked, but=("to", *WAITING))
def retry(asked: Asked, config: Config) -> None:
    """Redeliver now, held and parked messages too.

    JSON: {"action", "matched", "changed", "overtaken", "stopped", "operation", "undoable"}; with
    --pace, --probe, --ramp, --stop-share, --careful, --at or --detach as `operation show`; with
    --dry-run the preview
    """
    _act("retry", asked, config)


@takes(Asked, but=WAITING)
def redirect(asked: Asked, config: Config) -> None:
    """Send to another destination now.

    The redelivery count stays the same.

    JSON: as `retry`
    """
    if not asked.to:
        raise typer.BadParameter("give the destination: --to queue://NAME")
    _act("redirect", asked, config)


@takes(Asked, but=("to", "ids_from", *JUDGED, *WAITING))
def give_up(asked: Asked, config: Config) -> None:
    """Send to the final dead-letter queue now.

    Asks first, or wants --yes.

    JSON: as `retry`
    """
    _act("cancel", asked, config)


@takes(Asked, but=("to", *JUDGED, *WAITING))
def discard(asked: Asked, config: Config) -> None:
    """Drop messages; for an hour `operation undo` puts them back. Asks first, or wants --yes.

    JSON: as `retry`
    """
    _act("discard", asked, config)


@takes(Asked, but=("to", "state", "ids_from", *JUDGED, *WAITING))
def take_back(asked: Asked, config: Config) -> None:
    """Take exhausted messages out of their final queue.

    They are kept in the schedule until a person acts.

    JSON: as `retry`
    """
    _act("take-back", asked, config)


@takes(Asked, but=("to", "state", "ids_from", *JUDGED))
def hold(asked: Asked, config: Config) -> None:
    """Keep messages until a person or an event releases them.

    JSON: as `retry`
    """
    _act("hold", asked, config)


@takes(Asked, but=("to", "state", "ids_from", *JUDGED, *WAITING))
def release(asked: Asked, config: Config) -> None:
    """Release held messages.

    They are sent at their due time, at once if it has passed.

    JSON: as `retry`
    """
    _act("release", asked, config)


def _act(name: str, asked: Asked, config: Config) -> None:
    if asked.ids_from is not None:
        asked = replace(asked, ids=[*(asked.ids or ()), *read_ids(asked.ids_from)])
    now_ms = SystemClock().now_ms()
    wish = Wish(
        action=Action(name),
        selection=read_chosen(asked, now_ms),
        actor=cli_actor(),
        reason=asked.reason,
        pace=read_pace(asked, now_ms),
        target=asked.to or None,
        until=asked.until,
        longest_ms=duration_ms(asked.at_most, "--at-most", least_ms=1),
    )
    with usage_errors():
        wish = checked(wish)
    if config.store.url == BROKER_HELD:
        _act_in_broker(wish, asked, config)
        return
    with opened_schedule(config) as store:
        wish = _found(store, asked, wish)
        if asked.dry_run:
            found = preview(
                store,
                wish.action,
                wish.selection,
                suffix=config.redelivery.final_suffix,
                gate=_gate(config),
                target=wish.target,
            )
            _print_preview(found, asked.output)
            if not (found.count or found.left) and found.is_whole:
                raise NothingFound(f"nothing matched{where_else(store, wish.selection.rows)}")
            return
        selection = narrowed(wish.action, wish.selection, store)
        wish = msgspec.structs.replace(wish, selection=selection)
        count, is_whole = _count(store, asked, wish)
        near = where_else(store, wish.selection.rows)
        for note in running_notes(store) if count else ():
            say(note)
        gate = _gate(config) if count and wish.target else None
        for note in gate_notes(gate, [wish.target]) if gate and wish.target else ():
            say(note)
        if count and wish.pace.begin_at_ms is not None:
            say(f"it begins {zoned_time(wish.pace.begin_at_ms, now_ms)}")
    if not _is_wanted(asked, wish.action, count, is_whole=is_whole):
        _print_result(ActionResult(action=wish.action, matched=0, changed=0), asked.output)
        if not count:
            raise NothingFound(f"nothing matched{near}")
        return
    with opened_schedule(config, read_only=False) as store, usage_errors():
        if not asked.ids and not asked.yes:
            _check_drift(store, asked, wish, count)
        wish = msgspec.structs.replace(wish, expected=count if is_whole else None)
        _operate(store, asked, wish, config)


def _found(store: ScheduleView, asked: Asked, wish: Wish) -> Wish:
    """Return a wish about the rows that the ids name, or the whole cause of the group.

    Raises:
        NothingFound: no id names a row, or no group is meant.
    """
    selection = wish.selection
    if asked.ids:
        numbers, unknown = resolve(store, asked.ids)
        for reference in unknown:
            say(f"{reference}: does not wait (any more)")
        if not numbers:
            raise NothingFound("nothing was done")
        selection = Selection(rows=RowFilter(ids=numbers))
    else:
        rows = find_group(store, asked, selection.rows)
        selection = msgspec.structs.replace(selection, rows=rows)
    bounds = Bounds(asked.limit, asked.one_per_message_id)
    oldest = select_oldest(store, wish.action, selection, bounds)
    if oldest.rows.ids == ():
        raise NothingFound(f"nothing matched{where_else(store, selection.rows)}")
    selection = oldest
    return msgspec.structs.replace(wish, selection=selection)


def _gate(config: Config) -> OpenGate | None:
    """Return the opener of the broker's send gate; None = no broker is named."""
    if not config.broker.url:
        return None
    # Why here: it needs all that reads rules and connects, and most commands ask no broker.
    from amqsidecar.plugin_loader import load_plugins  # noqa: PLC0415
    from amqsidecar.policy.classic_rules import ClassicRules  # noqa: PLC0415
    from amqsidecar.wiring.gate import opened_gate  # noqa: PLC0415
    from amqsidecar.wiring.links import LinkMaker, look_at_any  # noqa: PLC0415
    from amqsidecar.wiring.rules import load_rules  # noqa: PLC0415

    rules = load_rules(config, load_plugins())
    classic = rules if isinstance(rules, ClassicRules) else None
    look = partial(look_at_any, LinkMaker(config, SystemClock(), rules=classic))
    return lambda: opened_gate(config, look, rules)


def _count(store: Schedule, asked: Asked, wish: Wish) -> tuple[int | None, bool]:
    """Return how many rows are selected, and whether that is all; None = not needed."""
    if asked.ids or is_tallied(wish.selection):
        return store.count_rows(wish.selection.rows), True
    if asked.yes:
        # Why: examining each of millions takes as long as the action, and no person asked for it.
        return None, True
    found = examine(store, wish.action, wish.selection, suffix="")
    return found.count, found.is_whole


def _is_wanted(asked: Asked, action: Action, count: int | None, *, is_whole: bool) -> bool:
    """Whether there is something to do, and it shall be done."""
    if not count or asked.yes or (asked.ids and action not in _ENDS_AS):
        return count != 0
    what = f"{action.word} {'' if is_whole else 'at least '}{many(count, 'message')}"
    what += _ENDS_AS.get(action, "")
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"this would {what}; add --yes to confirm")
    try:
        is_confirmed = confirmed(f"{what}?")
    except typer.Abort:
        is_confirmed = False
    if not is_confirmed:
        say("nothing was done")
    return is_confirmed


def _check_drift(store: Schedule, asked: Asked, wish: Wish, seen: int | None) -> None:
    """Refuse if the count differs too much from the confirmed count."""
    count, is_whole = _count(store, asked, wish)
    changed = drift(count or 0, seen or 0, is_whole=is_whole)
    if changed is not None:
        raise ActionRefused(changed)


def _operate(store: Schedule, asked: Asked, wish: Wish, config: Config) -> None:
    """Begin an operation, and carry it out unless it is left to the service."""
    now_ms = service_time_of(store)
    runner = "" if asked.detach or asked.at else f"{wish.actor}:{secrets.token_hex(8)}"
    operation = begin(store, wish, now_ms(), runner)
    is_interrupted = False
    if runner:
        if wish.pace != OperationPace():
            say(f"operation {operation.id}")
        try:
            operation, is_interrupted = _carry_out(store, operation, runner, config)
        except BaseException:
            end = f"`amqsidecar operation cancel {operation.id}` ends it"
            say(f"operation {operation.id} has not ended; a running service continues it: {end}")
            raise
    if not runner or wish.pace != OperationPace():
        print_progress(read_progress(store, operation.id, now_ms()), asked.output)
    else:
        outcome = ActionResult(
            action=operation.action,
            matched=operation.matched,
            changed=operation.changed,
            overtaken=operation.overtaken,
            stopped=operation.state is not OperationState.DONE,
            operation=operation.id,
            undoable=undoable(store, operation),
        )
        _print_result(outcome, asked.output)
    if is_interrupted:
        _leave_interrupted()
    leave_unless_done(operation)
    if operation.state is OperationState.DONE and not operation.matched:
        raise NothingFound(f"nothing matched{where_else(store, wish.selection.rows)}")


def _carry_out(
    store: Schedule, operation: Operation, runner: str, config: Config
) -> tuple[Operation, bool]:
    """Do all of an operation; returns it at its end, and whether Ctrl-C ended it."""
    now_ms = service_time_of(store)
    suffix = config.redelivery.final_suffix
    with (
        progress_bar(operation.action, operation.expected) as advance,
        _interruptible() as is_interrupted,
    ):
        while operation.state is OperationState.RUNNING:
            if is_interrupted():
                # Why: another runner may have ended it meanwhile.
                with suppress(ActionRefused):
                    by = operation.actor
                    return cancel(store, operation.id, now_ms(), by, "interrupted"), True
            before = operation
            turn = carry_out(store, operation.id, runner, suffix, now_ms)
            operation = turn.operation
            advance(operation.matched - before.matched)
            # Why a limit: a person, or another runner, may change it meanwhile.
            until_ms = min(turn.next_at_ms or now_ms() + _LOOK_MS, now_ms() + _LOOK_MS)
            while operation.state is OperationState.RUNNING and not is_interrupted():
                rest_s = (until_ms - now_ms()) / 1000
                if rest_s <= 0:
                    break
                time.sleep(min(_INTERRUPTED_WITHIN_S, rest_s))
    return operation, False


def _act_in_broker(wish: Wish, asked: Asked, config: Config) -> None:
    """Act at once on messages that the broker keeps; there is no history."""
    with usage_errors():
        check_direct(wish.action)
    is_simple = wish.pace == OperationPace() and not (
        asked.dry_run or asked.detach or asked.group is not None or asked.limit is not None
    )
    check_of_broker(config.store.url, wish.selection, is_simple=is_simple)
    with opened_view(config) as store:
        wish = _found(store, asked, wish)
        is_counted = asked.ids or not asked.yes or is_tallied(wish.selection)
        count = store.count_rows(wish.selection.rows) if is_counted else None
    outcome = ActionResult(action=wish.action, matched=0, changed=0)
    if _is_wanted(asked, wish.action, count, is_whole=True):
        with (
            opened_broker(config, read_only=False) as schedule,
            progress_bar(wish.action, count) as advance,
            _interruptible() as is_interrupted,
        ):
            outcome = act_directly(
                schedule,
                wish.action,
                wish.selection.rows,
                suffix=config.redelivery.final_suffix,
                reason=wish.reason,
                progress=advance,
                is_stopped=is_interrupted,
            )
    _print_result(outcome, asked.output)
    if outcome.stopped:
        _leave_interrupted()
    if count == 0 or not (outcome.matched or count):
        raise NothingFound("nothing matched")


def _leave_interrupted() -> NoReturn:
    say("interrupted; finished work is kept, the same command does the rest")
    raise typer.Exit(_EXIT_INTERRUPTED)


def _print_result(outcome: ActionResult, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(outcome)
        return
    print_line(f"{outcome.action.word}: {many(outcome.changed, 'message')}")
    if outcome.action.value == "discard" and outcome.changed:
        _print_undoing(outcome)
    if outcome.stopped:
        return
    left = outcome.matched - outcome.changed - outcome.overtaken
    if left:
        say(f"{left} more were not changed: they are being sent, or it is not for their state")
    if outcome.overtaken:
        say(f"{outcome.overtaken} more were skipped: another action changed them after this began")


def _print_undoing(outcome: ActionResult) -> None:
    lost = outcome.changed - outcome.undoable
    if outcome.undoable:
        undo = f"`amqsidecar operation undo {outcome.operation}`"
        say(f"for an hour {undo} puts {outcome.undoable} of them back")
    if lost:
        say(f"{lost} of them can't be put back: the store has no room to keep them")


def _print_preview(found: Preview, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(found)
        return
    least = "" if found.is_whole else "at least "
    print_line(f"{found.action.word}: {least}{many(found.count, 'message')}")
    if found.parts:
        rows = [(part.destination, part.state, str(part.count)) for part in found.parts]
        print_table(("destination", "state", "count"), rows)
    for target in found.targets:
        print_line(f"to                {one_line(target.destination)}: {target.count}")
    for left in found.left:
        print_line(f"left as they are  {left.count}: {left.reason}")
    if found.delayed:
        print_line(f"delayed           {found.delayed}: their destination takes nothing for now")
    if found.gated:
        print_line(f"past gates        {found.gated}: gates delay them; they are sent now")
    if found.oldest_at_ms is not None and found.newest_at_ms is not None:
        print_line(f"found             {clock_time(found.oldest_at_ms)}")
        print_line(f"             to   {clock_time(found.newest_at_ms)}")
    if found.example is not None:
        cause = one_line(root_reason(reason_line(found.example.cause)), 60) or "no reason given"
        print_line(f"such as           {found.example.redelivery_id}: {cause}")
    for note in found.notes:
        say(note)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """End the action after its step on Ctrl-C instead of in it; a second one ends the program."""
    is_interrupted = False

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)


COLUMN: Final = "redelivery_id"
_OPTION: Final = "--ids-from"


def read_ids(path: Path) -> list[str]:
    """Return the values of the column `redelivery_id`, each once, in the order of the file.

    Args:
        path: CSV with a head line, or a Parquet file or folder (needs `amqsidecar[journal]`).

    Raises:
        typer.BadParameter: it can't be read, has no such column or no id, or too many.
    """
    try:
        if path.is_dir() or path.suffix == ".parquet":
            found = _of_parquet(path)
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = csv.DictReader(file)
                if COLUMN not in (rows.fieldnames or ()):
                    raise ValueError(f"its first line names no column {COLUMN}")
                found = dict.fromkeys(row[COLUMN].strip() for row in rows if row[COLUMN])
    except (OSError, ValueError, csv.Error, ImportError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}", param_hint=_OPTION) from error
    if not found or len(found) > IDS_MAX:
        what = f"{path} holds {len(found)} ids; expected 1 to {IDS_MAX}: divide the file"
        raise typer.BadParameter(what, param_hint=_OPTION)
    return list(found)


def _of_parquet(path: Path) -> dict[str, None]:
    from pyarrow import dataset  # noqa: PLC0415 - an extra

    table = dataset.dataset(path, format="parquet")
    if COLUMN not in table.schema.names:
        raise ValueError(f"it has no column {COLUMN}")
    found: dict[str, None] = {}
    for batch in table.to_batches(columns=[COLUMN]):
        found.update(dict.fromkeys(filter(None, batch.column(0).to_pylist())))
        if len(found) > IDS_MAX:
            break
    return found
