"""`amqsidecar show`: one message and all that happened to it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amqsidecar.cli.opened import opened_view
from amqsidecar.cli.options import ConfigFile, Output, OutputFormat, Sets, read_config
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.operations.timeline import describe_all, tag_of
from amqsidecar.operations.words import clock_time, due, one_line, reason_lines, size
from amqsidecar.private_files import private_opener

if TYPE_CHECKING:
    from amqsidecar.model.schedule import RowView
    from amqsidecar.operations.references import Found
    from amqsidecar.schedule import ScheduleView


def show(
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Any printed id: number of a row, redelivery id, message id, number of an "
            "operation or a group, id of a store.",
        ),
    ],
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write its bytes, as the broker encoded them, to a new file.",
            show_default=False,
        ),
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a message: where it waits, and all that happened to it.

    \b
    JSON: {"redelivery_id": null = no message, "rows": [as in `list`; empty = it waits no longer],
    "history": [{"type", "at_ms", ...}, oldest first], "also": [{"kind": "message" | "operation" |
    "group" | "store", "id", "what", "command"}]}; null if nothing is known
    """  # noqa: D301 - the backspace makes the library keep the lines
    config = read_config(config_file, sets)
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.errors import NothingFound  # noqa: PLC0415 - as above
    from amqsidecar.operations.references import find_reference  # noqa: PLC0415 - as above

    with opened_view(config) as store:
        state = store.state()
        found = find_reference(store, message, state)
        if save is not None:
            _save(store, [] if found is None else found.rows, message, save)
    if output is OutputFormat.JSON:
        print_json(found)
    if found is None:
        raise NothingFound(f"{message} is unknown: it was never here, or its history was removed")
    if output is OutputFormat.JSON:
        return
    for one in found.also:
        line = f"{one.kind} {one.id}, {one.what}: `{one.command}`"
        (print_line if found.redelivery_id is None else say)(line)
    if found.redelivery_id is not None:
        _print_message(found, SystemClock().now_ms())


def _print_message(found: "Found", now_ms: int) -> None:
    print_line(f"redelivery id  {found.redelivery_id}")
    for row in found.rows:
        _print_row(row, now_ms)
    if not found.rows:
        print_line("waits          no longer")
    print_line()
    for event, said in zip(found.history, describe_all(found.history), strict=True):
        what = one_line(said, 300)
        print_line(f"{clock_time(event.at_ms)}  {tag_of(event):<20}  {what}".rstrip())


def _save(store: "ScheduleView", rows: "Sequence[RowView]", message: str, path: Path) -> None:
    """Write the message of the only row; nothing that exists is written over."""
    if len(rows) != 1:
        numbers = ", ".join(str(row.id) for row in rows)
        why = (
            f"{message} has several rows; give one of {numbers}"
            if rows
            else (f"{message} is no longer waiting, so its bytes are gone")
        )
        raise typer.BadParameter(why, param_hint="ID")
    body = store.message(rows[0].id)
    if body is None:
        row = rows[0]
        why = (
            f"{message} lies in {row.goes_to}: take it back first (`amqsidecar take-back {row.id}`)"
            if row.is_in_final_queue
            else f"{message} has just left"
        )
        raise typer.BadParameter(why, param_hint="ID")
    from amqsidecar.telemetry import audit  # noqa: PLC0415 - keeps `--help` fast

    audit.write("download-message", audit.ActKind.READ, message=rows[0].redelivery_id)
    try:
        with open(path, "xb", opener=private_opener) as file:
            file.write(body)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--save") from error
    say(f"{size(len(body))} written to {path}: {rows[0].encoding}")


def _print_row(row: "RowView", now_ms: int) -> None:
    final = " (final dead-letter queue)" if row.is_final else ""
    verb = "lies in        " if row.is_in_final_queue else "goes to        "
    print_line(f"row            {row.id}, {row.state.value}{', being sent' * row.in_flight}")
    print_line(f"{verb}{row.goes_to}{final}")
    if row.final_queue is not None:
        print_line(f"died at        {row.destination}")
    if row.state.value != "exhausted":
        print_line(f"due            {clock_time(row.due_at_ms)}, {due(row.due_at_ms, now_ms)}")
    print_line(f"count          {row.redelivery_count}")
    print_line(f"found in       {row.source}, {size(row.size_bytes)}, {row.encoding}")
    print_line(f"message id     {row.message_id or 'none'}")
    for number, line in enumerate(reason_lines(row.cause)):
        print_line(f"{'' if number else 'cause':<14} {line}")
    if row.group is not None:
        print_line(f"group          {row.group}")
    print_line(f"rule           {one_line(row.rule, 300)}")
    if row.reason is not None:
        print_line(f"waits because  {one_line(row.reason, 300)}")
