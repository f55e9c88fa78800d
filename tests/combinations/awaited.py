"""Rows that break the law until a known fault is mended; the list shrinks to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from combinations.axes import Note, Policy, Row

AWAITED: Final[Mapping[str, Callable[[Row], bool]]] = {
    "what a policy does not say comes from defaults, not from the live settings": (
        lambda row: row.policy is Policy.SILENT
    ),
    "a note of somebody else decides": (
        lambda row: row.note in (Note.FOREIGN_CAUSE, Note.FOREIGN_VERDICT)
    ),
}
"""By the fault: the rows that may be red for it. One of them must be, or the fault is mended."""
