"""A clock that moves only when a test moves it."""


class VirtualClock:
    """Time as an argument; starts at a round number that reads well.

    Attributes:
        current_ms: time that has really passed.
        set_ahead_ms: how far the wall clock was set ahead of it, or back.
    """

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.current_ms = now_ms
        self.set_ahead_ms = 0

    def now_ms(self) -> int:
        return self.current_ms + self.set_ahead_ms

    def monotonic_s(self) -> float:
        return self.current_ms / 1000

    def advance(self, by_ms: int) -> None:
        """Advance the clock."""
        self.current_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Set the wall clock ahead or back; no time passes."""
        self.set_ahead_ms += by_ms
