"""The latest lines of an audit file, for auditors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the end of the file that are searched; the rest is for tools that read ECS."""

LINES_MAX: Final = 200

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One act.

    Attributes:
        at: when, as the line has it.
        about: what the line has beside the fields above, as JSON.
    """

    at: str
    who: str
    way: str
    address: str
    action: str
    outcome: str
    about: str


def read_audit(path: Path, who: str, action: str, contains: str) -> list[AuditLine]:
    """Return the latest lines that match, the latest first, at most `LINES_MAX`.

    Args:
        path: of the file.
        who: name of the actor; "" = any.
        action: as `event.action`, or the begin of it; "" = any.
        contains: a text in the line; "" = any.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - READ_BYTES))
        lines = file.read().splitlines()
    found: list[AuditLine] = []
    for line in reversed(lines):
        if len(found) == LINES_MAX:
            break
        try:
            fields = _decode(line)
        except msgspec.DecodeError:
            # Why: the first one is cut, and the last one may be.
            continue
        shown = _shown(fields)
        is_meant = shown.action.startswith(action) and contains.encode() in line
        if is_meant and who in ("", shown.who):
            found.append(shown)
    return found


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
    return AuditLine(**texts, about=msgspec.json.encode(ours).decode())
