"""Bodies as people read them: indented texts, dumps of bytes, names of Java classes.

Nothing is resolved, run or unpacked here: entities, references and serialised objects stay text or
bytes. Every input gives a value.
"""

import re
from typing import Final

import msgspec
from lxml import etree

from amqsidecar.formats.openwire_properties import decode_text
from amqsidecar.model.message import DEPTH_MAX, BodyKind, BodyView

JAVA_STREAM: Final = b"\xac\xed\x00\x05"
"""The first bytes of every serialised Java object."""

JAVA_OBJECT_TYPE: Final = "application/x-java-serialized-object"

JAVA_LOCK: Final = "a serialised Java object is never read or made here"

_HEX_BYTES_MAX: Final = 4096
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DECLARATION = re.compile(r"\s*(<\?xml\s[^<>]{0,200}\?>)\s*")
# Source: Java Object Serialization Specification, 6.4.2.
_CLASS_DESCRIPTION, _PROXY = 0x72, 0x7D
_DESCRIBED = frozenset((0x73, 0x75, 0x76, 0x7E))  # An object, an array, a class, an enum.
_OTHERS = {0x70: "null", 0x74: "java.lang.String", 0x7C: "java.lang.String"}
_PLAIN_VALUES = frozenset((0x77, 0x7A))
# Why a string need not end: else each quote of a text without an end is read again.
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}
_TOO_DEEP: Final = f"boolean({'/*' * (DEPTH_MAX + 1)})"
_PRETTY_CHARACTERS_MIN: Final = 64 * 1024
_PARSER = etree.XMLParser(
    resolve_entities=False,
    no_network=True,
    load_dtd=False,
    huge_tree=False,
    remove_blank_text=True,
    encoding="utf-8",
)


def text_body(encoded: bytes, max_bytes: int, content_type: str = "") -> BodyView:
    """Return the view of a body that is a text.

    Args:
        encoded: in UTF-8, or in Java's form of it.
        max_bytes: maximum bytes to show.
        content_type: as the message says.
    """
    text, is_cut = _beginning(encoded, max_bytes)
    kind, pretty = (BodyKind.TEXT, "") if is_cut else indented(text)
    return BodyView(
        kind=kind,
        content_type=content_type,
        size_bytes=len(encoded),
        is_cut=is_cut,
        text=text,
        pretty=pretty,
    )


def bytes_body(data: bytes, max_bytes: int, content_type: str = "") -> BodyView:
    """Return the view of a body that is bytes; arguments as of `text_body`."""
    size_bytes, data = len(data), data[:max_bytes]
    is_cut = len(data) < size_bytes
    is_of_java = is_java(data, content_type)
    text = None if is_of_java else text_of_bytes(data, is_cut=is_cut)
    kind, pretty = BodyKind.JAVA if is_of_java else BodyKind.BYTES, ""
    if text and not is_cut:
        found, pretty = indented(text)
        if found is not BodyKind.TEXT or content_type.startswith("text/"):
            kind = found
    return BodyView(
        kind=kind,
        content_type=content_type,
        size_bytes=size_bytes,
        is_cut=is_cut or (text is None and len(data) > _HEX_BYTES_MAX),
        text=text or "",
        pretty=pretty,
        hex=hex_dump(data),
        java_class=java_class(data) if is_of_java else "",
        locked=JAVA_LOCK if is_of_java else None,
    )


def is_java(data: bytes, content_type: str = "") -> bool:
    """Return whether bytes are a serialised Java object, or the message says so."""
    return data.startswith(JAVA_STREAM) or content_type == JAVA_OBJECT_TYPE


def text_of_bytes(data: bytes, *, is_cut: bool) -> str | None:
    """Return bytes as a text if they are UTF-8 without control characters; None = they aren't."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    return None if _CONTROLS.search(text) else text


def indented(text: str) -> tuple[BodyKind, str]:
    """Return whether a text is JSON, XML or neither, and the text with indentation.

    Tokens are unchanged: numbers keep their digits, names their order. A text that is neither JSON
    nor XML, has a document type, or is nested too deep, is plain text.
    """
    begin = text.lstrip()[:1]
    if begin in ("{", "["):
        kind, pretty = BodyKind.JSON, _indented_json(text)
    elif begin == "<":
        kind, pretty = BodyKind.XML, _indented_xml(text)
    else:
        return BodyKind.TEXT, ""
    if pretty is None:
        return BodyKind.TEXT, ""
    # Why: many short values deep down are mostly spaces.
    return kind, pretty if len(pretty) <= 4 * len(text) + _PRETTY_CHARACTERS_MIN else ""


def _indented_json(text: str) -> str | None:
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += _STEPS.get(found[0], 0)
        if depth > DEPTH_MAX:
            return None
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _indented_xml(text: str) -> str | None:
    if "<!DOCTYPE" in text:
        return None
    try:
        tree = etree.fromstring(text.encode(), _PARSER).getroottree()
        if tree.xpath(_TOO_DEEP):
            return None
        pretty = str(etree.tostring(tree, pretty_print=True, encoding="unicode"))
    except (etree.LxmlError, ValueError):
        return None
    declaration = _DECLARATION.match(text)
    return pretty if declaration is None else f"{declaration[1]}\n{pretty}"


def _beginning(data: bytes, max_bytes: int) -> tuple[str, bool]:
    """Return the text of UTF-8, Java's form of it too, or its beginning, and whether it was cut."""
    if len(data) <= max_bytes:
        return decode_text(data), False
    end = max_bytes
    # Why 3: UTF-8 has at most three continuation bytes.
    while end > max(0, max_bytes - 3) and data[end] & 0xC0 == 0x80:
        end -= 1
    return decode_text(data[:end]), True


def hex_dump(data: bytes) -> str:
    """Return the first bytes as lines of an offset, 16 bytes in hexadecimal, and their ASCII."""
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES_MAX), 16):
        piece = data[at : at + 16]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def java_class(data: bytes) -> str:
    """Return the class that a serialised Java object says it is; "" = it doesn't say.

    Only the head of the stream is looked at.
    """
    if not data.startswith(JAVA_STREAM) or len(data) < 5:
        return ""
    kind = data[4]
    if kind in _DESCRIBED:
        return _described(data[5:])
    return "(plain values)" if kind in _PLAIN_VALUES else _OTHERS.get(kind, "")


def _described(data: bytes) -> str:
    if data[:1] == bytes((_PROXY,)):
        # A count of interfaces, then the name of the first.
        size = int.from_bytes(data[5:7], "big")
        name = data[7 : 7 + size]
        return f"(a proxy of {decode_text(name)})" if size == len(name) > 0 else ""
    size = int.from_bytes(data[1:3], "big")
    name = data[3 : 3 + size]
    if data[:1] != bytes((_CLASS_DESCRIPTION,)) or size != len(name):
        return ""
    return decode_text(name)
