"""Decides which parts of messages each role sees, and masks the rest."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
import regex

from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.authentication.settings import Bodies
from amqsidecar.http.rights import VIEWING, Right
from amqsidecar.model.cause import group_number
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.message import BodyView, MessageEdit, MessageView, TypedValue
from amqsidecar.model.operation import Operation, Selection
from amqsidecar.operations.message import MessagePage
from amqsidecar.operations.timeline import describe_all

MASK: Final = "***"
MASKED: Final = "parts of it are masked"
HIDDEN: Final = "this role may not see the content of messages (http.bodies)"

_GROUPS: Final = frozenset({"cause_group", "former_group", "merged_into"})
_TEXTS: Final = frozenset(
    {"cause", "cause_contains", "consumer", "contains", "reason", "said", "state_reason", "text"}
)
"""Fields of all structs and answers that senders, brokers and people write as they like."""

StructT = TypeVar("StructT", bound=msgspec.Struct)

_TIMEOUT_S: Final = 0.2

_REMEMBERED: Final = 4_096
_REMEMBERED_LENGTH: Final = 1_024
"""Of longer texts there are few on a page."""


class Masking:
    """The rules; they are applied to all message content in answers.

    `group_key` is that of the schedule, set when it opens.

    Any thread may ask, but that of the server, which awaits `answer`: a pattern may take its time.
    """

    def __init__(self, bodies: Bodies = Bodies.OPERATORS, patterns: Sequence[str] = ()) -> None:
        self._bodies = bodies
        self.group_key = b""
        self._patterns = [regex.compile(pattern) for pattern in patterns]
        # Why: lists show the same causes again and again, also those that take all of the time.
        self._remembered = lru_cache(_REMEMBERED)(self._masked)

    def may_see(self, caller: Caller, destination: str | None = None) -> bool:
        """Whether a caller may see the content of messages of a destination; None = of all."""
        match self._bodies:
            case Bodies.NOBODY:
                return False
            case Bodies.OPERATORS if caller.rights == VIEWING:
                return False
            case _:
                return caller.rights.allows(Right.BODIES, destination)

    @property
    def shows_any(self) -> bool:
        """Whether the content of messages is shown to anybody."""
        return self._bodies is not Bodies.NOBODY

    @property
    def has_patterns(self) -> bool:
        """Whether parts of messages are shown to nobody."""
        return bool(self._patterns)

    def may_probe(self, caller: Caller) -> bool:
        """Whether a caller may see everything in messages, so that no question reveals more."""
        return self.may_see(caller) and not self._patterns

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text with all matches masked; the whole text if matching takes too long.

        Of a text that is cut, an end that a pattern may begin with is blacked out, too.
        """
        if not self._patterns:
            return text
        mask = self._remembered if len(text) <= _REMEMBERED_LENGTH else self._masked
        return mask(text, is_cut)

    def _masked(self, text: str, is_cut: bool) -> str:
        try:
            for pattern in self._patterns:
                text = pattern.sub(MASK, text, timeout=_TIMEOUT_S)
                if is_cut:
                    found = pattern.finditer(text, partial=True, timeout=_TIMEOUT_S)
                    starts = [one.start() for one in found if one.partial and one.group()]
                    text = text[: starts[0]] + MASK if starts else text
        except TimeoutError:
            return MASK
        return text

    def json(self, value: Any) -> str:
        """Return a value as JSON, masked as a whole and in each of its texts."""
        return self.text(msgspec.json.encode(self._value_of_json(value)).decode())

    def _value_of_json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value_of_json(one) for name, one in value.items()}
        if isinstance(value, list):
            return [*map(self._value_of_json, value)]
        return self.text(value) if isinstance(value, str) else value

    def group(self, cause_group: str, destination: str | None) -> str:
        """Return the name of a group in an address: its cause, or its number if parts are masked.

        The number is of the form that `with_numbered` understands.
        """
        masked = self.text(cause_group)
        if masked == cause_group or destination is None:
            return masked
        return f"#{group_number(self.group_key, destination, cause_group)}"

    def struct(self, struct: StructT, *, has_groups: bool = False) -> StructT:
        """Return a row, an operation or the like with its texts masked.

        The names of groups stay, for `group`, unless `has_groups`.
        """
        if not self._patterns:
            return struct
        names = (_TEXTS | _GROUPS if has_groups else _TEXTS) & {*struct.__struct_fields__}
        found = {name: getattr(struct, name) for name in names}
        masked = {name: self.text(one) for name, one in found.items() if isinstance(one, str)}
        return msgspec.structs.replace(struct, **masked)

    def selection(self, selection: Selection) -> Selection:
        """Return a selection that shows nothing that is masked."""
        rows = self.struct(selection.rows)
        if rows.cause_group is not None:
            group = self.group(rows.cause_group, rows.destination)
            rows = msgspec.structs.replace(rows, cause_group=group)
        properties = tuple((name, self.text(value)) for name, value in selection.properties)
        return msgspec.structs.replace(self.struct(selection), rows=rows, properties=properties)

    def operation(self, operation: Operation) -> Operation:
        """Return an operation that shows nothing that is masked."""
        return msgspec.structs.replace(
            self.struct(operation),
            selection=self.selection(operation.selection),
            state_changes=tuple(map(self.struct, operation.state_changes)),
        )

    async def answer(self, answer: Any) -> Any:
        """Return an answer of the API with groups and texts masked, wherever they are in it."""
        if not self._patterns:
            return answer
        return await asyncio.to_thread(self._answer, msgspec.to_builtins(answer))

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, list | tuple):
            return [self._answer(one) for one in answer]
        if not isinstance(answer, dict):
            return answer
        return {name: self._field(name, value) for name, value in answer.items()}

    def _field(self, name: str, value: Any) -> Any:
        if name in _GROUPS | _TEXTS and isinstance(value, str):
            return self.text(value)
        if name == "properties" and isinstance(value, tuple):  # Of a selection, by name and value.
            value = [one if isinstance(one, dict) else (one[0], self.text(one[1])) for one in value]
        return self._answer(value)

    def check_selection(self, selection: Selection, caller: Caller) -> None:
        """Check that a filter reveals nothing that the caller may not see.

        Raises:
            HttpRefused: it asks for properties or bodies, which are not shown to them; or it looks
                for a text, which could be a part of something masked, or for a masked property or
                cause.
        """
        if selection.looks_into_messages and not self.may_see(caller, selection.rows.destination):
            raise HttpRefused(403, HIDDEN)
        is_part = self._patterns and (selection.contains or selection.rows.cause_contains)
        named = [value for _name, value in selection.properties]
        named.append(selection.rows.cause_group or "")
        if is_part or any(self.text(value) != value for value in named):
            raise HttpRefused(403, "masked parts can't be searched (http.masked)")

    def check_edit(self, view: MessageView, change: MessageEdit, *, sees: bool) -> None:
        """Check that an edit changes nothing hidden from the caller.

        Args:
            view: the message as the caller sees it.
            change: the wanted edit.
            sees: whether the caller may see its content.

        Raises:
            HttpRefused: it changes hidden content.
        """
        if not sees:
            raise HttpRefused(403, HIDDEN)
        named = {one.name for one in change.set_properties} | {*change.remove_properties}
        entries = {one.name for one in change.set_entries} | {*change.remove_entries}
        is_body = change.text is not None or change.data is not None
        if (
            (is_body and view.body.locked == MASKED)
            or any(one.name in named and one.locked == MASKED for one in view.properties)
            or any(one.name in entries and one.locked == MASKED for one in view.body.entries)
        ):
            raise HttpRefused(403, f"masked parts can't be edited: {MASKED}")

    def message(self, view: MessageView, *, sees: bool) -> MessageView:
        """Return a message without its content, or masked; masked parts can't be edited."""
        if not sees:
            return MessageView(
                wire=view.wire,
                kind=view.kind,
                left_out=view.left_out + len(view.headers) + len(view.properties),
                body=BodyView(
                    kind=view.body.kind,
                    size_bytes=view.body.size_bytes,
                    is_cut=True,
                    locked=HIDDEN,
                ),
                size_bytes=view.size_bytes,
                problems=(HIDDEN,),
            )
        if not self._patterns:
            return view
        return msgspec.structs.replace(
            view,
            headers=self._values(view.headers),
            properties=self._values(view.properties),
            body=self._body(view.body),
        )

    def event(self, event: AnyEvent, *, sees: bool) -> AnyEvent:
        """Return an event with texts, groups and properties masked, or without properties."""
        event = self.struct(event, has_groups=True)
        if not isinstance(event, Received):
            return event
        properties = event.properties if sees else None
        if properties is not None:
            properties = {name: self.text(value) for name, value in properties.items()}
        return msgspec.structs.replace(event, properties=properties)

    def page(self, page: MessagePage, *, sees: bool) -> MessagePage:
        """Return a message and its life, as `message`; its views are masked already."""
        events = [self.event(moment.event, sees=sees) for moment in page.life]
        # Why said anew: a pattern may not fit what a line leaves of a text.
        said = describe_all(events)
        return msgspec.structs.replace(
            page,
            rows=[self.struct(row) for row in page.rows],
            row=None if page.row is None else self.struct(page.row),
            life=[
                msgspec.structs.replace(moment, event=event, said=self.text(words))
                for moment, event, words in zip(page.life, events, said, strict=True)
            ],
        )

    def _values(self, values: Sequence[TypedValue]) -> tuple[TypedValue, ...]:
        return tuple(self._value(value) for value in values)

    def _value(self, value: TypedValue) -> TypedValue:
        masked = self.text(value.value, is_cut=value.is_cut)
        if masked == value.value:
            return value
        return msgspec.structs.replace(value, value=masked, locked=value.locked or MASKED)

    def _body(self, body: BodyView) -> BodyView:
        text, entries = self.text(body.text, is_cut=body.is_cut), self._values(body.entries)
        is_masked = text != body.text or entries != body.entries
        return msgspec.structs.replace(
            body,
            text=text,
            # Why: a pattern that fits the text as it is may not fit it as it is indented.
            pretty=self.text(body.pretty) if text == body.text else "",
            entries=entries,
            # Why: in a dump no pattern finds its target.
            hex="",
            is_cut=body.is_cut or bool(body.hex),
            locked=body.locked or (MASKED if is_masked else None),
        )
