"""One message: its place, history and content, and editing it before a re-send."""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from amqsidecar.errors import BrokerError
from amqsidecar.model.cause import KEPT_BYTES_MAX, ROW_BYTES_MAX, bounded_cause
from amqsidecar.model.event import AnyEvent, Edited, Received
from amqsidecar.model.message import BodyKind, BodyView, MessageEdit, MessageView
from amqsidecar.model.operation import Action, Operation, OperationPace, Selection
from amqsidecar.model.schedule import Recall, RowFilter, RowView
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.active_rules import ActiveRules
from amqsidecar.operations.browse import read_story
from amqsidecar.operations.explain import Forecast, kept_message, last_death
from amqsidecar.operations.fetch import fetch
from amqsidecar.operations.listing import shown_row
from amqsidecar.operations.lying import ReadLying
from amqsidecar.operations.operate import Wish, begin, checked
from amqsidecar.operations.timeline import Moment, read_life
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

VIEW_BYTES_MAX: Final = 64 * 1024
"""Default maximum bytes of a body that is shown."""

VIEWED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger message is not opened to be shown; it can be downloaded."""

LIFE_MAX: Final = 500
"""Moments of a message's life that are shown."""

CAUSES_BYTES_MAX: Final = 256 * 1024
"""Maximum bytes of causes shown whole, the latest deaths first."""

ORIGINALS_MAX: Final = 20

EDIT_BYTES_MAX: Final = 1024 * 1024
"""A longer body can't be edited by hand, because it can't be shown whole."""

_MANGLED: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]|\r(?!\n)")

ViewMessage = Callable[[str, bytes, int], MessageView]
"""Takes encoding, message, and maximum bytes of its body to show; returns the view of it."""

EditMessage = Callable[[str, bytes, MessageEdit], bytes]
"""Encoding, message and edit to the message after it; raises EditRefused."""


