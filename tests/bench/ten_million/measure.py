"""Ten million waiting messages: what everything costs then, beside ten thousand.

The store is filled step by step, to 10,000, 100,000, a million, ten million; at each step cycles
run on it, and a real sidecar on a real broker. At the last step operators act on a tenth of all by
filter, history is forgotten, and space given back, each while cycles run. Nothing is asserted.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from amqsidecar.clock import SystemClock
from amqsidecar.runtime.housekeeping import Housekeeping
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.metrics import Metrics
from bench.dead_letters import DeadLetters, dead_letters
from bench.ten_million.cycles import Cycles, Found
from bench.ten_million.rows import (
    Model,
    Scale,
    SqliteScale,
    destination,
    load,
    unload,
)
from bench.ten_million.service import Service, measure_service, sidecar_on, take_model
from support.brokers.real import FULL_SPEED, ArtemisBroker
from support.jms.process import LONG_RUN, shared_process
from support.machine.processes import machine_words, run_program
from support.sidecar.process import COMMAND

STEPS = (10_000, 100_000, 1_000_000, 10_000_000)
PACE_S = 0.05


class Sizes(NamedTuple):
    """How much is measured: cycles, messages through a broker, seconds of a steady rate, rest."""

    cycles: int
    moves: int
    per_second: int
    seconds: float
    rest_s: float


class Step(NamedTuple):
    """What was measured with this many messages waiting."""

    waiting: int
    load: float
    bytes_each: float
    payload_bytes: int
    many: Found
    few: Found
    service: Service


class Meanwhile(NamedTuple):
    """What cycles cost while something else worked on the store, and how that went."""

    what: str
    said: str
    seconds: float
    load: float
    cycles: Found


def measure_steps(
    scale: Scale, model: Model, folder: Path, dead: DeadLetters, steps: Sequence[int], sizes: Sizes
) -> Iterator[Step]:
    waiting = 1
    for count in steps:
        load(scale, model, count - waiting, _now_ms())
        waiting = count
        bytes_each = size_bytes(scale) / waiting
        yield Step(
            waiting,
            os.getloadavg()[0],
            bytes_each,
            len(model.row.message),
            Cycles(scale, model, 1_000).run(sizes.cycles),
            Cycles(scale, model, 10).run(sizes.cycles * 10),
            measure_service(
                scale,
                folder,
                dead,
                moves=sizes.moves,
                per_second=sizes.per_second,
                seconds=sizes.seconds,
            ),
        )


def measure_meanwhile(
    scale: Scale, model: Model, folder: Path, dead: DeadLetters, waiting: int, sizes: Sizes
) -> Iterator[Meanwhile]:
    """Let others work on the store while cycles run at a steady pace."""

    def beside(what: str, work: Callable[[], str]) -> Meanwhile:
        with Cycles(scale, model, 100, PACE_S) as cycles:
            began_s = time.monotonic()
            said = work()
            seconds = time.monotonic() - began_s
        return Meanwhile(what, said, seconds, os.getloadavg()[0], cycles.found())

    # Why: it only lends its configuration to the commands, and never runs.
    options = sidecar_on(scale, folder, dead, 0).options

    def command(*arguments: str, expect: int = 0) -> str:
        sets = [part for option in options for part in ("--set", option)]
        done = run_program([*COMMAND, *arguments, *sets])
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done.stdout.strip()

    def act(action: str, number: int) -> str:
        return command(action, "--destination", destination(number), "--yes")

    def rest() -> str:
        time.sleep(sizes.rest_s)
        return ""

    yield beside("nothing", rest)
    yield beside("retry a tenth by destination", lambda: act("retry", 2))
    yield beside("cancel a tenth by destination", lambda: act("cancel", 4))
    yield beside(
        "a filter that hits nothing",
        lambda: command("hold", "--cause", "none", "--yes", expect=1),
    )
    yield beside("forget all history", lambda: _keep_house(scale))
    unload(scale, waiting * 6 // 10)
    yield beside("give space back", lambda: _keep_house(scale))


def _opened(schedule: Schedule) -> Schedule:
    schedule.reopen()
    return schedule


def _keep_house(scale: Scale) -> str:
    """Do once what the service does once a minute, with no history to keep."""
    before_mib = size_bytes(scale) / 2**20
    Housekeeping(
        open_schedule=lambda: _opened(scale.store()),
        clock=SystemClock(),
        metrics=Metrics(),
        keep_ms=0,
        max_events=0,
    ).forget()
    return f"{before_mib:,.0f} to {size_bytes(scale) / 2**20:,.0f} MiB"


def size_bytes(scale: Scale) -> int:
    store = scale.store()
    store.reopen()
    found = store.size_bytes()
    store.close()
    return found


def table_of_steps(steps: Sequence[Step]) -> str:
    lines = [
        "| | " + " | ".join(f"{step.waiting:,} waiting" for step in steps) + " |",
        "|---|" + "---:|" * len(steps),
    ]
    rows: dict[str, Callable[[Step], str]] = {
        "load when it began": lambda step: f"{step.load:.1f}",
        "bytes per message; of them payload": lambda step: (
            f"{step.bytes_each:,.0f}; {step.payload_bytes:,}"
        ),
        "claim 1000: p50, p99, max": lambda step: str(step.many.claims),
        "processor time of such a claim": lambda step: f"{step.many.claim_cpu_ms:.1f} ms",
        "commit of such a cycle": lambda step: str(step.many.commits),
        "the whole of it in the store": lambda step: str(step.many.cycles),
        "processor time per message of it": lambda step: f"{step.many.cpu_us:.0f} µs",
        "written to the disk per message of it": lambda step: f"{step.many.written_kib:.0f} KiB",
        "claim 10: p50, p99, max": lambda step: str(step.few.claims),
        "the whole of such a cycle": lambda step: str(step.few.cycles),
        "start to ready; processor time for it": lambda step: (
            f"{step.service.ready_s:.1f}; {step.service.ready_cpu_s:.1f} s"
        ),
        "`amqsidecar status`": lambda step: f"{step.service.status_s:.2f} s",
        "resident memory when ready; at most": lambda step: (
            f"{step.service.rss_mib:.0f}; {step.service.rss_max_mib:.0f} MiB"
        ),
        "moves dead letters": lambda step: f"{step.service.moved_per_second:,.0f}/s",
        "processor time of the service for each": lambda step: f"{step.service.cpu_us:.0f} µs",
        "lateness p50, p99": lambda step: (
            f"{step.service.late_ms[0]:.0f}, {step.service.late_ms[1]:.0f} ms"
        ),
    }
    lines += (f"| {what} | " + " | ".join(map(tell, steps)) + " |" for what, tell in rows.items())
    return "\n".join(lines)


def table_of_meanwhile(found: Sequence[Meanwhile]) -> str:
    lines = [
        "| meanwhile | took | cycles of 100: p50, p99, max | µs per message | load | it said |",
        "|---|---:|---:|---:|---:|---|",
    ]
    lines += (
        f"| {one.what} | {one.seconds:.1f} s | {one.cycles.cycles} | {one.cycles.cpu_us:.0f} "
        f"| {one.load:.1f} | {one.said} |"
        for one in found
    )
    return "\n".join(lines)


def _now_ms() -> int:
    return int(time.time() * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--only-last", action="store_true", help="leave the steps before out")
    options = parser.parse_args()
    shared_process(LONG_RUN)
    steps = [count for count in STEPS if count < options.rows] + [options.rows]
    sizes = Sizes(cycles=40, moves=20_000, per_second=500, seconds=20, rest_s=5)
    print(f"--rows {options.rows}, {machine_words()}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="scale-", dir=options.folder) as name,
        ArtemisBroker(jvm_flags=FULL_SPEED) as broker,
        dead_letters(broker, "bench.scaled") as dead,
    ):
        folder = Path(name)
        scale = SqliteScale(folder)
        model = take_model(scale, folder, dead)
        found = []
        for step in measure_steps(
            scale, model, folder, dead, steps[-1:] if options.only_last else steps, sizes
        ):
            found.append(step)
            print(table_of_steps(found), flush=True)
        beside = []
        for one in measure_meanwhile(scale, model, folder, dead, options.rows, sizes):
            beside.append(one)
            print(table_of_meanwhile(beside), flush=True)


if __name__ == "__main__":
    main()
