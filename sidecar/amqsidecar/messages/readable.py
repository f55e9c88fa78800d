"""Common parts of the views of all wires: problems, entries and headers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from amqsidecar.errors import UndecodableMessage
from amqsidecar.messages.body_text import bytes_body
from amqsidecar.messages.slots import Slot, clip, shown
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    FIELDS_MAX,
    BodyKind,
    BodyView,
    MessageView,
    TypedValue,
    ValueType,
)
from amqsidecar.model.property_locks import HEADER, lock_of

STREAM_LOCK: Final = "the values of a StreamMessage can't be changed"
UNREADABLE_BODY: Final = BodyView(kind=BodyKind.EMPTY, locked="it can't be read")

_Read = TypeVar("_Read")


def undecodable(
    wire: str, message: bytes, max_bytes: int, cause: UndecodableMessage
) -> MessageView:
    """Return the view of a message whose parts can't be found: its bytes, and why."""
    body = bytes_body(message[:max_bytes], len(message))
    return MessageView(
        wire=wire,
        body=replace(body, locked="it can't be parsed"),
        size_bytes=len(message),
        problems=(f"it can't be parsed: {cause}",),
    )


def jms_view(
    wire: str,
    kind: str,
    headers: Iterable[TypedValue],
    properties: Sequence[Slot],
    body: BodyView,
    size_bytes: int,
    problems: Sequence[str],
) -> MessageView:
    """Return the view of a message of a wire that carries the types of JMS as they are.

    Args:
        wire: its name.
        kind: the JMS type, such as `TextMessage`; decides how the body can be edited.
        headers: all that are shown.
        properties: all that there are.
        body: its view.
        size_bytes: of the whole message.
        problems: what can't be read, and why.
    """
    is_open = body.locked is None
    return MessageView(
        wire=wire,
        kind=kind,
        headers=tuple(headers),
        properties=shown(properties, lock_of),
        left_out=max(0, len(properties) - FIELDS_MAX),
        body=body,
        size_bytes=size_bytes,
        problems=tuple(problems),
        property_types=EDITABLE_TYPES,
        entry_types=EDITABLE_TYPES if is_open and kind == "MapMessage" else (),
        body_as_bytes=is_open and kind == "BytesMessage",
        body_as_text=is_open and kind in ("TextMessage", "BytesMessage"),
    )


def attempt(read: Callable[[], _Read], otherwise: _Read, what: str, problems: list[str]) -> _Read:
    """Return the result of `read`; if it can't be read, add a problem and return `otherwise`.

    Args:
        read: raises `UndecodableMessage` for what can't be read.
        otherwise: the value to go on with.
        what: is read, as the problem names it.
        problems: gets the problem.
    """
    try:
        return read()
    except UndecodableMessage as error:
        problems.append(f"{what} can't be read: {error}")
        return otherwise


def entries_body(entries: Sequence[Slot], size_bytes: int, *, is_map: bool) -> BodyView:
    """Return the view of the body of a MapMessage, or else of a StreamMessage."""
    lock = None if is_map else STREAM_LOCK
    return BodyView(
        kind=BodyKind.MAP if is_map else BodyKind.STREAM,
        size_bytes=size_bytes,
        is_cut=len(entries) > FIELDS_MAX,
        entries=shown(entries, lambda _name: lock),
        locked=lock,
    )


def jms_headers(
    texts: Mapping[str, str | None], numbers: Mapping[str, tuple[ValueType, int]]
) -> Iterator[TypedValue]:
    """Yield headers by their JMS names; texts that are null and numbers that are 0 are left out.

    The priority is always among them.
    """
    for name, text in texts.items():
        if text is not None:
            yield TypedValue(name=name, type=ValueType.STRING, value=clip(text), locked=HEADER)
    for name, (type_, number) in numbers.items():
        if number or name == "JMSPriority":
            yield TypedValue(name=name, type=type_, value=str(number), locked=HEADER)
