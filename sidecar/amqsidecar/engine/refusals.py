"""Sends that the broker refused by themselves, while others in the transaction got through."""

from collections.abc import Collection, Sequence
from typing import Final

REFUSALS_BEFORE_PARKING: Final = 3
"""After this many refusals while later messages got through, the message itself is at fault."""

COUNTED_MAX: Final = 10_000
"""Maximum messages whose refusals are counted; beyond, all counts restart."""


class Refusals:
    """Counts how often each message was refused; the key is the number of its row."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, key: int, *, is_its_own: bool) -> int:
        """Return how often a message was refused for its own sake, this time included.

        Args:
            key: the number of its row.
            is_its_own: the message was refused, and not its destination.
        """
        if len(self._counts) >= COUNTED_MAX and key not in self._counts:
            self._counts.clear()
        count = self._counts[key] = self._counts.get(key, 0) + is_its_own
        return count

    def of(self, key: int) -> int:
        """Return how often a message was refused for its own sake."""
        return self._counts.get(key, 0)

    def forget(self, key: int) -> None:
        """Take note that a message was sent or parked."""
        self._counts.pop(key, None)


def refused_before_others(destinations: Sequence[str], refused: Collection[int]) -> frozenset[int]:
    """Return the refused sends after which another one to the same destination got through.

    If all later sends are refused as well, the destination is full.

    Args:
        destinations: of all sends, in their order.
        refused: the positions of the refused sends.
    """
    last_taken = {
        destination: index for index, destination in enumerate(destinations) if index not in refused
    }
    return frozenset(one for one in refused if one < last_taken.get(destinations[one], -1))
