"""`amqsidecar operations` and `amqsidecar operation`: how they go, and changing them."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import (
    INT_MAX,
    Output,
    OutputFormat,
    Reason,
    duration_ms,
)
from amqsidecar.cli.printing import print_json, print_line, print_rows, say
from amqsidecar.cli.reading import configured, takes
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import NothingFound
from amqsidecar.model.operation import (
    SENDS,
    Operation,
    OperationState,
    OutcomeKind,
    is_working,
    lacks_sends,
)
from amqsidecar.operations import operate
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.progress import (
    UNSETTLED,
    MemberPage,
    OperationResult,
    Progress,
    list_members,
    list_operations,
    read_progress,
)
from amqsidecar.operations.words import clock_time, one_line
from amqsidecar.schedule import Schedule

_EXIT_NOT_DONE = 69
_STEP_PAUSE_S = 0.03
_LOOK_PAUSE_S = 0.5

Number = Annotated[
    int, typer.Argument(metavar="N", min=1, max=INT_MAX, help="Number of the operation.")
]


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The values of the options of a change."""

    number: Number
    reason: Reason = ""
    output: Output = OutputFormat.TEXT


class MembersChoice(StrEnum):
    """A filter of an operation's messages; values of `OutcomeKind`."""

    ALL = "all"
    RESENT = "resent"
    CONSUMED = "consumed"
    CAME_BACK = "came_back"
    UNKNOWN = "unknown"


