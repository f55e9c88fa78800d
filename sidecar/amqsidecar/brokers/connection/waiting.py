"""Waiting for a connection's input."""

from collections.abc import Callable
from typing import Any

from amqsidecar.clock import Clock


def wait_until(
    is_done: Callable[[], Any], wait: Callable[[float], object], clock: Clock, timeout_s: float
) -> bool:
    """Wait until something is true; return False when the time is over before.

    `wait` takes a limit in seconds, and blocks until something has arrived or the limit is over.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    while not is_done():
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            return False
        wait(left_s)
    return True
