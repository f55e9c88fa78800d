"""`amqsidecar schedule`: the schedule as a whole."""

import os
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.options import ConfigFile, Output, OutputFormat, Sets
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.reading import read_config
from amqsidecar.cli.user import enter_as_user
from amqsidecar.telemetry import audit
from amqsidecar.wiring.app import crash_point_of
from amqsidecar.wiring.schedule_move import move_schedule

schedule = typer.Typer(
    name="schedule", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)


@schedule.callback()
def _schedule() -> None:
    """Move the schedule to another store."""


@schedule.command()
def move(
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The new store, as `store.url`: a file that does not exist, or an empty database.",
        ),
    ],
    *,
    instance: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="`store.instance` at the new store, if it is a file; default: as before.",
        ),
    ] = "",
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="`store.password_file` of the new store.")
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Move everything that waits, with its history, to another store.

    Stop all sidecars of the schedule first. The broker must be reachable. If the command was
    interrupted, run it again.

    \b
    JSON: {"source", "target", "other_tokens"}
    """  # noqa: D301 - the backspace makes the library keep the lines
    source = read_config(config_file, sets)
    new = [f"store.url={to}", f"store.instance={instance}"]
    new.append(f"store.password_file={password_file or ''}")
    target = read_config(config_file, [*(sets or ()), *new])
    enter_as_user(source, is_needed=True)
    moved = move_schedule(source, target, crash_point_of(os.environ))
    audit.write("schedule-move", audit.ActKind.CHANGE, after={"to": to})
    if output is OutputFormat.JSON:
        print_json(moved._asdict())
        return
    print_line(f"moved from {moved.source} to {moved.target}")
    print_line(f"set store.url to {to}, then start the sidecar")
    for queue in moved.other_tokens:
        print_line(f"delete the queue {queue} in the broker: its instance is not in the new store")
