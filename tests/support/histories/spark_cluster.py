"""A standalone Spark cluster as processes on 127.0.0.1: a master and workers of one core each.

with SparkCluster(folder, workers=2) as cluster:
    open_session("job", cluster.url, ())
"""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pyspark

from support.histories.spark_home import FAST_START
from support.machine.ports import free_port
from support.machine.processes import kill_tether, wait_or_kill
from support.waiting import eventually

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
FEW_ROWS = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")
"""Settings for queries of few rows: to compile each of them costs a sixth of a test's time."""
# Why: they are to end with the process that started them, however that ends.
TETHER = 'read _; kill "$0" 2>/dev/null'


class SparkCluster:
    """One cluster; a context manager that starts it, and ends all of it.

    Args:
        folder: for logs and what executors unpack.
        python: what workers run Python with; None = the Python of this process.
    """

    def __init__(self, folder: Path, *, workers: int, python: str | None = None) -> None:
        self._folder = folder
        self._workers = workers
        self._python = python or sys.executable
        self._port, self._page = free_port(), free_port()
        self._stack = ExitStack()
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The master's address, for `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        with self._stack:
            self._start(MASTER, "--port", str(self._port), "--webui-port", str(self._page))
            self._wait_for(0)
            for number in range(self._workers):
                work = str(self._folder / f"work-{number}")
                options = ("--cores", "1", "--memory", "1g", "--work-dir", work)
                self._start(WORKER, "--webui-port", str(free_port()), *options, self.url)
            self._wait_for(self._workers)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        eventually(lambda: not self.processes(), what="all executors end")

    def state(self) -> dict[str, Any]:
        """Return what the master says of its workers; empty = it does not answer."""
        with (
            suppress(OSError, ValueError),  # It answers with a page before it is ready.
            urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer,
        ):
            return dict(json.load(answer))
        return {}

    def workers_of(self, name: str) -> int:
        """Return how many workers an application that has ended ran on."""
        (number,) = (one["id"] for one in self.state()["completedapps"] if one["name"] == name)
        return len(list(self._folder.glob(f"work-*/{number}")))

    def processes(self) -> list[int]:
        """Return the executors, and what they have started, by where they work."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").resolve(strict=True).is_relative_to(self._folder):
                    found.append(int(process.name))
        return found

    def _start(self, daemon: str, *options: str) -> None:
        log = self._stack.enter_context(
            (self._folder / f"daemon-{len(self._daemons)}.log").open("wb")
        )
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        process = subprocess.Popen(
            [spark_class, daemon, "--host", "127.0.0.1", *options],
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_NO_DAEMONIZE": "1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": FAST_START,
                "PYSPARK_PYTHON": self._python,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._daemons.append(process)
        self._stack.callback(_end, process)
        tether = subprocess.Popen(
            ["/bin/sh", "-c", TETHER, str(process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._stack.callback(kill_tether, tether)

    def _wait_for(self, workers: int) -> None:
        eventually(
            lambda: self.state().get("aliveworkers") == workers,
            within_s=120,
            what=f"a master with {workers} workers",
            last=lambda _: "\n".join(map(_tail, sorted(self._folder.glob("daemon-*.log")))),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    wait_or_kill(process, 60)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
