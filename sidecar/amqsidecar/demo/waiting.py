"""Waits for a condition, and for the begin or end of a process; picks free ports."""

import socket
import subprocess
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Final

_PORTS: Final = range(15_000, 32_000)
_READY_WITHIN_S: Final = 60.0
_LINES_SHOWN: Final = 30


class ProcessFailed(Exception):
    """A process ended by itself or did not get ready; the text has the end of its log."""


def eventually(
    condition: Callable[[], bool], *, within_s: float, what: str, every_s: float = 0.02
) -> None:
    """Wait until the condition is true.

    Raises:
        TimeoutError: it didn't become true in time; the text names `what`.
    """
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(every_s)


def wait_until_ready(
    process: "subprocess.Popen[bytes]", name: str, is_ready: Callable[[], bool], log: Path
) -> None:
    """Wait until a process does its work.

    Raises:
        ProcessFailed: it ended, or did not get ready.
    """

    def is_there() -> bool:
        code = process.poll()
        if code is not None:
            raise ProcessFailed(f"{name} ended with exit code {code}\n{_end_of(log)}")
        return is_ready()

    try:
        eventually(is_there, within_s=_READY_WITHIN_S, what=f"{name} is ready")
    except TimeoutError as error:
        raise ProcessFailed(f"{error}\n{_end_of(log)}") from error


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LINES_SHOWN:])


def wait_or_kill(process: "subprocess.Popen[bytes]", within_s: float) -> None:
    """Wait for the end of a process; kill it when it takes longer."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(number: int) -> list[int]:
    """Return different free ports of 127.0.0.1."""
    return list(islice((port for port in _shuffled_ports() if _is_free(port)), number))


def _shuffled_ports() -> list[int]:
    # Why not the kernel's choice: while the sidecar is dead, its port could be given to an
    # outgoing connection; the kernel takes those from a range above.
    return SystemRandom().sample(_PORTS, len(_PORTS))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_open(port: int) -> bool:
    """Return whether something on 127.0.0.1 accepts connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
