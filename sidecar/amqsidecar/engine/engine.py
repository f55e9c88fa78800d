"""The contract of an engine: what works in turns over one open link."""

from typing import Protocol


class Engine(Protocol):
    """Takes dead letters and sends what is due; belongs to one thread."""

    def turn(self, max_wait_s: float) -> bool:
        """Do the pending work, or wait at most this long for some; return whether there was any.

        Raises:
            LinkLost: the connection is gone.
            StoreUnavailable: the store takes no writes.
        """
        ...

    def settle_up(self) -> None:
        """Write down what is still to be written, before the link is closed."""
        ...
