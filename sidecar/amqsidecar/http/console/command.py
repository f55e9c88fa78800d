"""Actions as the command that does the same, safe to paste into a shell."""

import re
import shlex

from amqsidecar.http.console.shown import shown
from amqsidecar.model.operation import Action, Pace, Selection


def command_of(
    action: Action, selection: Selection, pace: Pace, target: str | None, reason: str
) -> str:
    """Return a command line; where the configuration is has to be added."""
    rows = selection.rows
    words = ["amqsidecar", action.value, *map(str, rows.ids or ())]
    if rows.redelivery_id is not None:
        words.append(rows.redelivery_id)
    options: list[tuple[str, object]] = [
        ("--destination", rows.destination),
        ("--state", rows.state),
        ("--cause-group", rows.cause_group),
        ("--cause", rows.cause_contains),
        ("--source", rows.source),
        ("--attempt", rows.redelivery_count),
        ("--taken-from", rows.received_from_ms),
        ("--taken-before", rows.received_before_ms),
        *(("--property", f"{name}={value}") for name, value in selection.properties),
        ("--to", target),
        ("--probe", pace.probe or None),
        ("--rate", None if pace.per_second is None else f"{pace.per_second:g}"),
        ("--stop-at", None if pace.stop_share is None else f"{pace.stop_share:g}"),
        ("--window", None if pace == Pace() else f"{pace.window_ms // 1000}s"),
        ("--reason", reason or None),
    ]
    for name, value in options:
        if value is not None:
            words += [name, str(value)]
    if pace.ramp:
        words.append("--ramp")
    if selection == Selection():
        words.append("--all")
    return " ".join(shell_word(word) for word in words)


def shell_word(text: str) -> str:
    r"""Return a text as one word of a shell's command line; nothing in it acts on the terminal.

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
