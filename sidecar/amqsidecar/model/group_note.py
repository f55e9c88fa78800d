"""Notes of people on groups of failures."""

from typing import Final

import msgspec

LATEST_KEPT: Final = 20
"""Maximum notes kept per group; the oldest are removed."""


class GroupNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note on the failures of one cause at one destination; kept as long as the group.

    The latest note of a group has its owner, its snooze and its mute, and the group it is merged
    into.

    Attributes:
        author: its writer, as events name people.
        text: may be empty where it changes owner or snooze.
        owner: the person responsible from here on; "" = none.
        snoozed_until_ms: until then it is out of sight, unless one more dies of it; 0 = it isn't.
        muted_deaths: it is out of sight until its trend is up from this number of deaths an hour;
            None = it isn't muted.
        merged_into: cause group of the same destination that it is a part of; "" = it stands alone.
    """

    destination: str
    cause_group: str
    at_ms: int
    author: str
    text: str
    owner: str = ""
    snoozed_until_ms: int = 0
    muted_deaths: int | None = None
    merged_into: str = ""
