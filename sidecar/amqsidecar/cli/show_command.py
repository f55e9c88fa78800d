"""`amqsidecar show`: one message and all that happened to it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_view
from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import configured
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import NothingFound
from amqsidecar.model.message import MessageView
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.last_death import last_death, log_links
from amqsidecar.operations.lying import LyingMessage
from amqsidecar.operations.references import Found, find_reference
from amqsidecar.operations.timeline import describe_all, tag_of
from amqsidecar.operations.words import clock_time, due, one_line, reason_lines, size
from amqsidecar.private_files import private_opener
from amqsidecar.schedule import ScheduleView
from amqsidecar.telemetry import audit


@configured
def show(
    *,
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
            metavar="FILE", help="Write its bytes, as the broker encoded them, to a new file."
        ),
    ] = None,
    content: Annotated[
        bool,
        typer.Option(
            "--content",
            help="Also show properties and body; a message in its final queue is browsed there, "
            "and nothing moves.",
        ),
    ] = False,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a message: where it waits, and all that happened to it.

    \b
    JSON: {"redelivery_id": null = no message, "rows": [as in `list`; empty = it waits no longer],
    "history": [{"type", "at_ms", ...}, oldest first], "also": [{"kind": "message" | "operation" |
    "group" | "store", "id", "what", "command"}]}; null if nothing is known; with --content the
    properties and the body, as the API's `view`
    """  # noqa: D301 - the backspace makes the library keep the lines
    with opened_view(config) as store:
        state = store.state()
        found = find_reference(store, message, state)
        rows = [] if found is None else found.rows
        if save is not None:
            _save(_read_message(config, store, rows, message, "download-message"), message, save)
        view = None
        if content and found is not None:
            from amqsidecar.messages.view import view_message  # noqa: PLC0415 - codecs of all wires

            view = view_message(*_read_message(config, store, rows, message, "read-message"))
    if output is OutputFormat.JSON:
        print_json(found if view is None else view)
    if found is None:
        raise NothingFound(f"{message} is unknown: it was never here, or its history was removed")
    if output is OutputFormat.JSON:
        return
    for one in found.also:
        line = f"{one.kind} {one.id}, {one.what}: `{one.command}`"
        (print_line if found.redelivery_id is None else say)(line)
    if found.redelivery_id is not None:
        _print_message(found, SystemClock().now_ms())
        death = last_death(found.history)
        for name, url in log_links(config.http.links, config.otel.traced_share, death).items():
            print_line(f"{name:<14} {url}")
    if view is not None:
        _print_content(view)


def _print_message(found: Found, now_ms: int) -> None:
    print_line(f"redelivery id  {found.redelivery_id}")
    for row in found.rows:
        _print_row(row, now_ms)
    if not found.rows:
        print_line("waits          no longer")
    print_line()
    for event, said in zip(found.history, describe_all(found.history), strict=True):
        what = one_line(said, 300)
        print_line(f"{clock_time(event.at_ms)}  {tag_of(event):<20}  {what}".rstrip())


def _read_message(
    config: Config, store: ScheduleView, rows: Sequence[RowView], message: str, act: str
) -> LyingMessage:
    """Return the message of the only row, and audit this act; in its final queue it is browsed."""
    if len(rows) != 1:
        numbers = ", ".join(str(row.id) for row in rows)
        why = (
            f"{message} has several rows; give one of {numbers}"
            if rows
            else f"{message} is no longer waiting, so its bytes are gone"
        )
        raise typer.BadParameter(why, param_hint="ID")
    row = rows[0]
    if row.is_in_final_queue:
        # Why here: only where a broker is asked.
        from amqsidecar.wiring.gate import lying_reader  # noqa: PLC0415
        from amqsidecar.wiring.links import LinkMaker, look_at_any  # noqa: PLC0415

        found = lying_reader(partial(look_at_any, LinkMaker(config, SystemClock())))(row)
    else:
        body = store.message(row.id)
        if body is None:
            raise typer.BadParameter(f"{message} has just left", param_hint="ID")
        found = LyingMessage(row.encoding, body)
    audit.write(act, audit.ActKind.READ, message=row.redelivery_id)
    return found


def _save(found: LyingMessage, message: str, path: Path) -> None:
    """Write the bytes of a message; nothing that exists is written over."""
    try:
        with open(path, "xb", opener=private_opener) as file:
            file.write(found.message)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--save") from error
    say(f"{size(len(found.message))} written to {path}: {found.encoding}")


def _print_content(view: MessageView) -> None:
    print_line()
    for one in view.properties:
        cut = " ... (cut)" if one.is_cut else ""
        print_line(f"{'  ' * one.depth}{one.name} ({one.type.value}) = {one.value}{cut}")
    body = view.body
    print_line(f"body           {body.kind.value}, {size(body.size_bytes)}{', cut' * body.is_cut}")
    for entry in body.entries:
        print_line(f"{'  ' * entry.depth}{entry.name} ({entry.type.value}) = {entry.value}")
    for line in (body.pretty or body.text or body.hex).splitlines():
        print_line(line)
    for problem in view.problems:
        print_line(problem)


def _print_row(row: RowView, now_ms: int) -> None:
    final = " (final dead-letter queue)" if row.is_final else ""
    verb = "lies in        " if row.is_in_final_queue else "goes to        "
    print_line(f"row            {row.id}, {row.state.value}{', being sent' * row.in_flight}")
    print_line(f"{verb}{row.goes_to}{final}")
    if row.final_queue is not None:
        print_line(f"died at        {row.destination}")
    if row.state.value != "exhausted":
        print_line(f"due            {clock_time(row.due_at_ms)}, {due(row.due_at_ms, now_ms)}")
    print_line(f"count          {row.redelivery_count}")
    shown_size = f"{size(row.size_bytes)}, " if row.size_bytes else ""
    print_line(f"found in       {row.source}, {shown_size}{row.encoding}")
    print_line(f"message id     {row.message_id or 'none'}")
    for number, line in enumerate(reason_lines(row.cause)):
        print_line(f"{'' if number else 'cause':<14} {line}")
    if row.group is not None:
        print_line(f"group          {row.group}")
    print_line(f"rule           {one_line(row.rule, 300)}")
    if row.reason is not None:
        print_line(f"waits because  {one_line(row.reason, 300)}")
