"""Places for the checks of passwords, so that guessers keep nobody out who was here before."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from amqsidecar.http.access import HttpRefused

PLACES: Final = 20
PLACES_OF_ONE: Final = 5
"""Maximum places of one browser or network."""


class PasswordPlaces:
    """Places of one kind of callers; for the server's thread.

    Attributes:
        turn: lets one check run at a time: each takes memory and a processor.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(1)
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Take a place while the block runs.

        Args:
            key: the caller's browser or network.

        Raises:
            HttpRefused: all places of the kind, or of this caller, are taken.
        """
        if self._taken.total() >= PLACES or self._taken[key] >= PLACES_OF_ONE:
            raise HttpRefused(503, "too many log-ins at this moment", Retry_After="5")
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken -= Counter((key,))
