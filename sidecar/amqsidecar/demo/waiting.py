"""Waits for a condition, and picks free ports."""

import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], *, within_s: float, what: str, every_s: float = 0.02
) -> T:
    """Return the first true value of the condition.

    Raises:
        TimeoutError: there is none within the time; the text names `what`.
    """
    deadline_s = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(every_s)
    return value


def free_ports(number: int) -> list[int]:
    """Return different ports of 127.0.0.1 on which nobody listens now."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def is_open(port: int) -> bool:
    """Tell whether something on 127.0.0.1 accepts connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
