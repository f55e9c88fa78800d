"""Actions as the command that does the same, safe to paste into a shell."""

import re
import shlex

import msgspec

from amqsidecar.http.console.templating import iso
from amqsidecar.model.operation import Operation, OperationPace
from amqsidecar.model.shown import shown
from amqsidecar.operations.conditions import given
from amqsidecar.operations.listing import Bounds
from amqsidecar.operations.operate import Wish
from amqsidecar.operations.select import NEEDED_STATES


def command_of(
    wanted: Wish | Operation,
    now_ms: int,
    bounds: Bounds = Bounds(),  # noqa: B008
) -> str | None:
    """Return the command line of an action, without `--config`; None = no command does it.

    Args:
        now_ms: reference time of ages.
        bounds: which of the selected messages.
    """
    action, selection, pace = wanted.action, wanted.selection, wanted.pace
    rows, needed = selection.rows, NEEDED_STATES.get(action)
    if needed is not None and rows.state not in (None, needed):
        return None
    words, options = ["amqsidecar", action.word], list[tuple[str, object]]()
    for condition, value in given(selection):
        if condition.option is None:
            return None
        if condition.field == "state" and value is needed:
            continue
        texts = [_age(value, now_ms)] if condition.is_moment else condition.write(value)
        if condition.option:
            options += [(condition.option, text) for text in texts]
        else:
            words += texts
    if not options and len(words) == 2:
        words.append("--all")
    is_at_once = msgspec.structs.replace(pace, begin_at_ms=None) == OperationPace()
    options += [
        ("--limit", bounds.limit),
        ("--to", wanted.target),
        ("--until", wanted.until or None),
        ("--at-most", f"{wanted.longest_ms // 1000}s" if wanted.until else None),
        ("--probe", pace.probe or None),
        ("--pace", None if pace.per_second is None else f"{pace.per_second:g}"),
        ("--stop-share", None if pace.stop_share is None else f"{pace.stop_share:g}"),
        ("--window", None if is_at_once else f"{max(1, pace.window_ms // 1000)}s"),
        ("--at", None if pace.begin_at_ms is None else iso(pace.begin_at_ms)),
        ("--reason", wanted.reason or None),
    ]
    for name, value in options:
        if value is not None:
            words += [name, str(value)]
    words += ["--one-per-message-id"] * bounds.one_per_message_id + ["--ramp"] * pace.ramp
    return " ".join(shell_word(word) for word in words)


def _age(at_ms: int, now_ms: int) -> str:
    return f"{max(0, now_ms - at_ms) // 1000}s"


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
