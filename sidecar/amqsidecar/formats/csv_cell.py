"""Cells of CSV (RFC 4180) that neither a spreadsheet nor a terminal acts on."""

import re
from typing import Final

from amqsidecar.model.shown import UNSEEN

# Why: spreadsheets skip leading blanks, Unicode's too. Where semicolons separate cells, quotes
# don't protect a text: its pieces become cells.
_FORMULA: Final = re.compile(
    r"""(?:^|(?<=[;\t\r\n]))(?=[\s"\ufeff\u200b-\u200f]*+[=+\-@＝＋－＠])"""
)
_LINE_FIRST: Final = ("\t", "\r", "\n")


def _name(found: re.Match[str]) -> str:
    return "\r" if found[0] == "\r" else found[0].encode("unicode_escape").decode()


def cell(value: object) -> str:
    r"""Return the text of a cell, which no program takes for a formula: input is untrusted.

    For terminals, invisible characters are escaped, except line ends and tabs.

    Example:
        >>> cell("=HYPERLINK(0)"), cell(-5), cell(None), cell("\x1b[2J")
        ("'=HYPERLINK(0)", '-5', '', '\\x1b[2J')
    """
    if not isinstance(value, str):
        return "" if value is None else str(value)
    value = _FORMULA.sub("'", value)
    value = f"'{value}" if value.startswith(_LINE_FIRST) else value
    return UNSEEN.sub(_name, value)
