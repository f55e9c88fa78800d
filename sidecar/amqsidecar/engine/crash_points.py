"""Named places in the cycle where a test may kill the process."""

from collections.abc import Callable

CrashPoint = Callable[[str], None]
"""Called with a name out of `ALL_NAMES` when the place is reached."""

NAMES = (
    "gathered",  # deliveries in hand, nothing written
    "stored",  # the store's transaction is durable, the broker's not begun
    "sent",  # the broker has every send of the transaction, but was not asked to commit
    "committing",  # the broker was asked to commit, its answer not read: it may have or not
    "committed",  # the broker's transaction is durable, the store doesn't know
    "finished",  # the store knows
)

ACCEPTING = "accepting"
"""Sends and token are durable, nothing is accepted yet; only where that is no one transaction."""

ALL_NAMES = (*NAMES, ACCEPTING)
"""What a crash point may be called; STOMP on Artemis reaches all of them, other links `NAMES`."""


def no_crash(_name: str) -> None:
    """Do nothing: what production does at a crash point."""
