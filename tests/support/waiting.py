"""Waiting for a condition with a deadline, in tests, demo and benchmarks."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""How long what must happen is waited for: only a failure waits to the end, and a stalled broker,
or a busy machine, is none."""


def eventually(
    condition: Callable[[], T | Literal[False] | None],
    *,
    within_s: float = PATIENCE_S,
    what: str = "condition",
    every_s: float = 0.02,
    last: Callable[[T | Literal[False] | None], object] = "last value: {!r}".format,
) -> T:
    """Return the first true value of the condition, or raise TimeoutError.

    Args:
        last: describes the last value in the error.
    """
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s ({last(value)})")
        time.sleep(every_s)
