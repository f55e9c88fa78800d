"""`amqsidecar groups`: what dies and why, and whether it gets worse."""

from typing import TYPE_CHECKING, Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import (
    ConfigFile,
    FilterDestination,
    Output,
    OutputFormat,
    Sets,
    Wide,
    canonical,
    duration_ms,
    read_config,
)
from amqsidecar.cli.printing import print_json, print_rows, say
from amqsidecar.operations.words import one_line, span

if TYPE_CHECKING:
    from amqsidecar.operations.failures.groups import Group


def list_groups(
    destination: FilterDestination = None,
    window: Annotated[
        str,
        typer.Option(
            "--last",
            metavar="TIME",
            help=(
                "Compare this latest period with the same period of the day before, such as 15m, "
                "1h or 6h."
            ),
        ),
    ] = "1h",
    limit: Annotated[int, typer.Option(min=1, max=2_000, help="Maximum number.")] = 50,
    wide: Wide = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print what dies and why: failures by destination and cause, those first of which most die.

    \b
    JSON: [{"number", "destination", "cause_group", "trend": "new" | "up" | "steady" | "down" |
    "quiet", "recent", "recent_messages", "day_before", "first_at_ms", "last_at_ms", "total",
    "waiting", "held", "parked", "exhausted", "example_id", "note": as in `note` | null}]
    """  # noqa: D301 - the backspace makes the library keep the lines
    config = read_config(config_file, sets)
    window_ms = duration_ms(window, "--last", least_ms=1)
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.errors import NothingFound  # noqa: PLC0415 - as above
    from amqsidecar.operations.failures.groups import read_groups  # noqa: PLC0415 - as above

    now_ms = SystemClock().now_ms()
    name = canonical(destination, "--destination")
    with opened_schedule(config) as store:
        groups = read_groups(store, now_ms, window_ms=window_ms, destination=name, limit=limit)
    if output is OutputFormat.JSON:
        print_json(groups)
    elif not groups and name is not None:
        raise NothingFound(f"the history has no death at {name}")
    elif not groups:
        say("the history has no deaths")
    else:
        headers = (
            *("group", "trend", f"last {window}", "day before"),
            *("waiting", "held", "parked", "exhausted"),
            *("first", "last", "destination", "cause"),
        )
        cells = [_cells(group, now_ms) for group in groups]
        print_rows(headers, cells, below=2, spare=("first", "day before"), is_wide=wide)


def _cells(group: "Group", now_ms: int) -> tuple[str, ...]:
    return (
        str(group.number),
        group.trend.value,
        str(group.recent),
        str(group.day_before),
        str(group.waiting),
        str(group.held),
        str(group.parked),
        str(group.exhausted),
        f"{span(max(0, now_ms - group.first_at_ms))} ago",
        f"{span(max(0, now_ms - group.last_at_ms))} ago",
        one_line(group.destination),
        one_line(group.cause_group),
    )
