"""Cells of CSV (RFC 4180) that neither a spreadsheet nor a terminal acts on."""

import re
from typing import Final

from amqsidecar.model.shown import UNSEEN

# Why: spreadsheets look behind blanks, and those of Unicode are some, too. Where semicolons part
# cells, a quoted text is none, and its pieces are cells.
_FORMULA: Final = re.compile(
    r"""(?:^|(?<=[;\t\r\n]))(?=[\s"\ufeff\u200b-\u200f]*+[=+\-@＝＋－＠])"""
)
_LINE_FIRST: Final = ("\t", "\r", "\n")


def _name(found: re.Match[str]) -> str:
    return "\r" if found[0] == "\r" else found[0].encode("unicode_escape").decode()


def cell(value: object) -> str:
    r"""Return what stands in a cell; no program takes a text of a stranger for a formula.

    Nor does a terminal act on it: what can't be seen, but for line ends and tabs, is named.

    Example:
        >>> cell("=HYPERLINK(0)"), cell(-5), cell(None), cell("\x1b[2J")
        ("'=HYPERLINK(0)", '-5', '', '\\x1b[2J')
    """
    if not isinstance(value, str):
        return "" if value is None else str(value)
    value = _FORMULA.sub("'", value)
    value = f"'{value}" if value.startswith(_LINE_FIRST) else value
    return UNSEEN.sub(_name, value)