@configured
def operations(
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number.")] = 20,
    before: Annotated[
        int | None,
        typer.Option(
            min=1, max=INT_MAX, help="Only operations with a lower number, for the next page."
        ),
    ] = None,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List operations, the newest first.

    \b
    JSON: {"operations": [see `operation show`], "next_before": null | number}
    """  # noqa: D301 - the backspace makes the library keep the lines
    with opened_schedule(config) as store:
        page = list_operations(store, limit, before)
    if output is OutputFormat.JSON:
        print_json(page)
        return
    if not page.operations:
        say("no operation was begun" if before is None else "no more")
        return
    headers = ("number", "action", "state", "changed", "sent", "came back", "began", "by", "why")
    print_rows(headers, [_cells(one) for one in page.operations], below=3)
    if page.next_before is not None:
        say(f"more results: --before {page.next_before}")


def _cells(operation: Operation) -> tuple[str, ...]:
    sends = operation.action in SENDS
    return (
        str(operation.id),
        operation.action.word,
        operation.state + ", not all sent" * lacks_sends(operation),
        str(operation.changed),
        str(operation.resent) if sends else "-",
        str(operation.came_back) if sends else "-",
        clock_time(operation.created_at_ms),
        operation.actor,
        one_line(operation.reason, 40),
    )


operation = typer.Typer(
    name="operation", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)


@operation.callback()
def _operation() -> None:
    """Show, pause, resume, cancel or undo an operation."""


@operation.command()
@configured
def show(
    *,
    number: Number,
    members: Annotated[
        MembersChoice | None, typer.Option(help="Also list its messages with this outcome.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number.")] = 100,
    after: Annotated[
        str, typer.Option(help=("Only messages after this id, for the next page."))
    ] = "",
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Wait, at most this long (0s, 5m), until all messages are sent and judged; exit "
            "code 69 if some are not, or came back.",
        ),
    ] = None,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show an operation's progress and the outcomes of its messages.

    \b
    JSON: {"operation": {"id", "action", "state", "matched", "changed", "resent", "came_back",
    "actor", "reason", "state_reason", "state_changes", "selection", "pace", ...},
    "outcomes": null | {"not_sent", "resent", "consumed", "came_back", "unknown",
    "unknown_because"}, "doing", "undoable", "result": null | "unfinished" | "not_sent" |
    "open" | "came_back" | "unknown" | "consumed"},
    with --members also "members": [{"redelivery_id", "destination", "changed_at_ms",
    "resent_at_ms", "outcome", "evidence"}] and "next_after"
    """  # noqa: D301 - as above
    wait_ms = None if wait is None else duration_ms(wait, "--wait")
    page, clock = None, SystemClock()
    until_s = clock.monotonic_s() + (wait_ms or 0) / 1000
    with opened_schedule(config) as store, usage_errors():
        _check_known(store, number)
        progress = read_progress(store, number, clock.now_ms())
        while progress.result in UNSETTLED and clock.monotonic_s() < until_s:
            time.sleep(_LOOK_PAUSE_S)
            progress = read_progress(store, number, clock.now_ms())
        if members is not None:
            is_all = members is MembersChoice.ALL
            outcome = None if is_all else OutcomeKind[members.name]
            page = list_members(store, number, outcome, limit, after)
    print_progress(progress, output, page)
    if wait is not None and progress.result in (*UNSETTLED, OperationResult.CAME_BACK):
        raise typer.Exit(_EXIT_NOT_DONE)


@operation.command("pause")
@takes(ChangeOptions)
def _pause(given: ChangeOptions, config: Config) -> None:
    """Pause an operation until it is resumed.

    JSON: as `operation show`
    """
    _change(operate.pause, given, config)


@operation.command("resume")
@takes(ChangeOptions)
def _resume(given: ChangeOptions, config: Config) -> None:
    """Resume a paused or stopped operation, with a new probe.

    The service carries it out.

    JSON: as `operation show`
    """
    _change(operate.resume, given, config)


@operation.command("cancel")
@takes(ChangeOptions)
def _cancel(given: ChangeOptions, config: Config) -> None:
    """End an operation; its finished work stays.

    The rest of its messages stays untouched.

    JSON: as `operation show`
    """
    _change(operate.cancel, given, config)


@operation.command("undo")
@takes(ChangeOptions)
def _undo(given: ChangeOptions, config: Config) -> None:
    """Restore the messages of a discard of the last hour.

    Each message is as it was before. Messages from a final dead-letter queue go back there.

    JSON: as `operation show`
    """
    now_ms, actor = SystemClock().now_ms, cli_actor()
    runner = f"{actor}:{secrets.token_hex(8)}"
    with opened_schedule(config, read_only=False) as store, usage_errors():
        _check_known(store, given.number)
        one = operate.undo(store, given.number, now_ms(), actor, given.reason)
        while is_working(one):
            suffix = config.redelivery.final_suffix
            one = operate.carry_out(store, given.number, runner, suffix, now_ms).operation
            time.sleep(_STEP_PAUSE_S)
        progress = read_progress(store, given.number, now_ms())
    print_progress(progress, given.output)


def _change(act: operate.ChangeOperation, given: ChangeOptions, config: Config) -> None:
    now_ms = SystemClock().now_ms()
    with opened_schedule(config, read_only=False) as store, usage_errors():
        _check_known(store, given.number)
        act(store, given.number, now_ms, cli_actor(), given.reason)
        progress = read_progress(store, given.number, now_ms)
    print_progress(progress, given.output)


def _check_known(store: Schedule, number: int) -> None:
    """Raise NothingFound unless there is an operation of this number."""
    if store.operation(number) is None:
        newest = store.operations(1)
        near = f"the newest is {newest[0].id}" if newest else "none was begun"
        raise NothingFound(f"there is no operation {number}; {near}")


def print_progress(
    progress: Progress, output: OutputFormat, members: MemberPage | None = None
) -> None:
    """Print how an operation stands."""
    if output is OutputFormat.JSON:
        page = {} if members is None else msgspec.structs.asdict(members)
        print_json(msgspec.structs.asdict(progress) | page)
        return
    one, outcomes = progress.operation, progress.outcomes
    by = f"{one.actor}, {one.reason}" if one.reason else one.actor
    print_line(f"operation  {one.id}: {one.action.word} by {by}")
    state = one.state + ", not all sent" * (progress.result is OperationResult.NOT_SENT)
    print_line(f"state      {state}: {progress.doing}")
    if progress.result_clause:
        print_line(f"result     {progress.result_clause}")
    expected = "" if one.expected is None else f", {one.expected} were expected"
    print_line(f"changed    {one.changed} of {one.matched} found so far{expected}")
    if one.overtaken:
        print_line(f"left       {one.overtaken}, another action changed them after this began")
    if progress.undoable:
        print_line(f"undoable   {progress.undoable}: `amqsidecar operation undo {one.id}`")
    if outcomes is not None:
        print_line(f"not sent   {outcomes.not_sent}")
        print_line(f"re-sent    {outcomes.resent} (they may still come back)")
        print_line(f"consumed   {outcomes.consumed}")
        print_line(f"came back  {outcomes.came_back}")
        because = f" ({one_line(outcomes.unknown_because, 300)})" * bool(outcomes.unknown)
        print_line(f"unknown    {outcomes.unknown}{because}")
    for change in one.state_changes:
        words = (clock_time(change.at_ms), change.state, change.actor, change.reason)
        print_line("  ".join(word for word in words if word))
    if members is not None:
        _print_members(members)


def leave_unless_done(operation: Operation) -> None:
    """Where an operation ended before it was done say why and how to go on, and leave with 69."""
    if operation.state in (OperationState.RUNNING, OperationState.DONE):
        return
    number, change = operation.id, operation.state_changes[-1]
    why = f"{change.actor}: {change.reason}" if change.reason else change.actor
    look = f"`amqsidecar operation show {number} --members came_back` lists what came back"
    go_on = f"`amqsidecar operation resume {number}` makes the service continue"
    end = f"`amqsidecar operation cancel {number}` ends it"
    match operation.state:
        case OperationState.STOPPED:
            say(f"operation {number} stopped by itself: {change.reason}")
            say(f"finished work stays; {look}, {go_on}, {end}")
        case OperationState.PAUSED:
            say(f"operation {number} was paused by {why}; {go_on}, {end}")
        case _:
            say(f"operation {number} was cancelled by {why}; finished work stays")
    raise typer.Exit(_EXIT_NOT_DONE)


def _print_members(page: MemberPage) -> None:
    rows = [
        (one.redelivery_id, one.destination, one.outcome or "not sent", one.evidence)
        for one in page.members
    ]
    print_rows(("redelivery id", "destination", "outcome", "evidence"), rows, below=1)
    if page.next_after is not None:
        say(f"more results: --after {page.next_after}")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Exit with code 2 when an action in the block is refused."""
    try:
        yield
    except ActionRefused as error:
        raise typer.BadParameter(str(error)) from error
