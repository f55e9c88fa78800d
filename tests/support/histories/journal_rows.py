"""Events of all kinds, and the content of a journal's files."""

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args, get_type_hints

from amqsidecar.journal import COLUMNS, ColumnType
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import opened
from amqsidecar.journals.writer import files_of, streams_of
from amqsidecar.model.event import AnyEvent, Event
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

_hints = cache(get_type_hints)
KINDS: Sequence[type[Event]] = get_args(AnyEvent)
AT_MS = 1_700_000_000_123


def filled(kind: type[Event], number: int = 1) -> AnyEvent:
    """Return an event that has no field at its default."""
    values: dict[str, Any] = {}
    for place, (name, hint) in enumerate(_hints(kind).items()):
        if name.startswith("__"):
            continue
        if name.endswith("at_ms"):
            values[name] = AT_MS + 1000 * number + place
        elif hint is bool:
            values[name] = name == "expired"
        elif hint is int:
            values[name] = 100 * number + place
        elif name == "properties":
            values[name] = {"tenant": f"t{number}", "empty": ""}
        else:
            values[name] = f"{name} ünd {number}"
    return kind(**values)  # type: ignore[return-value]


def rows_in(folder: Folder) -> list[dict[str, Any]]:
    """Return all rows of a journal as a reader sees them, with times in milliseconds."""
    rows = []
    for stream in streams_of(folder):
        for file in files_of(folder, stream):
            with opened(folder, stream, file) as parquet:
                rows += [_plain(row) for row in parquet.read().to_pylist()]
    return rows


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    for column in COLUMNS:
        value = row[column.name]
        if value is None:
            continue
        if column.kind is ColumnType.TIMESTAMP_MS:
            row[column.name] = round(value.timestamp() * 1000)
        elif column.kind is ColumnType.STRING_MAP:
            row[column.name] = dict(value)
    return row


def wait_written(sidecar: SidecarProcess) -> None:
    """Wait until all is in the journal."""

    def is_written() -> bool:
        remarks = sidecar.json_command("journal verify")["remarks"]
        return not any("not written yet" in remark for remark in remarks)

    eventually(is_written, every_s=0.3, what="all is written")
