"""Actions as the command that does the same, safe to paste into a shell."""

import re
import shlex

import msgspec

from amqsidecar.http.console.templating import iso
from amqsidecar.model.operation import Action, OperationPace, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.model.shown import shown
from amqsidecar.operations.select import NEEDED_STATES


def command_of(
    action: Action,
    selection: Selection,
    pace: OperationPace,
    target: str | None,
    reason: str,
    now_ms: int,
) -> str | None:
    """Return a command line, without `--config`; None = no command does it.

    Args:
        action: what to do.
        selection: to what.
        pace: how carefully.
        target: where to, for redirecting.
        reason: in the person's words.
        now_ms: reference time of ages.
    """
    rows = selection.rows
    state = None if rows.state is NEEDED_STATES.get(action) else rows.state
    if not _has_options(rows) or (state is not None and action in NEEDED_STATES):
        return None
    is_at_once = msgspec.structs.replace(pace, begin_at_ms=None) == OperationPace()
    words = ["amqsidecar", action.word, *map(str, rows.ids or ())]
    options: list[tuple[str, object]] = [
        ("--destination", rows.destination),
        ("--state", state),
        ("--cause-group", rows.cause_group),
        ("--cause", rows.cause_contains),
        ("--source", rows.source),
        ("--newer-than", _age(rows.received_from_ms, now_ms)),
        ("--older-than", _age(rows.received_before_ms, now_ms)),
        ("--attempt", rows.redelivery_count),
        ("--count-at-least", rows.count_at_least),
        *(("--property", f"{name}={value}") for name, value in selection.properties),
        ("--contains", selection.contains or None),
        ("--to", target),
        ("--probe", pace.probe or None),
        ("--pace", None if pace.per_second is None else f"{pace.per_second:g}"),
        ("--stop-share", None if pace.stop_share is None else f"{pace.stop_share:g}"),
        ("--window", None if is_at_once else f"{max(1, pace.window_ms // 1000)}s"),
        ("--at", None if pace.begin_at_ms is None else iso(pace.begin_at_ms)),
        ("--reason", reason or None),
    ]
    for name, value in options:
        if value is not None:
            words += [name, str(value)]
    if pace.ramp:
        words.append("--ramp")
    if selection == Selection() or (rows == RowFilter(state=NEEDED_STATES.get(action))):
        words.append("--all")
    return " ".join(shell_word(word) for word in words)


def _has_options(rows: RowFilter) -> bool:
    """Whether the command line has an option for each condition."""
    return rows.redelivery_id is None and rows.due_before_ms is None


def _age(at_ms: int | None, now_ms: int) -> str | None:
    return None if at_ms is None else f"{max(0, now_ms - at_ms) // 1000}s"


def shell_word(text: str) -> str:
    r"""Return a text quoted as one word of a shell's command line, without control characters.

    Example:
        >>> shell_word("a b"), shell_word("x\x1b[2J")
        ("'a b'", "$'x\\x1b[2J'")
    """
    if shown(text) == text and not re.search(r"[\n\t]", text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(_escaped(one) for one in plain) + "'"


def _escaped(character: str) -> str:
    if shown(character) == character and character not in "\n\t":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"
