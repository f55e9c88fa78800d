"""Destinations that can't take re-sends for now, and the times of the next try."""

import msgspec

from amqsidecar.model.event import AnyEvent, DestinationBlocked

BLOCKED_MAX = 10_000
"""Maximum destinations remembered; beyond it, the one blocked longest ago is open again.

It is asked about or probed at its next message then, as a destination that was never blocked.
"""
_FIRST_DELAY_MS = 1_000
_DELAY_MS_MAX = 60_000


class Blockage(msgspec.Struct, frozen=True):
    """A destination that refused, or that nothing would route.

    Attributes:
        reason: the broker's words or ours.
        until_ms: not to be tried before.
        delay_ms: the present step of the back-off.
        ends_links: a connection ended when something was sent there: it is probed alone.
    """

    reason: str
    until_ms: int
    delay_ms: int
    ends_links: bool = False

    def is_over(self, now_ms: int) -> bool:
        """Return whether it may be probed."""
        return now_ms >= self.until_ms


class Blockages:
    """Doubling back-off per destination; after it one message probes before the others follow."""

    def __init__(self) -> None:
        self._blocked: dict[str, Blockage] = {}

    def __len__(self) -> int:
        return len(self._blocked)

    @property
    def are_full(self) -> bool:
        """Whether a destination that is not remembered may have been blocked."""
        return len(self._blocked) >= BLOCKED_MAX

    def get(self, destination: str) -> Blockage | None:
        """Return the blockage of a destination, also while it may be probed; None = it is open."""
        return self._blocked.get(destination)

    def block(
        self, destination: str, now_ms: int, reason: str, *, ends_links: bool = False
    ) -> Blockage:
        """Block a destination, for twice as long as the last time without a success between."""
        before = self._blocked.pop(destination, None)
        delay_ms = _FIRST_DELAY_MS if before is None else min(before.delay_ms * 2, _DELAY_MS_MAX)
        blockage = Blockage(reason, now_ms + delay_ms, delay_ms, ends_links)
        if self.are_full:
            del self._blocked[next(iter(self._blocked))]
        self._blocked[destination] = blockage
        return blockage

    def report(self, destination: str, reason: str, now_ms: int, events: list[AnyEvent]) -> int:
        """Block a destination, as an event too; return until when."""
        until_ms = self.block(destination, now_ms, reason).until_ms
        events.append(
            DestinationBlocked(
                at_ms=now_ms, destination=destination, reason=reason, retry_at_ms=until_ms
            )
        )
        return until_ms

    def report_once(
        self, destination: str, reason: str, now_ms: int, events: list[AnyEvent]
    ) -> int:
        """Do the same with a destination that is not blocked now."""
        blockage = self.get(destination)
        if blockage is not None and not blockage.is_over(now_ms):
            return blockage.until_ms
        return self.report(destination, reason, now_ms, events)

    def clear(self, destination: str) -> bool:
        """Forget a blockage because a send got through; returns whether there was one."""
        return self._blocked.pop(destination, None) is not None
