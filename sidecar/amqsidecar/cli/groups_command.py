"""`amqsidecar groups`: failures by cause, with their trend."""

from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import (
    FilterDestination,
    Output,
    OutputFormat,
    Wide,
    duration_ms,
)
from amqsidecar.cli.printing import print_json, print_line, print_rows, say
from amqsidecar.cli.reading import canonical, configured
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import NothingFound
from amqsidecar.model.cause_groups import split_stack
from amqsidecar.operations.failures.groups import Group, read_groups
from amqsidecar.operations.markers import new_since
from amqsidecar.operations.words import CAUSE_SOURCES, lacks_cause, one_line, span


@configured
def groups(
    *,
    destination: FilterDestination = None,
    window: Annotated[
        str,
        typer.Option(
            "--last",
            metavar="TIME",
            help="Compare this latest period with the same period of the day before, such as 15m, "
            "1h or 6h.",
        ),
    ] = "1h",
    limit: Annotated[int, typer.Option(min=1, max=2_000, help="Maximum number.")] = 50,
    wide: Wide = False,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest",
            help="Instead suggest fields for `intake.group_by`: those that divide the kept "
            "messages best. Opens the bodies of a sample.",
        ),
    ] = False,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print failures by destination and cause.

    Groups of which most messages died lately come first.

    \b
    JSON: [{"number", "destination", "cause_group", "trend": "new" | "up" | "steady" | "down" |
    "quiet", "recent", "recent_messages", "day_before", "first_at_ms", "last_at_ms", "total",
    "waiting", "held", "parked", "exhausted", "example_id", "note": as in `note` | null,
    "new_since": as in `mark` | null}]
    With --suggest: [{"destination", "messages", "fields": [{"field", "present", "distinct",
    "values": {value: messages}, "same_as"}]}]
    """  # noqa: D301 - the backspace makes the library keep the lines
    window_ms = duration_ms(window, "--last", least_ms=1)
    name = canonical(destination, "--destination")
    if suggest:
        _suggest(config, name, output)
        return
    now_ms = SystemClock().now_ms()
    with opened_schedule(config) as store:
        groups = read_groups(store, now_ms, window_ms=window_ms, destination=name, limit=limit)
    if output is OutputFormat.JSON:
        print_json(groups)
    elif not groups and name is not None:
        raise NothingFound(f"the history has no deaths at {name}")
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
        if any(lacks_cause(group.cause_group) for group in groups):
            say(CAUSE_SOURCES)


def _suggest(config: Config, destination: str | None, output: OutputFormat) -> None:
    from amqsidecar.operations.failures.suggest import suggest  # noqa: PLC0415 - codecs of all wires

    with opened_schedule(config) as store:
        found = suggest(store, destination)
    if output is OutputFormat.JSON:
        print_json(found)
        return
    for one in found:
        if not one.fields:
            say(f"{one.destination}: no field divides the {one.messages} examined messages")
            continue
        print_line(f"{one_line(one.destination)}: fields of {one.messages} messages")
        for field in one.fields:
            values = ", ".join(f"{one_line(value)} ({n})" for value, n in field.values.items())
            more = field.distinct - len(field.values)
            print_line(
                f"  {one_line(field.field)}: {values}" + (f", {more} more" if more > 0 else "")
            )
            if field.same_as:
                print_line(f"    as {', '.join(map(one_line, field.same_as[:3]))}")
    if not found:
        say("the schedule has no messages")


def _times(messages: int, deaths: int) -> str:
    return f"{messages} ({deaths} times)" if deaths > messages else str(messages)


def _cells(group: Group, now_ms: int) -> tuple[str, ...]:
    return (
        str(group.number),
        new_since(group.new_since, now_ms) if group.new_since else group.trend.value,
        _times(group.recent_messages, group.recent),
        str(group.day_before),
        str(group.waiting),
        str(group.held),
        str(group.parked),
        str(group.exhausted),
        f"{span(max(0, now_ms - group.first_at_ms))} ago",
        f"{span(max(0, now_ms - group.last_at_ms))} ago",
        one_line(group.destination),
        one_line(split_stack(group.cause_group)[0], 200),
    )
