"""`amqsidecar listen` as a process, as operators run it."""

import os
import random
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from support.brokers.real import ArtemisBroker
from support.machine.ports import free_port
from support.sidecar import forked
from support.sidecar.forked import ForkedProcess
from support.waiting import PATIENCE_S, eventually


def copy_keys(folder: Path) -> str:
    """Return the option with the keys of copies, which listener and sidecar share; make them."""
    path = folder / "copy.keys"
    if not path.exists():
        path.write_text(f"{secrets.token_hex(32)}\n", encoding="utf-8")
    return f"listener.copy_key_file={path}"


def metric_at(address: str, name: str) -> float:
    """Return a metric of the listener with `listener.http_listen` at an address."""
    with urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
    return float(value)


class ListenerProcess:
    """One listener in front of a broker's port; after a kill it starts again on the same port.

    Attributes:
        port: for clients.
    """

    def __init__(
        self,
        folder: Path,
        broker_port: int,
        sets: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> None:
        """Prepare it.

        Args:
            program: to run instead of a fork, where memory is the subject.
        """
        self.log_path = folder / "listener.log"
        self.port = free_port()
        self.process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._program = program
        self._sets = [
            f"listener.acceptor=stomp://127.0.0.1:{broker_port}",
            f"listener.spool_path={folder}",
            copy_keys(folder),
            "listener.http_listen=",
            "log.format=json",
            *sets,
        ]

    def start(self) -> Self:
        """Start the process; wait until it listens."""
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        sets = [*self._sets, f"listener.listen=127.0.0.1:{self.port}"]
        with self.log_path.open("ab") as log:
            arguments = ["listen", *(part for one in sets for part in ("--set", one))]
            if self._program:
                command = [*self._program, *arguments]
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
            else:
                self.process = forked.start(arguments, stdout=log, stderr=log, env=dict(os.environ))

        def has_started() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log()
            return b'"started"' in self.log_path.read_bytes()[offset:]

        eventually(has_started, what="the listener listens")
        return self

    def log(self) -> str:
        """Return its log lines."""
        # Why replaced: the end may be in the middle of a character.
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def kill_in_turn(
    listener: ListenerProcess,
    broker: ArtemisBroker,
    cut_one: Callable[[], None],
    *,
    given_up: Callable[[], int],
    is_near_end: Callable[[], bool],
    messages: int,
    kills: int,
) -> None:
    """Kill the listener, its broker and a consumer's connection in turn, at random progress.

    Args:
        cut_one: ends the connection of one consumer.
        given_up: how many messages consumers have given up so far.
        is_near_end: whether no more progress is to be waited for.
        messages: how many there are.
        kills: how many in all.
    """
    chance = random.Random()
    for number in range(kills):
        mark = given_up() + chance.randrange(1, max(2, messages // kills))
        eventually(lambda: given_up() >= mark or is_near_end(), within_s=120, what="progress")  # noqa: B023
        if number % 3 == 0:
            listener.kill()
            listener.start()
        elif number % 3 == 1:
            broker.kill()
            broker.start()
        else:
            cut_one()
