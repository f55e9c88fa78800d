"""Reads the files of java.util.Properties: source `Properties.load`."""

import re
from collections.abc import Iterator
from typing import Final

_LOGICAL: Final = re.compile(
    r"[ \t\f\n]*+(?:[#!][^\n]*|((?:[^\\\n]|\\\n[ \t\f]*|\\.|\\\Z)*))", re.DOTALL
)
_CONTINUED: Final = re.compile(r"\\(?:\n[ \t\f]*|(.)|\Z)", re.DOTALL)
_PROPERTY: Final = re.compile(r"((?:[^\\ \t\f:=]|\\.)*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that holds a property, its continuations joined, and its number."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    number, end = 1, 0
    for found in _LOGICAL.finditer(text):
        if found[1]:
            number += text.count("\n", end, found.start(1))
            end = found.start(1)
            yield number, _CONTINUED.sub(lambda one: one[0] if one[1] else "", found[1])


def split_property(line: str) -> tuple[str, str]:
    """Return the key and the value of a logical line, without escapes."""
    key, value = _PROPERTY.fullmatch(line).groups()  # type: ignore[union-attr] # matches all
    return _unescape(key), _unescape(value)


def read_properties(text: str) -> dict[str, str]:
    """Return the properties of a text."""
    return dict(split_property(line) for _, line in logical_lines(text))


def _unescape(text: str) -> str:
    # Why UTF-16: two escapes write one character beyond its first plane.
    units = _ESCAPE.sub(_unescaped, text).encode("utf-16", "surrogatepass")
    return units.decode("utf-16", "replace")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)
