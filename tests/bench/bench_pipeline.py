"""The Spark jobs beside a plain Spark scan, over generated journals: time, memory, growth.

Each runs in a process of its own, with a new JVM on two cores, over ten times as many events as
before, up to the number asked for. Two plain queries tell what Spark itself needs for the same
columns: `scan` aggregates them by event type and destination, `by message` by message, which no
question about a message's life comes around. Starting Spark and making the journal don't count;
reading, writing tables and the report do. Of what is measured nothing is asserted; `recovery` and
`causes` have to answer what is true.
"""

import argparse
import json
import os
import pickle
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from support.machine.processes import run_program

if __name__ == "__main__":
    # Why: as a script its own folder comes first, where `bench` is a file and not the folder.
    sys.path.pop(0)

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.cli.main import run_command_line
from amqsidecar.pipeline.session import open_session
from amqsidecar.pipeline.sources.events import read_events
from bench.journal_generator import plan_for, policy_xml, write_journal
from bench.journal_truth import check_causes, check_recovery

MASTER = "local[2]"
CONF = ("spark.driver.memory=2g", "spark.sql.shuffle.partitions=16")
SMALLEST = 1_000_000
LOOK_EVERY_S = 0.1
WARM_RUNS = 2
MIB = 1024 * 1024
COLUMNS = (
    *("stream", "type", "at", "redelivery_id", "redelivery_count"),
    *("origin", "destination", "cause_group"),
)
"""What the jobs read of an event, and so the plain queries."""
CHECKS = {"recovery": check_recovery, "causes": check_causes}
JOBS = tuple(CHECKS)
JOBS_OF_THE_SMALLEST = ("whatif",)


