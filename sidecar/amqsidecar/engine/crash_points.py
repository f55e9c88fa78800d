"""Named places in the cycle, and in the writing of the journal, where a test may kill."""

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

CHANGING_WIRES = "changing_wires"
"""The token is in its queue, on its way from one wire to the other; only over `artemis://`."""

ALL_NAMES = (*NAMES, ACCEPTING, CHANGING_WIRES)
"""The names of crash points; each link reaches `NAMES`."""

JOURNAL_NAMES = (
    "segment_planned",  # the store knows what the segment holds, there is no file
    "segment_hidden",  # the file is whole and durable, but not there under its name
    "segment_there",  # the file is there, the store doesn't know
    "segment_noted",  # the store knows
)
"""The same beside the cycle, in the thread that writes the journal."""

WEBHOOK_NAMES = (
    "notice_kept",  # the outbox has the notice, it was not sent
    "notice_sent",  # the receiver answered, the outbox doesn't know
)
"""The same in the thread that sends notices."""

MOVE_NAMES = (
    "copying",  # the target's transaction has all, and is not durable
    "copied",  # the target has a copy under a fence, the source has none
    "given_up",  # both have a fence
    "opened",  # the target has none
)
"""The same in a move of the schedule to another store."""


def no_crash(_name: str) -> None:
    """Do nothing: the crash point of production."""
