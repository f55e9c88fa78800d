"""A measured sidecar: the installed command, its counters and its processor time, polled."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from bench.dead_letters import dead_letter_queue
from support.brokers.real import ArtemisBroker, Broker
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import eventually

# Why not more often: each look takes the sidecar some milliseconds of processor time.
POLL_S = 0.5


class Sample(NamedTuple):
    """What was seen at one time: messages sent again, and processor time so far."""

    at_s: float
    resent: float
    cpu_s: float


class Moved(NamedTuple):
    """How fast messages went through a sidecar, and how much processor time each took."""

    per_second: float
    cpu_us: float


def policy_file(folder: Path, delay_ms: int) -> Path:
    path = folder / f"delay-{delay_ms}.yaml"
    path.write_text(
        "plugins:\n"
        "  - redelivery:\n"
        "      default_entry:\n"
        "        maximum_redeliveries: 5\n"
        f"        initial_redelivery_delay_ms: {delay_ms}\n"
    )
    return path


def measured_sidecar(
    folder: Path, broker: Broker, delay_ms: int, wire: str | None = None
) -> SidecarProcess:
    """Return it; without a wire it uses the recommended one."""
    folder.mkdir()
    best = "pair" if isinstance(broker, ArtemisBroker) else "openwire"
    return SidecarProcess(
        folder,
        getattr(broker, f"{wire or best}_url"),
        policy=policy_file(folder, delay_ms),
        sets=(
            "intake.backlog=process",
            f"intake.queues=[{dead_letter_queue(broker)}]",
            "discovery.interval_s=30",
            "cycle.max_wait_ms=500",
            # Why: lateness is read from the history of a whole run.
            "history.max_events=10000000",
        ),
        program=COMMAND,
    )


def watch(sidecar: SidecarProcess, count: int, within_s: float = 300.0) -> list[Sample]:
    """Poll until this many messages have been re-sent."""
    samples: list[Sample] = []

    def is_done() -> bool:
        samples.append(sample(sidecar))
        return samples[-1].resent >= count

    eventually(is_done, within_s=within_s, every_s=POLL_S, what=f"{count} messages sent again")
    return samples


def moved(samples: list[Sample]) -> Moved:
    """Return the rate from the first sample with a re-send to the last one without all.

    What was sent before and after does not count, nor does that time. Where there are no two such
    samples, the one with all is the last.
    """
    seen = [sample for sample in samples if sample.resent > 0]
    first = seen[0]
    last = next((one for one in seen[-2:0:-1] if one.resent > first.resent), seen[-1])
    if first is last:
        first = samples[-2] if len(samples) > 1 else Sample(last.at_s - POLL_S, 0, 0)
    count = last.resent - first.resent
    return Moved(count / (last.at_s - first.at_s), (last.cpu_s - first.cpu_s) / count * 1e6)


def sample(sidecar: SidecarProcess) -> Sample:
    """Look once."""
    assert sidecar.process is not None
    _, body = sidecar.get("/metrics")
    at_s = time.monotonic()
    resent = sum(
        float(line.rsplit(" ", 1)[1])
        for line in body.splitlines()
        if line.startswith("amqsidecar_resent_total{")
    )
    fields = Path(f"/proc/{sidecar.process.pid}/stat").read_text().rpartition(") ")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Sample(at_s, resent, ticks / os.sysconf("SC_CLK_TCK"))
