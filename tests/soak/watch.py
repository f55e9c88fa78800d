"""A watched sidecar: its memory, threads, files and objects, and how far it has come."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.dead_letters import dead_letter_queue
from bench.sidecar_watch import policy_file
from support.brokers.real import ArtemisBroker, Broker
from support.sidecar.forked import ForkedProcess
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import eventually

MIB = 2**20
INSIDE = Path(__file__).parent / "inside"


class Objects(NamedTuple):
    """What lives in the process: blocks of Python's allocator, and tracked objects by type."""

    blocks: int
    types: Counter[str]


class Sample(NamedTuple):
    """What was seen at one time; sizes in MiB."""

    at_s: float
    taken: int
    sent: int
    rss: float
    store: float
    wal: float
    threads: int
    files: int


class WatchedSidecar(SidecarProcess):
    """The installed command with its objects in view."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        *,
        delay_ms: int,
        intake: str | None = None,
        wire: str | None = None,
    ) -> None:
        folder.mkdir()
        self._objects_path = folder / "objects.json"
        own_wire = "amqp" if isinstance(broker, ArtemisBroker) else "openwire"
        url = str(getattr(broker, f"{wire or own_wire}_url"))
        super().__init__(
            folder,
            url,
            policy=policy_file(folder, delay_ms),
            sets=(
                "intake.backlog=process",
                f"intake.queues=[{intake or dead_letter_queue(broker)}]",
                "discovery.interval_s=30",
                "cycle.max_wait_ms=500",
                # Why: it remembers re-sends for as long as they may come back, up to a bound.
                "outcomes.watch=false",
            ),
            environ={
                "PYTHONPATH": os.pathsep.join((str(INSIDE), os.environ.get("PYTHONPATH", ""))),
                "SOAK_OBJECTS": str(self._objects_path),
            },
            program=COMMAND,
        )
        self._began_s = time.monotonic()

    def objects(self) -> Objects:
        """Return what lives in the process now."""
        self._objects_path.unlink(missing_ok=True)
        self._running().send_signal(signal.SIGUSR1)
        eventually(self._objects_path.exists, what="the sidecar lists its objects")
        told = json.loads(self._objects_path.read_text())
        return Objects(told["blocks"], Counter(told["types"]))

    def sample(self) -> Sample:
        """Return what is to be seen now."""
        process = Path(f"/proc/{self._running().pid}")
        pages = int((process / "statm").read_text().split()[1])
        return Sample(
            at_s=time.monotonic() - self._began_s,
            taken=int(self.metric("amqsidecar_dead_letters_received_total")),
            sent=int(self.metric("amqsidecar_resent_total")),
            rss=pages * os.sysconf("SC_PAGE_SIZE") / MIB,
            store=_size(self.folder / "schedule.db"),
            wal=_size(self.folder / "schedule.db-wal"),
            threads=len(list((process / "task").iterdir())),
            files=len(list((process / "fd").iterdir())),
        )

    def peak(self) -> float:
        """Return the most memory that it had at a time, in MiB."""
        status = Path(f"/proc/{self._running().pid}/status").read_text()
        [kib] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(kib) / 1024

    def watch(
        self, until: Callable[[Sample], bool], *, within_s: float, every_s: float
    ) -> list[Sample]:
        """Return samples up to the first one for which the condition holds."""
        samples: list[Sample] = []

        def is_done() -> bool:
            samples.append(self.sample())
            return until(samples[-1])

        eventually(is_done, within_s=within_s, every_s=every_s, what="the soak comes to its end")
        return samples

    @property
    def pid(self) -> int:
        """Of the running process."""
        return self._running().pid

    def _running(self) -> "subprocess.Popen[bytes] | ForkedProcess":
        assert self.process is not None
        return self.process


def _size(path: Path) -> float:
    return path.stat().st_size / MIB if path.exists() else 0.0


def table(samples: list[Sample], rows: int = 25) -> str:
    """Return some of the samples, the first and the last among them, as Markdown."""
    last = len(samples) - 1
    chosen = sorted({round(number * last / (rows - 1)) for number in range(rows)})
    lines = [
        "| s | taken | sent | RSS MiB | store MiB | WAL MiB | threads | files |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += (
        f"| {one.at_s:.0f} | {one.taken:,} | {one.sent:,} | {one.rss:.0f} | {one.store:.0f} "
        f"| {one.wal:.0f} | {one.threads} | {one.files} |"
        for one in (samples[number] for number in chosen)
    )
    return "\n".join(lines)
