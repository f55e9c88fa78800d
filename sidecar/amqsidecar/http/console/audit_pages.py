"""The page of the audit: the latest lines of its file, with a filter."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from os import SEEK_END
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.telemetry.audit import days_of

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are searched, back from the latest line; the rest is for tools that read ECS."""

LINES_MAX: Final = 200

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One act.

    Attributes:
        at: its time, as in the line.
        about: the line's other fields.
    """

    at: str
    who: str
    way: str
    address: str
    action: str
    outcome: str
    about: dict[str, Any]


def read_audit(path: Path, who: str, action: str, contains: str) -> list[AuditLine]:
    """Return the latest lines that match, the latest first, at most `LINES_MAX`.

    Args:
        who: name of the actor; "" = any.
        action: as `event.action`, or the begin of it; "" = any.
        contains: a text in the line; "" = any.

    Raises:
        OSError: the file can't be read.
    """
    found: list[AuditLine] = []
    for line in _latest_lines([path, *days_of(path)]):
        if len(found) == LINES_MAX:
            break
        try:
            fields = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Why: the read may begin inside the first line, and the last may not be whole.
            continue
        shown = _shown(fields)
        is_meant = shown.action.startswith(action) and contains.encode() in line
        if is_meant and who in ("", shown.who):
            found.append(shown)
    return found


def _latest_lines(paths: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines at the end of files, the latest first; the files come newest first."""
    left = READ_BYTES
    for path in paths:
        if left > 0:
            with path.open("rb") as file:
                file.seek(-min(left, file.seek(0, 2)), SEEK_END)
                content = file.read(left)
            left -= len(content)
            yield from reversed(content.splitlines())


def _shown(fields: Mapping[str, Any]) -> AuditLine:
    texts = {
        name: str(fields.get(key, ""))
        for name, key in (
            ("at", "@timestamp"),
            ("who", "user.name"),
            ("way", "amqsidecar.way"),
            ("address", "source.address"),
            ("action", "event.action"),
            ("outcome", "event.outcome"),
        )
    }
    ours = {
        key.removeprefix("amqsidecar."): value
        for key, value in fields.items()
        if key.startswith(("amqsidecar.", "event.reason", "url.")) and key != "amqsidecar.way"
    }
    return AuditLine(**texts, about=ours)


async def show_audit(visit: Visit) -> Response:
    """Show the latest lines of the audit that match."""
    path = visit.tools.audit
    if path is None:
        raise HttpRefused(403, "the audit is about all destinations; your role views only some")
    given = {name: visit.params.get(name, "") for name in ("who", "action", "contains")}
    if given["contains"] and visit.queries.masking.has_patterns:
        raise HttpRefused(403, "masked parts can't be searched (http.masked)")
    try:
        found = await asyncio.to_thread(read_audit, path, **given)
    except OSError as error:
        raise PageMissing(f"The audit can't be read: {error.strerror}.") from error
    return await visit.page("audit.html", lines=found, given=given, limit=LINES_MAX)
