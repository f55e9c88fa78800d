"""The installed command as a process, as operators run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from amqsidecar.brokers.artemis.left_behind import STUCK
from amqsidecar.cli.opened import opened_view
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine.crash_points import NAMES
from amqsidecar.operations.browse import Status, read_status
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.machine.processes import run_program
from support.sidecar import forked
from support.sidecar.forked import ForkedProcess
from support.waiting import PATIENCE_S, eventually

COMMAND = (sys.executable, "-m", "amqsidecar")
FORKED = ("amqsidecar",)
"""The same program, forked from a process that has imported it (`support.sidecar.forked`)."""
STOPS_WITHIN_S = 90.0
"""As chart and unit give it: a cycle in a commit waits for its broker."""
_COMMAND_S = 180.0
STARTED: WeakSet[SidecarProcess] = WeakSet()


class SidecarProcess:
    """One `amqsidecar run`, with its store in a folder of the test's."""

    def __init__(
        self,
        folder: Path,
        broker_url: str,
        *,
        policy: Path | None = None,
        sets: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        program: Sequence[str] = FORKED,
    ) -> None:
        self.program = tuple(program)
        self.flags = tuple(flags)
        self.folder = folder
        self.log_path = folder / "sidecar.log"
        self.options = [
            f"broker.url={broker_url}",
            f"store.url=sqlite:///{folder / 'schedule.db'}",
            # Why: tests share brokers, and each leaves the token of its own store.
            "store.accept_orphans=true",
            "http.listen=127.0.0.1:0",
            "discovery.interval_s=1",
            "cycle.max_wait_ms=100",
            *([f"policy.source={policy}"] if policy is not None else []),
            *sets,
        ]
        self.environ = dict(environ or {})
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._log_offset = 0
        self._http = ""

    def start(self, *, ready: bool = True, environ: Mapping[str, str] | None = None) -> Self:
        """Start the process; by default wait until it reads dead letters."""
        STARTED.add(self)
        self._log_offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._http = ""
        with self.log_path.open("ab") as log:
            arguments = ["run", *self.flags, *self._sets()]
            variables = {**os.environ, **self.environ, **(environ or {})}
            self.process = (
                forked.start(arguments, stdout=log, stderr=log, env=variables)
                if self.program == FORKED
                else subprocess.Popen(
                    [*self.program, *arguments], stdout=log, stderr=log, env=variables
                )
            )
        if ready:
            self.wait_ready()
        return self

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run while the block does, and end well."""
        with self:
            yield self.start()
            assert self.stop() == 0

    def wait_ready(self, within_s: float = PATIENCE_S) -> None:
        """Wait until /readyz answers 200."""

        def is_ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the sidecar ended with {self.process.returncode}:\n{self.log()}"
                )
            return self.get("/readyz")[0] == 200

        self._wait(is_ready, within_s)

    def _wait(self, condition: Callable[[], bool], within_s: float) -> None:
        try:
            eventually(condition, within_s=within_s, what="the sidecar is ready")
        except TimeoutError as error:
            raise AssertionError(f"{error}; its log:\n{self.log()[-6000:]}") from error

    def _sets(self) -> list[str]:
        return [part for option in self.options for part in ("--set", option)]

    def log(self) -> str:
        """Return the log lines of the processes so far."""
        if not self.log_path.exists():
            return ""
        # Why replaced: the end may be in the middle of a character.
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the log lines of the running process; one that is being written is not there."""
        text = self.log_path.read_bytes()[self._log_offset :]
        whole = text[: text.rfind(b"\n") + 1].decode()
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an HTTP request; status 0 = nothing answers."""
        if not self._http:
            started = [line for line in self.log_lines() if line.get("event") == "started"]
            if not started:
                return 0, ""
            self._http = started[-1]["http"]
        try:
            with urllib.request.urlopen(f"http://{self._http}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """Return a metric, summed over its labels; `name{label="value"}` is one sample."""
        lines = [line.rpartition(" ") for line in self.get("/metrics")[1].splitlines()]
        return sum(
            float(value)
            for sample, _, value in lines
            if sample == name or sample.startswith(name + "{")
        )

    def left_behind(self) -> float:
        """Return how many messages are left behind, but those stuck in a broker.

        Why: a broker that tests share may count messages of an earlier test as handed out for ever.
        """
        lines = self.get("/metrics")[1].splitlines()
        found = [one for one in lines if one.startswith("amqsidecar_left_behind{")]
        return sum(float(one.rpartition(" ")[2]) for one in found if STUCK not in one)

    def run_command(self, *arguments: str, expect: int = 0) -> str:
        """Run another command on the same configuration, and return its standard output.

        Args:
            arguments: the first one is the command, such as `list` or `journal verify`.
            expect: its exit code.
        """
        done = self.try_command(*arguments)
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def try_command(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run another command on the same configuration, however it ends."""
        command, *rest = arguments
        variables = {**os.environ, **(environ or {})}
        return self._run([*command.split(), *self._sets(), *rest], variables)

    def run_refused(self, *, expect: int) -> str:
        """Run the service where it can't start, and return its standard error."""
        done = self._run(["run", *self.flags, *self._sets()], {**os.environ, **self.environ})
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stderr

    def _run(
        self, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        if self.program == FORKED:
            return forked.run(arguments, timeout=_COMMAND_S, env=environ)
        return run_program([*self.program, *arguments], timeout=_COMMAND_S, env=environ)

    def json_command(self, *arguments: str) -> Any:
        """Run another command with JSON output, and return that output.

        A filter may match nothing, which ends the command with 1.
        """
        done = self.try_command(*arguments, "--output", "json")
        assert done.returncode in (0, 1), (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def rows(self, *options: str) -> list[dict[str, Any]]:
        """Return the rows that `list` prints with these options."""
        return list(self.json_command("list", *options)["rows"])

    def status(self) -> Status:
        """Return how the schedule stands, as the command `status` reads it, without a process."""
        with opened_view(load_config(None, self.options, os.environ)) as store:
            return read_status(store, store.state(), SystemClock().now_ms())

    def finished_status(self) -> Status:
        """Return how the schedule stands between two cycles.

        A count leaves out what the unfinished cycle takes and sends.
        """

        def read() -> Status | None:
            status = self.status()
            return status if status.unfinished_cycle is None or not self.is_running() else None

        return eventually(read, what="no cycle is unfinished")

    def unsent(self) -> int:
        """Return how many messages of the schedule are not exhausted."""
        status = self.finished_status()
        return status.total - sum(one.count for one in status.exhausted)

    def exhausted(self) -> int:
        """Return how many messages of the schedule are exhausted."""
        return sum(one.count for one in self.finished_status().exhausted)

    def is_running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self, within_s: float = STOPS_WITHIN_S) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def die_at(self, place: str) -> None:
        """Start the process, which kills itself at a crash point such as `sent:3`, and wait."""
        process = self.start(ready=False, environ={CRASH_POINT_VARIABLE: place}).process
        assert process is not None
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, self.log()[-4000:]

    def retry_under_kills(self, lying: int, chosen: int, kills: int) -> tuple[set[str], set[str]]:
        """Have a few of many rows retried by a process that dies at each place of a cycle, in turn.

        It is stopped before, and runs afterwards. Returns the ids of all rows, and of the few.
        """
        rows = [str(row["id"]) for row in self.rows("--limit", str(lying))]
        ids = rows[:: lying // chosen][:chosen]
        self.run_command("retry", *ids, "--yes")
        for kill in range(kills):
            self.die_at(f"{NAMES[kill % len(NAMES)]}:1")
        self.start()
        return {*rows}, {*ids}

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.kill()
