"""The JVM that runs JMS clients on command, one JSON line each way."""

import atexit
import contextlib
import itertools
import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

from support import maven
from support.class_archives import with_archive

LONG_RUN = ("-Xmx512m", "-XX:+UseSerialGC")
# Why one compiler: a client of some thousand messages ends before the second one pays.
JVM_FLAGS = (*LONG_RUN, "-XX:TieredStopAtLevel=1")
# Why: the JVM writes its own warnings to standard output, where the answers go.
_WARNINGS = ("-Xlog:disable", "-Xlog:all=warning:stderr")


class PeerError(RuntimeError):
    """The JMS client or the broker refused a command; the message holds the Java trace."""


class PeerProcess:
    """One JVM that runs JMS clients on command."""

    @staticmethod
    def java() -> list[str]:
        """Return class path and main class."""
        jars = maven.jms_client_jars()
        return ["-cp", f"{maven.compiled('Peer.java', jars)}:{jars}/*", "Peer"]

    def __init__(self, jvm_flags: Sequence[str] = JVM_FLAGS) -> None:
        """Start the JVM; it ends with this process."""
        # Why: a file, because nobody reads a pipe while the JVM writes warnings into it.
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            [maven.tool("java"), *with_archive([*_WARNINGS, *jvm_flags, *self.java()])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._answers: dict[int, dict[str, Any]] = {}
        self._consumers: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, name="jms-peer", daemon=True)
        self._reader.start()

    def call(self, op: str, *, timeout_s: float = 300.0, **arguments: Any) -> Any:
        """Perform one command and return its result."""
        number = next(self._ids)
        given = {key: value for key, value in arguments.items() if value is not None}
        line = json.dumps({"id": number, "op": op, **given}) + "\n"
        with self._lock:
            if not self._has_ended:
                self._send(line)
            answered = self._answered.wait_for(
                lambda: number in self._answers or self._has_ended, timeout_s
            )
            if not answered:
                raise PeerError(f"{op} {given}: no answer within {timeout_s:g} s")
            if number not in self._answers:
                raise PeerError(f"{op} {given}: the JVM has ended\n{self.errors()}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise PeerError(f"{op} {given}\n{answer['error']}\n{answer['trace']}")
        return answer["result"]

    def on_event(self, consumer: str, receive: Callable[[dict[str, Any]], None]) -> None:
        """Give the events of a background consumer to a function, on the reader's thread."""
        self._consumers[consumer] = receive

    def errors(self) -> str:
        """Return the end of what the JVM wrote to standard error."""
        if self._errors.closed:
            return "closed by this process"
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def close(self, *, within_s: float = 30) -> None:
        """End the JVM, and every connection with it, without a word to the brokers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(within_s)
        self._reader.join(30)
        self._errors.close()

    def kill(self) -> None:
        """End the JVM with SIGKILL, as the crash of an application does."""
        self._process.kill()
        self.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # Why: a JVM that ends meanwhile is noticed by the reader.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                answer = json.loads(line)
                if "consumer" in answer:
                    self._consumers[answer["consumer"]](answer["event"])
                    continue
                with self._answered:
                    self._answers[answer["id"]] = answer
                    self._answered.notify_all()
        with self._answered:
            self._has_ended = True
            self._answered.notify_all()


_shared: PeerProcess | None = None
_shared_lock = threading.Lock()


def shared_process(jvm_flags: Sequence[str] = JVM_FLAGS) -> PeerProcess:
    """Return the JVM that all peers of this process use; start it with the flags on first use."""
    global _shared  # noqa: PLW0603
    with _shared_lock:
        if _shared is None or _shared._has_ended:
            _shared = PeerProcess(jvm_flags)
            atexit.register(_shared.close)
        return _shared
