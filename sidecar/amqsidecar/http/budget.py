"""Memory that all requests share, so that many large ones together stay small."""

from typing import Final

from amqsidecar.http.access import HttpRefused

BODIES_BYTES_MAX: Final = 32 * 2**20
"""Bodies of changes that are in memory at a time."""

ANSWERS_BYTES_MAX: Final = 64 * 2**20
"""Answers that are in memory and not yet read at a time."""


class Budget:
    """Bytes that are in use together; for one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0

    def take(self, size: int) -> None:
        """Count bytes as in use until `give`; one alone may be larger than the budget.

        Raises:
            HttpRefused: too many are in use.
        """
        if self._used and self._used + size > self._most:
            raise HttpRefused(503, "too much data is being sent at this moment", Retry_After="5")
        self._used += size

    def give(self, size: int) -> None:
        """Count bytes of `take` as free again."""
        self._used -= size
