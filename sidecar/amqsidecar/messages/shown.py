"""Text from strangers, with invisible characters named."""

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Invisible characters: controls, marks of direction, halves of surrogate pairs."""


def shown(text: str) -> str:
    r"""Return a text with everything in it visible: what can't be seen is named.

    Line breaks and tabs stay. The result is still to be escaped.

    Example:
        >>> shown("pay\u202eexe.\x1b[31m")
        'pay‹U+202E›exe.‹U+001B›[31m'
    """
    return _UNSEEN.sub(lambda found: f"‹U+{ord(found[0]):04X}›", text)
