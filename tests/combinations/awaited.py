"""Rows that break the law until a known fault is mended; the list shrinks to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from combinations.axes import Note, Place, Policy, Row

AWAITED: Final[Mapping[str, Callable[[Row], bool]]] = {
    "a policy that does not say everything destroys what the broker keeps": (
        lambda row: row.policy in (Policy.SILENT, Policy.PARTIAL) and not row.wire.is_classic
    ),
    "a redirect to a topic without subscribers": (
        lambda row: row.wire.is_classic and row.place is Place.NO_SUBSCRIBER
    ),
    "a redirect to the queue of the notes": lambda row: row.place is Place.OWN,
    "a note of somebody else decides": (
        lambda row: row.note in (Note.FOREIGN_CAUSE, Note.FOREIGN_VERDICT)
    ),
}
"""By the fault: the rows that may be red for it. One of them must be, or the fault is mended."""
