"""Text from strangers, with everything in it visible, so that it acts on no screen or terminal."""

import json
import re
from typing import Final

UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufe00-\ufe0e\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
)
"""Invisible characters: controls, marks of direction, selectors of variants, halves of pairs."""


def shown(text: str) -> str:
    r"""Return a text in which invisible characters are replaced by their codes.

    Line breaks and tabs stay. The result is still to be escaped.

    Example:
        >>> shown("pay\u202eexe.\x1b[31m")
        'pay‹U+202E›exe.‹U+001B›[31m'
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSEEN.sub(lambda found: f"‹U+{ord(found[0]):04X}›", text)


def shown_line(text: str) -> str:
    r"""Return a text as `shown` does; line breaks are replaced, too.

    Example:
        >>> shown_line("paid\nfailed")
        'paid‹U+000A›failed'
    """
    return shown(text).replace("\n", "‹U+000A›")


def escaped(text: str) -> str:
    r"""Return JSON of the same value in which invisible characters are escaped.

    Example:
        >>> escaped('["pay\u202e"]')
        '["pay\\u202e"]'
    """
    return UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    # Why not for all: the library leaves one control character as it is.
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(found[0])[1:-1]
