"""Processes of tests: start one or leave nothing of it behind, freeze it, wait for its end."""

import os
import platform
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from support.waiting import eventually


class Server(Protocol):
    """A thing that is started and closed, such as a broker or a database."""

    def start(self) -> Self:
        """Start it; returns itself."""

    def close(self) -> None:
        """Stop it and remove its files."""


ServerT = TypeVar("ServerT", bound=Server)


def started(server: ServerT) -> ServerT:
    """Start a server and return it; close it if the start fails."""
    try:
        return server.start()
    except BaseException:
        server.close()
        raise


def run_program(
    command: Sequence[object], *, code: int | None = None, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, and return what it printed as text.

    Args:
        code: the exit code it must end with; None = any.
        options: further ones of `subprocess.run`.

    Raises:
        AssertionError: it ended with another exit code; the text has its output.
    """
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    printed = f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert code in (None, done.returncode), printed
    return done


def wait_or_kill(process: "subprocess.Popen[Any]", within_s: float) -> None:
    """Wait for the end of a process; kill it when it takes longer."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def freeze(pid: int) -> None:
    """Stop a process by SIGSTOP; returns once none of its threads runs.

    Raises:
        ProcessLookupError: it has ended.
    """
    os.kill(pid, signal.SIGSTOP)
    # Why waited for: one thread gets the signal, and the others run until it is scheduled.
    eventually(lambda: is_stopped(pid), what=f"process {pid} stops")


def is_stopped(pid: int) -> bool:
    """Return whether each thread of a process is stopped.

    Raises:
        ProcessLookupError: it has ended.
    """
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(stat.read_text().rpartition(") ")[2][0])
        except (FileNotFoundError, ProcessLookupError):
            return False  # A thread ends just now.
    if set(states) <= {"Z", "X"}:
        raise ProcessLookupError(f"process {pid} has ended")
    return set(states) == {"T"}


def kill_tether(tether: "subprocess.Popen[Any]") -> None:
    """End a tether, a shell that ends its process once its own standard input ends."""
    # Why killed before its input is closed: its process may have ended, and another may have its
    # id by now.
    tether.kill()
    tether.wait()
    if tether.stdin is not None:
        tether.stdin.close()


def machine_words() -> str:
    """Return what a measurement depends on: the commit, the machine, Python, the load now."""
    said = run_program(["git", "describe", "--always", "--dirty"])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"commit {said.stdout.strip() or 'unknown'}, {os.cpu_count()} processors, "
        f"{memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