class OriginalView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a message before an edit.

    Attributes:
        number: of the edit, 0-based, the oldest first, as `original_message` takes it.
        view: its content for people.
    """

    number: int
    row_id: int
    edited_at_ms: int
    actor: str
    view: MessageView


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """One message with all known details.

    Attributes:
        redelivery_id: its id over all its deaths.
        rows: where it waits now; empty = it doesn't. Several are possible for a topic's message
            that died for several subscribers.
        row: the row in `view`; None = it waits no longer.
        life: its events, the oldest first, at most `LIFE_MAX`; causes of earlier deaths are cut.
        life_left_out: earlier events that are not in `life`.
        originals: its versions before the latest `ORIGINALS_MAX` edits, the oldest first.
        view: its content now; None = it waits no longer, so its bytes are gone, or `unseen`.
        unseen: why a message in its final queue is not shown; "" = not applicable.
        edit_lock: why it can't be edited now; None = it can.
        forecast: the current rules' decisions on its latest death and after each re-send; None =
            the rules or its origin are unknown.
        rules: the source of the rules, or why they are unknown; "" = its origin is unknown.
    """

    redelivery_id: str
    rows: list[RowView]
    row: RowView | None
    life: list[Moment]
    life_left_out: int = 0
    originals: list[OriginalView]
    view: MessageView | None
    unseen: str = ""
    edit_lock: str | None
    forecast: Forecast | None
    rules: str


def message_page(
    schedule: Schedule,
    reference: str,
    uid: str,
    now_ms: int,
    view: ViewMessage,
    *,
    acting: ActiveRules | None = None,
    lying: ReadLying | None = None,
    max_bytes: int = VIEW_BYTES_MAX,
) -> MessagePage | None:
    """Return the details of a message; None = it is unknown.

    Args:
        reference: a row number or a redelivery id.
        uid: of the store; see `StoreState`.
        view: decodes a message for people.
        acting: the rules; None = not evaluated.
        lying: reads messages in a final queue; None = they are not read.
        max_bytes: maximum bytes of a body to show.
    """
    story = read_story(schedule, reference, uid)
    if story is None:
        return None
    redelivery_id = story.redelivery_id

    def history() -> Sequence[AnyEvent]:
        return schedule.history(redelivery_id)

    death = last_death(story.history, kept_message(schedule, story.rows))
    named = [row for row in story.rows if str(row.id) == reference]
    row = next(iter(named or story.rows), None)
    looks, unseen = None, ""
    try:
        looks = None if row is None else _view_of(schedule, row, view, lying, max_bytes)
    except BrokerError as error:
        unseen = str(error)
    life = read_life(schedule, history, now_ms, OperationPace().window_ms)
    originals = list(enumerate(schedule.originals(redelivery_id)))
    return MessagePage(
        redelivery_id=redelivery_id,
        rows=[shown_row(one) for one in story.rows],
        # Why else none: it has just left.
        row=row if row is not None and (looks is not None or row.is_in_final_queue) else None,
        life=_with_short_causes(life[-LIFE_MAX:]),
        life_left_out=max(0, len(life) - LIFE_MAX),
        originals=[
            OriginalView(
                number=number,
                row_id=original.row_id,
                edited_at_ms=original.edited_at_ms,
                actor=original.actor,
                view=view(original.encoding, original.message, max_bytes),
            )
            for number, original in originals[-ORIGINALS_MAX:]
        ],
        view=looks,
        unseen=unseen,
        edit_lock="it waits no longer" if row is None else edit_lock(row),
        forecast=None if acting is None or death is None else acting.forecast(death),
        rules="" if acting is None or death is None else acting.source_at(death.destination),
    )


def _view_of(
    schedule: Schedule,
    row: RowView,
    view: ViewMessage,
    lying: ReadLying | None,
    max_bytes: int,
) -> MessageView | None:
    """Return the content of a row's message; None = its bytes are not here.

    Raises:
        BrokerError: it lies in its final queue, and the broker does not show it.
    """
    if row.is_in_final_queue and lying is None:
        return None
    if row.size_bytes > VIEWED_BYTES_MAX:
        return too_large_to_show(row.size_bytes)
    if row.is_in_final_queue and lying is not None:
        return view(*lying(row), max_bytes)
    message = schedule.message(row.id)
    return None if message is None else view(row.encoding, message, max_bytes)


def too_large_to_show(size_bytes: int) -> MessageView:
    """Return the view of a message that is larger than `VIEWED_BYTES_MAX`."""
    what = f"larger than {VIEWED_BYTES_MAX} bytes: download it to see its content"
    return MessageView(
        wire="",
        body=BodyView(kind=BodyKind.EMPTY, size_bytes=size_bytes, is_cut=True, locked=what),
        size_bytes=size_bytes,
        problems=(what,),
    )


def _with_short_causes(life: Sequence[Moment]) -> list[Moment]:
    """Return moments of which all but the latest deaths have short causes."""
    left, found = CAUSES_BYTES_MAX, []
    for moment in reversed(life):
        event = moment.event
        if isinstance(event, Received) and event.cause is not None:
            cause = bounded_cause(event.cause, KEPT_BYTES_MAX if left > 0 else ROW_BYTES_MAX)
            left -= len(cause)
            event = msgspec.structs.replace(event, cause=cause)
            moment = msgspec.structs.replace(moment, event=event)  # noqa: PLW2901 - a copy
        found.append(moment)
    return found[::-1]


def original_message(schedule: Schedule, reference: str, uid: str, number: int) -> bytes | None:
    """Return the bytes that a message had before an edit; None = none.

    Args:
        reference: a row number or a redelivery id.
        uid: of the store; see `StoreState`.
        number: as `OriginalView.number`.
    """
    story = read_story(schedule, reference, uid)
    originals = [] if story is None else schedule.originals(story.redelivery_id)
    return originals[number].message if 0 <= number < len(originals) else None


def edit_lock(row: RowView) -> str | None:
    """Return why the message of a row can't be edited now; None = it may be."""
    if row.in_flight:
        return "it is being sent"
    if row.is_in_final_queue:
        return f"it lies in {row.goes_to}, from where an edit takes it back first"
    if row.is_final:
        return "it goes to its final dead-letter queue as it died"
    return None


