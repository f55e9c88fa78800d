"""Cells of CSV (RFC 4180) that neither a spreadsheet nor a terminal acts on."""

import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

# Why: spreadsheets look behind blanks, and those of Unicode are some, too. Where semicolons part
# cells, a quoted text is none, and its pieces are cells.
_FORMULA: Final = re.compile(
    r"""(?:^|(?<=[;\t\r\n]))(?=[\s"\ufeff\u200b-\u200f]*+[=+\-@＝＋－＠])"""
)
_LINE_FIRST: Final = ("\t", "\r", "\n")


def cell(value: object) -> str:
    r"""Return what stands in a cell; no program takes a text of a stranger for a formula.

    Nor does a terminal act on it: control characters but line ends and tabs are written as text.

    Example:
        >>> cell("=HYPERLINK(0)"), cell(-5), cell(None), cell("\x1b[2J")
        ("'=HYPERLINK(0)", '-5', '', '\\x1b[2J')
    """
    if not isinstance(value, str):
        return "" if value is None else str(value)
    value = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", value)
    value = _FORMULA.sub("'", value)
    return f"'{value}" if value.startswith(_LINE_FIRST) else value
