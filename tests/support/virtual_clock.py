"""A clock that moves only when it is told to."""


class VirtualClock:
    """Time as an argument; starts at a round number that reads well."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.current_ms = now_ms

    def now_ms(self) -> int:
        return self.current_ms

    def monotonic_s(self) -> float:
        return self.current_ms / 1000

    def advance(self, by_ms: int) -> None:
        self.current_ms += by_ms
