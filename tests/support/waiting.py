"""Waiting for a condition with a deadline, in tests, demo and benchmarks."""

import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""How long what must happen is waited for: only a failure waits to the end, and a stalled broker,
or a busy machine, is none."""

_PAUSE_MIN_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5
_PAUSE_PER_LOOK: Final = 3
"""A condition that starts a command leaves the processor to what it waits for."""
_PAUSE_PER_WAITED_S: Final = 0.05
_PAUSE_OF_LONG_WAIT_S: Final = 0.25
"""So does who has waited for long, but sees what lasts longer than this."""


def eventually(
    condition: Callable[[], T | Literal[False] | None],
    *,
    within_s: float = PATIENCE_S,
    what: str = "condition",
    every_s: float | None = None,
    last: Callable[[T | Literal[False] | None], object] = "last value: {!r}".format,
) -> T:
    """Return the first true value of the condition, or raise TimeoutError.

    Args:
        every_s: the pause between two looks; None = a short one, longer after a slow look.
        last: describes the last value in the error.
    """
    start = time.monotonic()
    deadline = start + within_s
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s ({last(value)})")
        patient_s = min(_PAUSE_PER_WAITED_S * (now - start), _PAUSE_OF_LONG_WAIT_S)
        short_s = min(max(_PAUSE_MIN_S, _PAUSE_PER_LOOK * (now - began), patient_s), _PAUSE_MAX_S)
        time.sleep(short_s if every_s is None else every_s)
