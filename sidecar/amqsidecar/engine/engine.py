"""The contract of an engine, which works in turns over one open link."""

from typing import Protocol


class Engine(Protocol):
    """Takes dead letters and sends due messages; belongs to one thread."""

    def turn(self, max_wait_s: float) -> bool:
        """Do the pending work, or wait at most this long for some; return whether there was any.

        Raises:
            LinkLost: the connection is gone.
            StoreUnavailable: the store takes no writes.
        """
        ...

    def settle_up(self) -> None:
        """Write pending state before the link is closed."""
        ...
