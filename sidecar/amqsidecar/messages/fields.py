"""Fields of kept messages that operators name: properties, headers, values in a body.

A body is opened only for its own fields, and only up to `BODY_BYTES_MAX`. JSON is decoded only on
the path to the value. XML resolves no entities and reads no document types. Nothing raises: a field
that is missing or can't be read has no value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec
from lxml import etree

from amqsidecar.messages.kept_message import ReadProperties, chosen_properties
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import BodyKind, MessageView, lock_of

BODY_BYTES_MAX: Final = 64 * 1024
"""A longer body is not opened: its fields have no values."""

STEPS_MAX: Final = 16
"""Steps of a path into a body."""

LISTED_MAX: Final = 200
"""Fields of one message that `list_fields` returns."""

_LISTED_DEPTH: Final = 6
_TYPE_HEADERS: Final = frozenset({"JMSType", "subject", "type"})
_PARSER: Final = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, encoding="utf-8"
)
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeEncodeError)


class FieldKind(StrEnum):
    """Where a field is."""

    PROPERTY = "property"
    """An application property."""
    JMS_TYPE = "jms_type"
    """JMSType; AMQP: the subject; STOMP: the header `type`."""
    JSON = "json"
    """A value in a JSON body, by JSON Pointer (RFC 6901)."""
    XML = "xml"
    """The text of an element, or an attribute, in an XML body."""
    REDELIVERIES = "redeliveries"
    """How often the message was redelivered before this death."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field.

    Attributes:
        kind: where it is.
        name: PROPERTY: its name; JSON, XML: the path as written; else "".
        steps: of the path; JSON without escapes.
    """

    kind: FieldKind
    name: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @property
    def label(self) -> str:
        """The name beside a value."""
        return self.name or {FieldKind.JMS_TYPE: "JMSType"}.get(self.kind, str(self.kind))


def parse_field(text: str) -> Field:
    """Return the field that a text names.

    Example:
        >>> parse_field("json:/error/code").steps
        ('error', 'code')

    Raises:
        ValueError: it names no field; the message states the expected form.
    """
    kind, colon, name = text.partition(":")
    if text in (FieldKind.JMS_TYPE, FieldKind.REDELIVERIES):
        return Field(FieldKind(text))
    if kind == FieldKind.PROPERTY and name:
        return Field(FieldKind.PROPERTY, name)
    if kind not in (FieldKind.JSON, FieldKind.XML) or not colon:
        raise ValueError(
            "expected property:NAME, jms_type, json:/path, xml:/path or redeliveries, "
            f"found {text!r}"
        )
    steps = name.split("/")[1:]
    if not name.startswith("/") or not all(steps) or len(steps) > STEPS_MAX:
        raise ValueError(
            f"expected a path of 1 to {STEPS_MAX} steps such as {kind}:/error/code, found {text!r}"
        )
    if kind == FieldKind.JSON:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    elif any(step.startswith("@") for step in steps[:-1]) or steps[-1] == "@":
        raise ValueError(f"an attribute ends a path, such as xml:/order/@kind, found {text!r}")
    return Field(FieldKind(kind), name, tuple(steps))


class OpenMessage:
    """A kept message that is opened as far as it is asked."""

    __slots__ = ("_body", "_encoding", "_head", "_message")

    def __init__(self, encoding: str, message: bytes) -> None:
        self._encoding = encoding
        self._message = message
        self._head: MessageView | None = None
        self._body: tuple[str] | None = None

    def property_of(self, name: str) -> str | None:
        """Return an application property as text; None = it has none of this name."""
        return (_reader(name)(self._encoding, self._message) or {}).get(name)

    def header_of(self, name: str) -> str | None:
        """Return a header by its name on the wire, such as JMSPriority; None = it has none."""
        return next((one.value for one in self._opened().headers if one.name == name), None)

    @property
    def jms_type(self) -> str | None:
        """JMSType, on every wire; None = it has none."""
        found = (one.value for one in self._opened().headers if one.name in _TYPE_HEADERS)
        # Why: Core has it among the properties.
        return next(found, None) or self.property_of("JMSType")

    def body(self) -> str:
        """Return the body if it is a text, or bytes that are one; "" = it is not, or too long."""
        if self._body is None:
            found = ""
            if len(self._message) <= 2 * BODY_BYTES_MAX:
                view = view_message(self._encoding, self._message, BODY_BYTES_MAX).body
                found = "" if view.is_cut or view.kind is BodyKind.JAVA else view.text
            self._body = (found,)
        return self._body[0]

    def mentions(self, part: str) -> bool:
        """Return whether a property or the first `BODY_BYTES_MAX` of the body contain a text.

        Args:
            part: the text, case-folded; case makes no difference.
        """
        view = view_message(self._encoding, self._message, BODY_BYTES_MAX)
        texts = [one.value for one in (*view.properties, *view.body.entries)]
        if view.body.kind is not BodyKind.JAVA:
            texts.append(view.body.text)
        return any(part in text.casefold() for text in texts)

    def value(self, field: Field) -> str | None:
        """Return the value of a field; None = it has none. REDELIVERIES is not in a message."""
        match field.kind:
            case FieldKind.PROPERTY:
                return self.property_of(field.name)
            case FieldKind.JMS_TYPE:
                return self.jms_type
            case FieldKind.JSON:
                return _json_value(self.body(), field.steps)
            case FieldKind.XML:
                return _xml_value(self.body(), field.steps)
            case FieldKind.REDELIVERIES:
                return None

    def list_fields(self) -> dict[str, str]:
        """Return the message's fields by their text, with their values; `LISTED_MAX` at most.

        Leaves out fields that sidecar or broker write, and fields over six steps deep in a body.
        """
        found: dict[str, str] = {}
        if (jms_type := self.jms_type) is not None:
            found[str(FieldKind.JMS_TYPE)] = jms_type
        for one in self._opened().properties:
            if lock_of(one.name) is None and not one.depth and not one.is_cut:
                found[f"{FieldKind.PROPERTY}:{one.name}"] = one.value
        text = self.body()
        begin = text.lstrip()[:1]
        leaves = _json_leaves(text) if begin == "{" else _xml_leaves(text) if begin == "<" else ()
        for name, value in leaves:
            if len(found) == LISTED_MAX:
                break
            found.setdefault(name, value)
        return found

    def _opened(self) -> MessageView:
        if self._head is None:
            self._head = view_message(self._encoding, self._message, 0)
        return self._head


@lru_cache(maxsize=1_024)
def _reader(name: str) -> ReadProperties:
    return chosen_properties((name,))


def _json_value(text: str, steps: Sequence[str]) -> str | None:
    try:
        found = _begin_json(text)
        for step in steps:
            found = _members(found).get(step, b"")
            if not found:
                return None
        return _json_text(found)
    except _UNREADABLE:
        return None


def _begin_json(text: str) -> bytes:
    return text.strip().encode() if text.lstrip()[:1] in ("{", "[") else b""


def _members(data: bytes) -> dict[str, bytes]:
    """Return the encoded members of an object by name, or of a list by index."""
    if data[:1] == b"{":
        return {key: bytes(one) for key, one in _decode_object(data).items()}
    if data[:1] == b"[":
        return {str(index): bytes(one) for index, one in enumerate(_decode_list(data))}
    return {}


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _json_text(data: bytes) -> str | None:
    data = data.strip()
    if data[:1] in (b"{", b"["):
        return None
    # Why not decoded: a number keeps its digits.
    return msgspec.json.decode(data, type=str) if data[:1] == b'"' else data.decode()


def _json_leaves(text: str) -> Iterator[tuple[str, str]]:
    try:
        yield from _leaves_of(_begin_json(text), "", 0)
    except _UNREADABLE:
        return


def _leaves_of(data: bytes, path: str, depth: int) -> Iterator[tuple[str, str]]:
    for key, part in _members(data).items():
        name = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if part[:1] == b"{" and depth < _LISTED_DEPTH:
            yield from _leaves_of(part, name, depth + 1)
        elif key and (value := _json_text(part)) is not None:
            yield f"{FieldKind.JSON}:{name}", value


def _root_of(text: str) -> etree._Element | None:
    if not text.lstrip().startswith("<") or "<!DOCTYPE" in text:
        return None
    try:
        return etree.fromstring(text.strip().encode(), _PARSER)
    except (etree.LxmlError, ValueError):
        return None


def _local(element: etree._Element) -> str:
    """Return the name of an element without its namespace; "" = it is a comment or the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _xml_value(text: str, steps: Sequence[str]) -> str | None:
    root = _root_of(text)
    if root is None or _local(root) != steps[0]:
        return None
    element = root
    for step in steps[1:]:
        if step.startswith("@"):
            found = element.get(step[1:])
            return None if found is None else str(found)
        below = next((one for one in element if _local(one) == step), None)
        if below is None:
            return None
        element = below
    return element.text


def _xml_leaves(text: str) -> Iterator[tuple[str, str]]:
    root = _root_of(text)
    if root is not None:
        yield from _leaves_below(root, f"/{_local(root)}", 0)


def _leaves_below(element: etree._Element, path: str, depth: int) -> Iterator[tuple[str, str]]:
    for name, value in element.attrib.items():
        if "}" not in (text := str(name)):
            yield f"{FieldKind.XML}:{path}/@{text}", str(value)
    below = [one for one in element if _local(one)]
    if not below and element.text:
        yield f"{FieldKind.XML}:{path}", element.text
    if depth < _LISTED_DEPTH:
        for one in below:
            yield from _leaves_below(one, f"{path}/{_local(one)}", depth + 1)
