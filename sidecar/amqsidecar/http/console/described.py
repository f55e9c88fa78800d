"""Actions, selections and paces in words."""

from typing import Final

import msgspec

from amqsidecar.http.console.templating import percent, utc
from amqsidecar.model.operation import Action, Operation, OperationPace, Selection, left_to_newer
from amqsidecar.operations.conditions import given
from amqsidecar.operations.listing import Bounds
from amqsidecar.operations.words import span

_IDS_SHOWN = 20


class ActionWords(msgspec.Struct, frozen=True, kw_only=True):
    """The name and the effect of an action.

    Attributes:
        name: on buttons.
        what: its effect, as a sentence.
        is_final: nothing redelivers the messages after it.
    """

    name: str
    what: str
    is_final: bool = False


ACTIONS: Final = {
    Action.RETRY: ActionWords(
        name="Retry",
        what="Sends messages to their destination again now, including held and parked ones.",
    ),
    Action.REDIRECT: ActionWords(
        name="Redirect", what="Sends messages to another destination now, once."
    ),
    Action.TAKE_BACK: ActionWords(
        name="Take back",
        what="Moves exhausted messages from their final queue into the schedule.",
    ),
    Action.HOLD: ActionWords(
        name="Hold",
        what="Keeps waiting messages until a person, or an event outside, releases them.",
    ),
    Action.RELEASE: ActionWords(
        name="Release",
        what=("Releases held messages: they are sent when due, or at once if overdue."),
    ),
    Action.CANCEL: ActionWords(
        name="Give up",
        what="Sends messages to their final dead-letter queue now; they are not redelivered.",
        is_final=True,
    ),
    Action.DISCARD: ActionWords(
        name="Discard",
        what="Removes messages. For an hour the operation can be undone; then only their history "
        "remains.",
        is_final=True,
    ),
}


def describe(selection: Selection) -> list[tuple[str, str]]:
    """Return the conditions of a selection as pairs of words; empty = everything."""
    pairs = []
    for condition, value in given(selection):
        if condition.is_moment:
            pairs.append((condition.words, f"{utc(value)} UTC"))
        elif condition.field == "ids":
            pairs.append((condition.words, _ids(value)))
        else:
            pairs += [(condition.words, text) for text in condition.write(value)]
    return pairs


def describe_operation(operation: Operation) -> list[tuple[str, str]]:
    """Return the conditions of an operation as pairs of words; empty = everything."""
    more = left_to_newer(operation)
    return [*describe(operation.selection), *([("more", more)] if more else [])]


def describe_bounds(bounds: Bounds) -> list[tuple[str, str]]:
    """Return which of the selected messages are taken, as pairs of words; empty = all."""
    pairs = [("of these", f"the oldest {bounds.limit:,}")] if bounds.limit else []
    if bounds.one_per_message_id:
        pairs.append(("of the same message id", "only the first"))
    return pairs


def _ids(ids: tuple[int, ...]) -> str:
    said = ", ".join(map(str, ids[:_IDS_SHOWN]))
    more = len(ids) - _IDS_SHOWN
    return f"{said} and {more} more" if more > 0 else said


def describe_pace(pace: OperationPace) -> str:
    """Return pace, probe and ramp of an operation, as a sentence."""
    said = []
    if pace.probe:
        said.append(f"{pace.probe:,} first, then a check whether they come back")
    if pace.ramp:
        said.append("then portions of twice the size")
    if pace.per_second is not None:
        said.append(f"at most {pace.per_second:g} a second")
    if pace.stop_share is not None:
        said.append(f"stops by itself when more than {percent(pace.stop_share)} come back")
    if not said:
        return "All at once."
    first = "; ".join(said)
    return f"{first[0].upper()}{first[1:]}. A message may come back for {span(pace.window_ms)}."
