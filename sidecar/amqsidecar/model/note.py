"""What people write down about a group of failures."""

from typing import Final

import msgspec

LATEST_KEPT: Final = 20
"""So many notes of a group are kept; those before them go."""


class GroupNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note on the failures of one cause at one destination; kept as long as the group.

    Attributes:
        author: who wrote it, as events name people.
    """

    destination: str
    cause_group: str
    at_ms: int
    author: str
    text: str