def is_typable(text: str) -> bool:
    """Return whether a browser's form returns a text unchanged, line ends aside."""
    return _MANGLED.search(text) is None


def as_typed(typed: str, shown: str) -> str:
    """Return the text of a form's field as the person meant it.

    Browsers send every line end of a form as CR LF; where none was shown, LF was meant.
    """
    return typed if "\r\n" in shown else typed.replace("\r\n", "\n")


def try_edit(
    schedule: Schedule, row_id: int, change: MessageEdit, edit: EditMessage, view: ViewMessage
) -> MessageView:
    """Return the edited message without storing it.

    Raises:
        ActionRefused: it can't be edited now.
        EditRefused: the edit can't be made.
    """
    row, message = _editable(schedule, row_id)
    return view(row.encoding, edit(row.encoding, message, change), EDIT_BYTES_MAX)


def edit_and_retry(
    schedule: Schedule,
    row_id: int,
    change: MessageEdit,
    edit: EditMessage,
    *,
    now_ms: int,
    actor: str,
    reason: str = "",
    edits: int | None = None,
) -> Operation:
    """Change a message and re-send it now; the original stays in `Ledger.originals`.

    Promise: if the process dies inside, the message is unchanged, or edited and still waiting; the
    operation may have begun. A half-edited message is never sent.

    Args:
        row_id: where it waits.
        edit: makes the change.
        actor: the person or program that acts.
        reason: why, in the person's words.
        edits: how many edits of it the person has seen; refused if there are more now. None = not
            checked.

    Raises:
        ActionRefused: it can't be edited now, or the edit changes nothing.
        EditRefused: the edit can't be made.
    """
    row, message = _editable(schedule, row_id)
    if edits is not None and len(schedule.originals(row.redelivery_id)) > edits:
        raise ActionRefused(f"message {row_id} was edited by another person: look again")
    wish = checked(
        Wish(
            action=Action.RETRY,
            selection=Selection(rows=RowFilter(ids=(row_id,))),
            actor=actor,
            reason=reason,
            expected=1,
        )
    )
    edited = edit(row.encoding, message, change)
    if edited == message:
        raise ActionRefused("the edit changes nothing; to send it as it is, retry it")
    if row.recall is Recall.RETURN:
        # Why: it would be put back into its final queue before the operation begins.
        fetch(schedule, row_id, now_ms, actor)
        _editable(schedule, row_id)
    event = Edited(
        at_ms=now_ms,
        id=row.id,
        redelivery_id=row.redelivery_id,
        destination=row.destination,
        actor=actor,
    )
    if not schedule.replace_message(row.id, message, edited, event, actor):
        raise ActionRefused(
            f"message {row_id} was just sent, or changed by another action: look again"
        )
    audit.write(
        "edit-message",
        reason=reason,
        message=row.redelivery_id,
        before={"sha256": sha256(message).hexdigest()},
        after={"sha256": sha256(edited).hexdigest(), **_edited_parts(change)},
    )
    return begin(schedule, wish, now_ms)


def _edited_parts(change: MessageEdit) -> dict[str, object]:
    """Return the names of the fields that an edit changes, without their values."""
    return {
        "body": change.text is not None or change.data is not None,
        "properties": [*(one.name for one in change.set_properties), *change.remove_properties],
        "entries": [*(one.name for one in change.set_entries), *change.remove_entries],
    }


def _editable(schedule: Schedule, row_id: int) -> tuple[RowView, bytes]:
    rows = schedule.list_rows(RowFilter(ids=(row_id,)), 1)
    why = edit_lock(rows[0]) if rows else None
    if why is not None:
        raise ActionRefused(f"message {row_id} can't be edited: {why}")
    message = schedule.message(row_id)
    if not rows or message is None:
        raise ActionRefused(f"message {row_id} waits no longer")
    return rows[0], message