class Run(NamedTuple):
    """What a job cost.

    Attributes:
        cpu_s: of all processors; says more than `seconds` where others use the machine.
        peak_mib: resident memory of the JVM and all Python processes together, at any time.
        load: of the machine, when it ended.
    """

    job: str
    events: int
    seconds: float
    cpu_s: float
    peak_mib: float
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument(
        "--skewed", action="store_true", help="one destination has 99 %% of the messages"
    )
    parser.add_argument("--only", nargs="+", help="jobs and queries to run; scan always runs")
    parser.add_argument("--folder", type=Path, help="where journals are made, else a temporary one")
    parser.add_argument(
        "--warm", action="store_true", help="all in one session, of each run the second counts"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        asked = json.loads(arguments.inside)
        took = run_inside(Path(asked.pop("journal")), Path(asked.pop("out")), **asked)
        sys.stdout.write(f"\n{json.dumps(took)}\n")
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        runs = []
        measured = measure_warm if arguments.warm else measure_all
        for run in measured(
            Path(folder), arguments.events, arguments.only, is_skewed=arguments.skewed
        ):
            sys.stderr.write(f"{run}\n")
            runs.append(run)
    sys.stdout.write(f"{machine()}\n\n{table(runs)}\n")


def measure_all(
    folder: Path, most: int, only: Sequence[str] | None, *, is_skewed: bool
) -> Iterator[Run]:
    events = min(SMALLEST, most)
    while events <= most:
        journal = folder / f"events-{events}"
        yield measure("generate", journal, events, is_skewed=is_skewed)
        jobs = (*JOBS, *JOBS_OF_THE_SMALLEST) if events <= SMALLEST else JOBS
        for job in (*QUERIES, *jobs):
            if only is None or job in (SCAN, *only):
                yield measure(job, journal, events, is_skewed=is_skewed)
        events *= 10


def measure_warm(
    folder: Path, most: int, only: Sequence[str] | None, *, is_skewed: bool
) -> Iterator[Run]:
    """Run everything in this process and its one session, so that no run pays for a cold JVM.

    Of each query and job the second run counts. Memory is that of all runs so far.
    """
    events = min(SMALLEST, most)
    while events <= most:
        journal = folder / f"events-{events}"
        for job in ("generate", *QUERIES, *JOBS):
            if job != "generate" and only is not None and job not in (SCAN, *only):
                continue
            with tempfile.TemporaryDirectory(dir=folder) as out:
                times = 1 if job == "generate" else WARM_RUNS
                for _ in range(times):
                    seconds, cpu_s = run_inside(
                        journal, Path(out), job=job, events=events, is_skewed=is_skewed
                    )
            memory = tree_rss(os.getpid()) / MIB
            yield Run(job, events, seconds, cpu_s, memory, os.getloadavg()[0])
        events *= 10


def measure(job: str, journal: Path, events: int, *, is_skewed: bool) -> Run:
    """Run a job, or a plain query, in a process of its own, and watch its memory."""
    with tempfile.TemporaryDirectory(dir=journal.parent) as out, tempfile.TemporaryFile() as log:
        asked = {
            "job": job,
            "journal": str(journal),
            "out": out,
            "events": events,
            "is_skewed": is_skewed,
        }
        process = subprocess.Popen(
            [sys.executable, __file__, "--inside", json.dumps(asked)],
            stdout=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_rss(process.pid))
            time.sleep(LOOK_EVERY_S)
        log.seek(0)
        said = log.read().decode().splitlines()
    if process.returncode:
        raise RuntimeError(f"{job} with {events} events ended with {process.returncode}: {said}")
    seconds, cpu_s = json.loads(said[-1])
    return Run(job, events, seconds, cpu_s, peak / MIB, os.getloadavg()[0])


def run_inside(
    journal: Path, out: Path, *, job: str, events: int, is_skewed: bool
) -> tuple[float, float]:
    """Return how many seconds it takes and works, from a session that is ready."""
    truth = journal.with_suffix(".truth")
    spark = open_session(f"bench {job}", MASTER, CONF)
    began_s, worked_s = time.monotonic(), tree_cpu_s(os.getpid())
    if job == "generate":
        plan = plan_for(events, is_skewed=is_skewed)
        truth.write_bytes(pickle.dumps(write_journal(spark, str(journal), plan)))
    elif job in QUERIES:
        QUERIES[job](read_events(spark, str(journal)).select(*COLUMNS)).collect()
    else:
        folders: tuple[str, ...] = ("--events", str(journal), "--output-folder", str(out / job))
        if job == "whatif":
            policy = out / "activemq.xml"
            policy.write_text(policy_xml(), encoding="utf-8")
            folders += ("--policy", f"today={policy}")
        code = run_command_line(["pipeline", job, *folders])
        if code:
            sys.exit(code)
    took = time.monotonic() - began_s, tree_cpu_s(os.getpid()) - worked_s
    if job in CHECKS:
        CHECKS[job](out / job, pickle.loads(truth.read_bytes()))
    return took


def scan(events: DataFrame) -> DataFrame:
    return events.groupBy("type", "destination").agg(*aggregates("redelivery_id"))


def by_message(events: DataFrame) -> DataFrame:
    """Return one row: every message is grouped, and a number per message is kept."""
    messages = events.groupBy("redelivery_id").agg(*aggregates("type", "destination"))
    return messages.agg(*(f.count_if(f.col(name).isNotNull()) for name in messages.columns))


SCAN = "scan"
QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {SCAN: scan, "by message": by_message}


def aggregates(*more: str) -> list[Any]:
    """Return what reads all columns and costs little."""
    # Why lengths: Spark would sort for the greatest text.
    texts = ("stream", "origin", "cause_group", *more)
    return [
        *(f.max(one).alias(one) for one in ("at", "redelivery_count")),
        *(f.sum(f.length(one)).alias(one) for one in texts),
    ]


def tree(root: int) -> Iterator[Path]:
    """Yield the folders in /proc of a process and of all that descend from it."""
    waiting = [root]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        yield process
        # Why twice: it may end while it is looked at, and so may each of its threads.
        with suppress(OSError):
            for task in (process / "task").iterdir():
                with suppress(OSError):
                    waiting += map(int, (task / "children").read_text().split())


def tree_rss(root: int) -> int:
    """Return the resident bytes of a process and all that descend from it."""
    found = set()
    for process in tree(root):
        with suppress(OSError):
            found.add((process / "statm").read_text())
    # Why a set: what has just been forked has the memory of its parent, not as much again.
    return sum(int(one.split()[1]) for one in found) * os.sysconf("SC_PAGE_SIZE")


def tree_cpu_s(root: int) -> float:
    """Return the processor seconds of a process and all that descend from it, ended ones too."""
    total = 0
    for process in tree(root):
        with suppress(OSError):
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, after_name[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def table(runs: Sequence[Run]) -> str:
    """Return the runs as a table; ratios are to the scan of the same journal."""
    scans = {run.events: run for run in runs if run.job == SCAN}
    lines = [
        "| events | job | seconds | to the scan | CPU seconds | to the scan | peak MiB | load |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        scan = scans[run.events]
        lines.append(
            f"| {run.events:,} | {run.job} "
            f"| {run.seconds:.1f} | {run.seconds / scan.seconds:.1f} "
            f"| {run.cpu_s:.1f} | {run.cpu_s / scan.cpu_s:.1f} "
            f"| {run.peak_mib:,.0f} | {run.load:.1f} |"
        )
    return "\n".join(lines)


def machine() -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    commit = run_program(git).stdout.strip()
    return (
        f"Commit {commit or 'unknown'}, {os.cpu_count()} cores, {memory_gib:.0f} GiB of memory, "
        f"Python {platform.python_version()}, PySpark {pyspark.__version__}"
    )


if __name__ == "__main__":
    main()
