"""Named places in the cycle where a test may kill the process."""

from collections.abc import Callable

CrashPoint = Callable[[str], None]
"""Called with a name out of `NAMES` when the place is reached."""

NAMES = (
    "gathered",  # deliveries in hand, nothing written
    "stored",  # the store's transaction is durable, the broker's not begun
    "sent",  # the broker has every send of the transaction, but was not asked to commit
    "committing",  # the broker was asked to commit, its answer not read: it may have or not
    "accepting",  # STOMP on Artemis only: the sends are durable, nothing is accepted yet
    "committed",  # the broker's transaction is durable, the store doesn't know
    "finished",  # the store knows
)


def no_crash(_name: str) -> None:
    """Do nothing: what production does at a crash point."""
