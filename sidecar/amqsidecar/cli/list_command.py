"""`amqsidecar list`: the waiting messages."""

from dataclasses import dataclass
from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_view
from amqsidecar.cli.options import (
    Chosen,
    FilterContains,
    FilterProperty,
    Output,
    OutputFormat,
    Wide,
)
from amqsidecar.cli.printing import print_json, print_rows, say
from amqsidecar.cli.reading import check_of_broker, find_group, read_selection, takes
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import NothingFound
from amqsidecar.model.cause import reason_line
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.model.shown import shown_line
from amqsidecar.operations.browse import list_page
from amqsidecar.operations.failures.find_group import where_else
from amqsidecar.operations.words import due, one_line, place


@dataclass(frozen=True, kw_only=True)
class ListChoice(Chosen):
    """The values of the options."""

    properties: FilterProperty = None
    contains: FilterContains = ""
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number.")] = 100
    after: Annotated[
        str, typer.Option(metavar="N", help="Start of the page: `next_after` of the page before.")
    ] = ""
    wide: Wide = False
    output: Output = OutputFormat.TEXT


@takes(ListChoice)
def list_(listed: ListChoice, config: Config) -> None:
    """List messages by number, exhausted ones after all others.

    \b
    JSON: {"rows": [{"id", "state", "due_at_ms", "destination", "is_final", "source",
    "redelivery_id", "redelivery_count", "delay_ms", "rule", "cause", "message_id",
    "received_at_ms", "encoding", "size_bytes", "reason", "in_flight", "cause_group", "gate",
    "final_queue", "recall", "recall_operation", "group": null | number}],
    "next_after": null | number | text}
    """  # noqa: D301 - the backspace makes the library keep the lines
    now_ms = SystemClock().now_ms()
    selection = read_selection(listed, now_ms)
    check_of_broker(config.store.url, selection, is_simple=listed.group is None)
    select = None
    if selection.looks_into_messages:
        from amqsidecar.operations.select import selector  # noqa: PLC0415 - codecs of all wires

        select = selector(selection)
    with opened_view(config) as store:
        rows = find_group(store, listed, selection.rows)
        try:
            page = list_page(store, rows, listed.limit, listed.after, select)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--after") from error
        is_empty = not page.rows and page.next_after is None
        near = where_else(store, rows) if is_empty else ""
    if listed.output is OutputFormat.JSON:
        print_json(page)
    if is_empty:
        if listed.after or (select is None and rows == RowFilter()):
            say("no more" if listed.after else "nothing waits")
            return
        raise NothingFound(f"nothing that waits matches{near}")
    if listed.output is OutputFormat.JSON:
        return
    headers = ("number", "state", "due", "count", "group", "destination", "cause")
    cells = [_cells(row, now_ms) for row in page.rows]
    print_rows(headers, cells, below=2, is_wide=listed.wide)
    if page.next_after is not None:
        say(f"more results: --after {page.next_after}")


def _cells(row: RowView, now_ms: int) -> tuple[str, ...]:
    when = due(row.due_at_ms, now_ms) if row.state.value == "waiting" else "-"
    if row.gate and row.state.value != "exhausted" and row.due_at_ms > now_ms:
        when = f"{when} ({one_line(row.gate, 30)})"
    return (
        str(row.id),
        row.state.value,
        "being sent" if row.in_flight else when,
        str(row.redelivery_count),
        "-" if row.group is None else str(row.group),
        one_line(place(row)),
        shown_line(reason_line(row.cause)) or "no reason given",
    )
