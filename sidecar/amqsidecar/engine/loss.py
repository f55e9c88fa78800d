"""Finds the send that ends a link, from the sends in progress when links were lost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GUILT_OF_PROBE = 1
"""A lost link says little of the message where the destination had ended one before: it is full."""

GUILT = 4
"""Weight of a loss when other messages had reached that destination."""

GUILT_BEFORE_PARKING = 12
"""At this sum of weights a message is parked."""

REMEMBERED_MAX = 1_000
"""Maximum destinations remembered that held up a link; the latest."""

GROWS_AFTER = 16
"""Number of full portions a destination has to take before the portion doubles."""

GROWS_AFTER_MAX = 4_096
"""The same, of one that held up links again and again."""


@dataclass
class _Share:
    """How many messages a destination gets at once.

    Attributes:
        most: the number.
        grows_after: see `GROWS_AFTER`; twice as many each time that it held up a link.
        taken: how often in a row it took `most`.
    """

    most: int
    grows_after: int
    taken: int = 0


class Losses:
    """Outlives links: cuts the sends of the next link smaller until the offender stands alone."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._guilts: dict[int, int] = {}
        self._shares: dict[str, _Share] = {}

    def limit(self, most: int) -> int:
        """Return how many messages a new link may send at once."""
        return most if self._limit is None else min(self._limit, most)

    def note(self, sent: Sequence[int], *, is_probe: bool) -> bool:
        """Take note that a link was lost with these rows in its transaction.

        Args:
            sent: their numbers.
            is_probe: the destination of the first one was blocked already.

        Returns:
            Whether it was a single one.
        """
        if not sent:
            return False
        self._limit = max(1, len(sent) // 2)
        if len(sent) > 1:
            return False
        guilt = GUILT_OF_PROBE if is_probe else GUILT
        self._guilts[sent[0]] = self._guilts.get(sent[0], 0) + guilt
        return True

    def note_held_up(self, destination: str, sent: int) -> None:
        """Note that a destination held up a link, and how many messages were sent to it.

        Why fewer: these messages may have filled it, so it would never have room for all of them.
        """
        before = self._shares.pop(destination, None)
        grows_after = GROWS_AFTER if before is None else 2 * before.grows_after
        self._shares[destination] = _Share(max(1, sent // 4), min(grows_after, GROWS_AFTER_MAX))
        if len(self._shares) > REMEMBERED_MAX:
            del self._shares[next(iter(self._shares))]

    def note_taken(self, destinations: Iterable[str]) -> None:
        """Take note that these got through together, each as often as it is named."""
        if not self._shares:
            return
        for destination, count in Counter(destinations).items():
            share = self._shares.get(destination)
            if share is None or count < share.most:
                continue
            share.taken += 1
            if share.taken >= share.grows_after:
                share.most, share.taken = 2 * share.most, 0

    def most_to(self, destination: str) -> int | None:
        """Return how many messages may go to a destination at once; None = as many as to all."""
        share = self._shares.get(destination)
        return None if share is None else share.most

    def is_suspect(self, row_id: int) -> bool:
        """Return whether a row has ended a link, so that it has to be sent alone."""
        return row_id in self._guilts

    @property
    def has_suspects(self) -> bool:
        """Whether there is any such row."""
        return bool(self._guilts)

    def is_careful(self, most: int) -> bool:
        """Return whether a row has to be sent alone, or a destination gets fewer than `most`."""
        return self.has_suspects or any(share.most < most for share in self._shares.values())

    def is_guilty(self, row_id: int) -> bool:
        """Return whether a row has ended enough links to be parked."""
        return self._guilts.get(row_id, 0) >= GUILT_BEFORE_PARKING

    def forget(self, row_ids: Sequence[int]) -> None:
        """Take note that these rows were sent or parked."""
        self._limit = None
        if self._guilts:
            for row_id in row_ids:
                self._guilts.pop(row_id, None)
