"""Signals: events outside that messages wait for, such as an invoice that arrived."""

from typing import Final

import msgspec

LONGEST_SIGNAL: Final = 200
"""Characters of a name."""

DEFAULT_WAIT_MS: Final = 86_400_000
"""The longest wait where none is given: a day."""

WAIT_MAX_MS: Final = 30 * 86_400_000
"""The longest wait that can be asked for: 30 days."""

REMEMBERED_MS: Final = 3_600_000
"""How long a signal is remembered for messages that begin to wait for it later: an hour."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """An event outside that was reported; the latest report of a name counts.

    Attributes:
        author: who reported it, as events name people.
    """

    name: str
    at_ms: int
    author: str


class EndedWait(msgspec.Struct, frozen=True):
    """A held message that waits no more.

    Attributes:
        id: number of its row.
        author: who reported the signal; None = its longest time has passed without one.
        began_later: its message died or was held after that report, by the order in the store.
    """

    id: int
    name: str
    author: str | None = None
    began_later: bool = False


def signal_name(text: str) -> str:
    """Return the name of a signal.

    Raises:
        ValueError: it is empty, too long or invisible in part; or no path of the API can have it.
    """
    name = text.strip()
    if not 0 < len(name) <= LONGEST_SIGNAL or not name.isprintable() or name in (".", ".."):
        raise ValueError(
            f"the name of an event has 1 to {LONGEST_SIGNAL} visible characters, and is not . or .."
        )
    return name
