"""`amqsidecar retry`, `cancel`, `hold`, `release`: acting on what waits."""

import getpass
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from amqsidecar.cli.opened import opened_store
from amqsidecar.cli.options import (
    ConfigFile,
    FilterAge,
    FilterCause,
    FilterDestination,
    FilterState,
    Output,
    OutputFormat,
    Sets,
    read_config,
    read_filter,
)
from amqsidecar.cli.printing import print_json, print_line, progress_bar, say

if TYPE_CHECKING:
    from amqsidecar.config.schema import Config
    from amqsidecar.model.operation import Action
    from amqsidecar.model.schedule import RowFilter
    from amqsidecar.operations.act import Outcome

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Row numbers or redelivery ids.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="Everything, where no other filter is given.")]
_EXIT_INTERRUPTED = 130

Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


def retry(
    ids: Ids = None,
    destination: FilterDestination = None,
    state: FilterState = None,
    cause: FilterCause = None,
    older_than: FilterAge = None,
    everything: All = False,
    yes: Yes = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Redeliver now, held and parked messages too.

    JSON: {"action", "matched", "changed", "stopped"}
    """
    config = read_config(config_file, sets)
    chosen = _choose(ids, destination, state, cause, older_than, everything=everything)
    _act("retry", ids, chosen, config, yes=yes, output=output)


def cancel(
    ids: Ids = None,
    destination: FilterDestination = None,
    state: FilterState = None,
    cause: FilterCause = None,
    older_than: FilterAge = None,
    everything: All = False,
    yes: Yes = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Give up: send to the final dead-letter queue now.

    JSON: {"action", "matched", "changed", "stopped"}
    """
    config = read_config(config_file, sets)
    chosen = _choose(ids, destination, state, cause, older_than, everything=everything)
    _act("cancel", ids, chosen, config, yes=yes, output=output)


def hold(
    ids: Ids = None,
    destination: FilterDestination = None,
    cause: FilterCause = None,
    older_than: FilterAge = None,
    everything: All = False,
    yes: Yes = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Keep waiting messages until they are released.

    JSON: {"action", "matched", "changed", "stopped"}
    """
    config = read_config(config_file, sets)
    chosen = _choose(ids, destination, None, cause, older_than, everything=everything)
    _act("hold", ids, chosen, config, yes=yes, output=output)


def release(
    ids: Ids = None,
    destination: FilterDestination = None,
    cause: FilterCause = None,
    older_than: FilterAge = None,
    everything: All = False,
    yes: Yes = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Let held messages go at their due time, at once if it has passed.

    JSON: {"action", "matched", "changed", "stopped"}
    """
    config = read_config(config_file, sets)
    chosen = _choose(ids, destination, None, cause, older_than, everything=everything)
    _act("release", ids, chosen, config, yes=yes, output=output)


def _choose(
    ids: list[str] | None,
    destination: FilterDestination,
    state: FilterState,
    cause: FilterCause,
    older_than: FilterAge,
    *,
    everything: bool,
) -> "RowFilter":
    """Return the filter of the options; too little or too much of them is a usage error."""
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.model.schedule import RowFilter  # noqa: PLC0415 - as above

    chosen = read_filter(SystemClock().now_ms(), destination, state, cause, older_than)
    has_filter = chosen != RowFilter()
    if ids and (has_filter or everything):
        raise typer.BadParameter("give ids or a filter, not both")
    if not ids and not has_filter and not everything:
        raise typer.BadParameter(
            "say which messages: ids, --destination, --cause, --older-than, or --all"
        )
    if has_filter and everything:
        raise typer.BadParameter("--all is for no other filter")
    return chosen


def _act(
    name: str,
    ids: list[str] | None,
    chosen: "RowFilter",
    config: "Config",
    *,
    yes: bool,
    output: OutputFormat,
) -> None:
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.model.operation import Action, Selection  # noqa: PLC0415 - as above
    from amqsidecar.model.schedule import RowFilter  # noqa: PLC0415 - as above
    from amqsidecar.operations.act import Outcome, act_directly  # noqa: PLC0415 - as above
    from amqsidecar.operations.select import is_tallied, narrow, resolve  # noqa: PLC0415 - as above

    action = Action(name)
    with opened_store(config) as (store, _):
        if ids:
            numbers, unknown = resolve(store, ids)
            for reference in unknown:
                say(f"{reference}: does not wait (any more)")
            chosen = RowFilter(ids=numbers)
        hit = narrow(action, chosen)
        # Why: to look at each of millions takes as long as the rest, and nobody asked.
        count = store.count_rows(hit) if ids or not yes or is_tallied(Selection(rows=hit)) else None
    if count and not ids and not yes and not _is_confirmed(action, count):
        say("nothing was done")
        count = 0
    outcome = Outcome(action=action, matched=0, changed=0)
    if count != 0:
        with (
            opened_store(config, read_only=False) as (store, _),
            progress_bar(name, count) as advance,
            _interruptible() as is_interrupted,
        ):
            outcome = act_directly(
                store,
                action,
                chosen,
                now_ms=SystemClock().now_ms(),
                actor=f"cli:{_user()}",
                suffix=config.redelivery.final_suffix,
                progress=advance,
                is_stopped=is_interrupted,
            )
    _tell(outcome, output)
    if outcome.stopped:
        raise typer.Exit(_EXIT_INTERRUPTED)


def _tell(outcome: "Outcome", output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(outcome)
        return
    print_line(f"{outcome.action}: {outcome.changed} messages")
    if outcome.stopped:
        say("interrupted; what is done stays done, the same command does the rest")
    elif not outcome.matched:
        say("nothing matched")
    elif outcome.changed < outcome.matched:
        left = outcome.matched - outcome.changed
        say(f"{left} more were left as they are: they are being sent, or are final already")


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C end the action after its step instead of in it; a second one ends the program."""
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


def _is_confirmed(action: "Action", count: int) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"this would {action} {count} messages; say --yes if it shall")
    try:
        return typer.confirm(f"{action} {count} messages?", err=True)
    except typer.Abort:
        return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
