"""`amqsidecar edit`: changing a message before it is re-sent."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule, service_time_of
from amqsidecar.cli.operate.operations_command import usage_errors
from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import confirmed, print_json, print_line, print_lines, say
from amqsidecar.cli.reading import configured
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import EditRefused
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import MessageEdit, MessageView, PropertyEdit, TypedValue, ValueType
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations import fetch
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.message import edit_and_retry, try_edit
from amqsidecar.operations.operate import check_reason
from amqsidecar.operations.select import resolve
from amqsidecar.operations.words import one_line, size
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

_VALUE = "NAME[:TYPE]=VALUE"


@configured
def edit(
    *,
    message: Annotated[
        str, typer.Argument(metavar="ID", help="Number of a row, or a redelivery id.")
    ],
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the new text, UTF-8; - = standard input."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--bytes", metavar="FILE", help="File with the new bytes; - = standard input."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar=_VALUE,
            help="Set a property; without a type it keeps its own. Repeatable.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove a property.")
    ] = None,
    entries: Annotated[
        list[str] | None,
        typer.Option("--entry", metavar=_VALUE, help="Set an entry of a map."),
    ] = None,
    without_entry: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove an entry of a map.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason, for the history.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the result without changing anything.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    r"""Edit a message and re-send it now.

    The original stays in its history. Everything else keeps its bytes. The running service carries
    the re-send out. A message in its final dead-letter queue is taken out of it first; if it can't
    be edited so, it goes back.

    \b
    JSON: the operation, as `operation show`; with --dry-run what the message would be
    """
    change = MessageEdit(
        text=None if text is None else _text(_read(text)),
        data=None if data is None else _read(data),
        set_properties=tuple(map(_value, properties or ())),
        remove_properties=tuple(without or ()),
        set_entries=tuple(map(_value, entries or ())),
        remove_entries=tuple(without_entry or ()),
    )
    if change == MessageEdit() and not dry_run:
        raise typer.BadParameter(
            "no change is given: use --text, --bytes, --property, --without, --entry or "
            "--without-entry"
        )
    try:
        with opened_schedule(config) as store, usage_errors():
            check_reason(reason)
            ids, _ = resolve(store, [message])
            if len(ids) != 1:
                several = f"has several rows; give one of {', '.join(map(str, ids))}"
                what = f"{message} {several if ids else 'waits no longer'}"
                raise typer.BadParameter(what, param_hint="ID")
            [row] = store.list_rows(RowFilter(ids=ids), 1)
            edits = len(store.originals(row.redelivery_id))
            lies_in = row.goes_to if row.is_in_final_queue else ""
            if lies_in and dry_run:
                raise typer.BadParameter(
                    f"message {row.id} lies in {lies_in}, and its content can't be shown from "
                    f"there: take it back first (`amqsidecar take-back {row.id}`)",
                    param_hint="--dry-run",
                )
            view = None if lies_in else try_edit(store, row.id, change, edit_message, view_message)
            if dry_run:
                audit.write("read-message", audit.ActKind.READ, message=row.redelivery_id)
        if dry_run and view is not None:
            _print_view(view, output)
            return
        _confirm(row.id, change, lies_in, yes=yes)
        with opened_schedule(config, read_only=False) as store, usage_errors():
            if lies_in:
                _fetch(store, row.id, config.redelivery.final_suffix, lies_in)
            try:
                operation = edit_and_retry(
                    store,
                    row.id,
                    change,
                    edit_message,
                    now_ms=service_time_of(store)(),
                    actor=cli_actor(),
                    reason=reason,
                    edits=edits,
                )
            except (EditRefused, ActionRefused):
                if lies_in:
                    _put_back(store, row.id, config.redelivery.final_suffix)
                raise
    except EditRefused as error:
        raise typer.BadParameter(str(error)) from error
    if output is OutputFormat.JSON:
        print_json(operation)
    else:
        print_line(f"edited; operation {operation.id} re-sends it")


def _fetch(store: Schedule, row_id: int, suffix: str, queue: str) -> None:
    """Take a message out of its final queue; ended by Ctrl-C, it is left there."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + fetch.FETCH_S
    say(f"taking message {row_id} out of {queue} ...")
    fetch.fetch(store, row_id, clock.now_ms(), cli_actor())
    try:
        while not fetch.is_here(store, row_id):
            if clock.monotonic_s() > until_s:
                raise fetch.not_here_yet(store, row_id)
            time.sleep(fetch.FETCH_POLL_S)
    except KeyboardInterrupt:
        _put_back(store, row_id, suffix)
        raise


def _put_back(store: Schedule, row_id: int, suffix: str) -> None:
    if fetch.put_back(store, row_id, SystemClock().now_ms(), cli_actor(), suffix):
        say(f"message {row_id} was not edited; it stays in its final dead-letter queue")


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"byte {error.start} is not UTF-8", param_hint="--text") from error


def _value(given: str) -> PropertyEdit:
    name, equals, value = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"{given!r}: expected {_VALUE}")
    head, colon, kind = name.rpartition(":")
    if colon and kind in set(ValueType):
        return PropertyEdit(name=head, value=value, type=ValueType(kind))
    return PropertyEdit(name=name, value=value)


def _confirm(row_id: int, change: MessageEdit, lies_in: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this would edit and re-send a message; add --yes to confirm")
    has_body = change.text is not None or change.data is not None
    names = [one.name for one in (*change.set_properties, *change.set_entries)]
    names += [*change.remove_properties, *change.remove_entries]
    what = ", ".join(["its body"] * has_body + names)
    first = f"take message {row_id} out of {lies_in}, " if lies_in else ""
    if not confirmed(f"{first}change {what} of message {row_id} and re-send it?"):
        raise typer.Abort


def _print_view(view: MessageView, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(view)
        return
    lines = [
        f"{view.kind or 'message'}, {view.wire}, {size(view.size_bytes)}",
        *map(_line, (*view.headers, *view.properties)),
        f"body: {view.body.kind}, {size(view.body.size_bytes)}",
        *map(_line, view.body.entries),
        view.body.pretty or view.body.text or view.body.hex,
    ]
    print_lines("\n".join(lines))


def _line(one: TypedValue) -> str:
    name = "  " * one.depth + one_line(one.name, 60)
    return f"{name:<40}  {one.type:<9}  {one_line(one.value, 200)}"
