"""The installed command over a store in which millions of messages wait, on a real broker."""

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.dead_letters import DeadLetters, dead_letter_queue
from bench.sidecar_watch import moved, policy_file, sample, watch
from bench.ten_million.rows import Model, Scale, model_of
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import eventually

FAR_MS = 30 * 24 * 3_600_000
DELAY_MS = 1000
_BUCKET = re.compile(r'^amqsidecar_lateness_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_numbers = itertools.count(1)


class Service(NamedTuple):
    """What a service costs over a backlog.

    Attributes:
        ready_s: from the start of the process until /readyz says yes; `ready_cpu_s` its processor
            time by then.
        status_s: `amqsidecar status`, from its start to its end.
        rss_mib: resident memory when it is ready; `rss_max_mib` at any time.
        moved_per_second: dead letters taken and sent again, with no delay.
        cpu_us: processor time for each.
        late_ms: at a steady rate, after a delay, p50 and p99, from the buckets of the metric.
    """

    ready_s: float
    ready_cpu_s: float
    status_s: float
    rss_mib: float
    rss_max_mib: float
    moved_per_second: float
    cpu_us: float
    late_ms: tuple[float, float]


def sidecar_on(scale: Scale, folder: Path, dead: DeadLetters, delay_ms: int) -> SidecarProcess:
    run = folder / f"run-{next(_numbers)}"
    run.mkdir()
    return SidecarProcess(
        run,
        dead.broker.amqp_url,
        policy=policy_file(run, delay_ms),
        sets=(
            f"store.url={scale.url}",
            "intake.backlog=process",
            f"intake.queues=[{dead_letter_queue(dead.broker)}]",
            "discovery.interval_s=30",
            "cycle.max_wait_ms=500",
        ),
        program=COMMAND,
    )


def take_model(scale: Scale, folder: Path, dead: DeadLetters) -> Model:
    """Let a sidecar take one dead letter into the empty store, and return it."""
    with sidecar_on(scale, folder, dead, FAR_MS) as sidecar:
        sidecar.start()
        dead.put(1)
        eventually(lambda: sidecar.json_command("status")["total"] == 1, what="it waits")
        sidecar.stop()
    return model_of(scale)


def measure_service(
    scale: Scale, folder: Path, dead: DeadLetters, *, moves: int, per_second: int, seconds: float
) -> Service:
    with sidecar_on(scale, folder, dead, 0) as sidecar:
        ready_s = _timed(sidecar.start)
        ready_cpu_s = sample(sidecar).cpu_s
        rss_mib = memory_mib(sidecar, "VmRSS")
        status_s = median(_timed(lambda: sidecar.json_command("status")) for _ in range(3))
        dead.put(moves)
        speed = moved(watch(sidecar, moves))
        rss_max_mib = memory_mib(sidecar, "VmHWM")
        sidecar.stop()
    with sidecar_on(scale, folder, dead, DELAY_MS) as sidecar:
        sidecar.start()
        count = int(per_second * seconds)
        dead.put(count, per_second=per_second)
        watch(sidecar, count)
        late_ms = (lateness_ms(sidecar, 0.5), lateness_ms(sidecar, 0.99))
        rss_max_mib = max(rss_max_mib, memory_mib(sidecar, "VmHWM"))
        sidecar.stop()
    dead.peer.drain(dead.origin, moves + count, wait_ms=10_000)
    return Service(
        ready_s,
        ready_cpu_s,
        status_s,
        rss_mib,
        rss_max_mib,
        speed.per_second,
        speed.cpu_us,
        late_ms,
    )


def memory_mib(sidecar: SidecarProcess, what: str) -> float:
    assert sidecar.process is not None
    said = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB$", said, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def lateness_ms(sidecar: SidecarProcess, share: float) -> float:
    """Return what that share of all re-sends was not later than, even within its bucket."""
    buckets = [
        (float(bound), float(count)) for bound, count in _BUCKET.findall(sidecar.get("/metrics")[1])
    ]
    wanted = share * buckets[-1][1]
    below_s = below = 0.0
    for bound_s, count in buckets:
        if count >= wanted:
            part = (wanted - below) / (count - below) if count > below else 0.0
            return (below_s + part * (bound_s - below_s)) * 1000
        below_s, below = bound_s, count
    raise AssertionError("the last bucket holds all")


def _timed(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s
