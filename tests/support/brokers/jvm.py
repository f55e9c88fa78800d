"""JVMs that run one broker after another: the next one finds its classes loaded and compiled."""

import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from support import maven
from support.class_archives import with_archive
from support.machine.processes import wait_or_kill
from support.waiting import eventually

BROKERS_OF_A_JVM: Final = 8
"""How many brokers a JVM runs: what they leave in it stays small."""

_PARKED_MAX: Final = 3
_PARKS_WITHIN_S: Final = 5.0

_parked: "list[Jvm]" = []
_lock = threading.Lock()


class Jvm:
    """A Java process for brokers, one at a time; it ends with the process that started it."""

    starts: ClassVar[int] = 0
    """How many this process has started."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Start it; what the JVM itself prints is appended to `log`."""
        Jvm.starts += 1
        self._command = command
        self._brokers = 0
        folder = tempfile.mkdtemp(prefix="jvm-")
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [maven.tool("java"), f"-Djava.io.tmpdir={folder}", *with_archive(command)],
                cwd=folder,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Why: an interrupt at the terminal is for the program that owns the broker.
                start_new_session=True,
            )
        weakref.finalize(self, _end, self.process)

    @staticmethod
    def of(command: Sequence[str], log: Path) -> "Jvm":
        """Return a parked JVM that this command has started, or else a new one."""
        with _lock:
            found = next((jvm for jvm in reversed(_parked) if jvm._command == command), None)
            if found is not None:
                _parked.remove(found)
        if found is None:
            return Jvm(command, log)
        if found.is_running:
            return found
        found.kill()
        return Jvm(command, log)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def run(self, url: str, log: Path, properties: Mapping[str, str]) -> None:
        """Begin to start the broker of a configuration.

        Args:
            url: of the configuration.
            log: what the broker prints is appended to it.
            properties: system properties.
        """
        self._brokers += 1
        words = ("start", str(log), url, *(f"{name}={value}" for name, value in properties.items()))
        self._order("\t".join(words))

    def park(self, log: Path) -> bool:
        """Stop its broker and keep it for the next one; return whether that was possible."""
        if self._brokers == BROKERS_OF_A_JVM:
            return False
        began = log.stat().st_size
        self._order("park")

        def is_parked() -> bool:
            return b"parked" in log.read_bytes()[began:].splitlines()

        try:
            eventually(lambda: is_parked() or not self.is_running, within_s=_PARKS_WITHIN_S)
        except TimeoutError:
            return False
        if not self.is_running:
            return False
        with _lock:
            _parked.append(self)
            oldest = _parked.pop(0) if len(_parked) > _PARKED_MAX else None
        if oldest is not None:
            oldest.kill()
        return True

    def stop(self, within_s: float) -> None:
        """End the process in order; kill it when it takes too long."""
        if self.is_running:
            self.process.terminate()
            wait_or_kill(self.process, within_s)
        self._clear()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self.is_running:
            self.process.kill()
        self._clear()

    def _clear(self) -> None:
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._remove_folder()

    def _order(self, line: str) -> None:
        assert self.process.stdin is not None
        # Why: who waits for the order's effect sees that the process has ended.
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n".encode())


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
