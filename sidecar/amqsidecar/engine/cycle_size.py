"""How much one cycle takes and sends: less after each refusal, more after each success."""

from collections.abc import Callable
from typing import Final

import msgspec

DUE_CYCLE_S: Final = 0.1
"""A cycle that sends due messages takes as many dead letters as fit into this time.

Why not shorter: at 0.05, each message of a large backlog cost 5 % more processor time.
"""

# Why not fewer: on a busy machine small cycles take as long, and do less.
_FEWEST_SHARE: Final = 4


class CycleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one cycle.

    Attributes:
        max_taken: dead letters accepted in one cycle.
        max_sent: messages sent in one cycle.
    """

    max_taken: int
    max_sent: int


class CycleSize:
    """The present size of a cycle, within its limits.

    Attributes:
        max_taken, max_sent: see `CycleLimits`; at most these.
    """

    def __init__(self, limits: CycleLimits, max_sent: int) -> None:
        self._limits = limits
        self.max_taken = limits.max_taken
        self.max_sent = max_sent
        self._message_s = 0.0
        self._only_sends_next = False

    @property
    def is_whole(self) -> bool:
        """Whether no refusal made it smaller."""
        return self.max_sent == self._limits.max_sent and self.max_taken == self._limits.max_taken

    @property
    def separates(self) -> bool:
        """Whether a cycle either takes or sends.

        Why: on Artemis a refused commit counts as a failed delivery of each message that it would
        have accepted, so suspects are sent in cycles of their own.
        """
        return self.max_sent < self._limits.max_sent

    def takes_next(self, gather: Callable[[], bool]) -> bool:
        """Return whether the next of the separate cycles takes; they take turns.

        Args:
            gather: returns whether there is anything to take.
        """
        takes = not self._only_sends_next and gather()
        self._only_sends_next = takes
        return takes

    def taken_beside(self, due: int) -> int:
        """Return the maximum of dead letters for a cycle that sends this many due messages.

        Why fewer: consumers see the sent messages only once all taken messages are stored.
        """
        if not due or not self._message_s:
            return self.max_taken
        fitting = int(DUE_CYCLE_S / self._message_s) - due
        return min(self.max_taken, max(1, self._limits.max_taken // _FEWEST_SHARE, fitting))

    def note_work(self, work_s: float, messages: int) -> None:
        """Note how long the process worked on a cycle of this many takes and sends."""
        self._message_s = work_s / max(1, messages)

    def is_large(self, taken: int, sent: int) -> bool:
        """Return whether a cycle used a quarter or more of its bound."""
        return 4 * taken >= self._limits.max_taken or 4 * sent >= self._limits.max_sent

    def grow_sends(self) -> None:
        """Send twice as many: all were taken by the broker."""
        self.max_sent = min(self.max_sent * 2, self._limits.max_sent)

    def grow_takes(self) -> None:
        """Take twice as many: all were accepted."""
        self.max_taken = min(self.max_taken * 2, self._limits.max_taken)

    def send_at_most(self, count: int) -> None:
        """Send fewer, at least one."""
        self.max_sent = max(1, count)

    def narrow_takes(self, taken: int) -> None:
        """Reduce the takes to half of the refused number, at least one."""
        self.max_taken = max(1, taken // 2)

    def narrow_sends(self, count: int) -> bool:
        """Send fewer, without taking; return whether that is fewer than the limits say."""
        self.send_at_most(count)
        self._only_sends_next = True
        return self.separates
