"""Actions as the command that does the same, safe to paste into a shell."""

import re
import shlex

import msgspec

from amqsidecar.http.console.templating import iso
from amqsidecar.model.cause_note import WaitFor
from amqsidecar.model.operation import Action, OperationPace, Selection
from amqsidecar.model.shown import shown
from amqsidecar.operations.conditions import given
from amqsidecar.operations.listing import Bounds
from amqsidecar.operations.select import NEEDED_STATES


def command_of(
    action: Action,
    selection: Selection,
    pace: OperationPace,
    target: str | None,
    reason: str,
    now_ms: int,
    bounds: Bounds = Bounds(),  # noqa: B008
    wait: WaitFor | None = None,
) -> str | None:
    """Return a command line, without `--config`; None = no command does it.

    Args:
        action: what to do.
        selection: to what.
        pace: how carefully.
        target: where to, for redirecting.
        reason: in the person's words.
        now_ms: reference time of ages.
        bounds: which of the selected messages.
        wait: for the event that ends a hold; None = there is none.
    """
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
        ("--to", target),
        ("--until", wait and wait.event),
        ("--at-most", wait and f"{wait.longest_ms // 1000}s"),
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
