"""What a journal costs a sidecar that moves dead letters: with and without one, in turns.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_journal.py --count 20000 --rounds 5

Each run gets as many messages in the same dead-letter queue of the same broker process. With a
journal the store keeps account of segments, and they are written in the same process: several of
them in each run, with fewer events than by default, so that nothing of it is left for later.
"""

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.dead_letters import DeadLetters, dead_letters
from bench.sidecar_watch import Moved, measured_sidecar, moved, watch
from support.brokers.real import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.jms.process import LONG_RUN, shared_process
from support.versions import CLASSIC_6

EVENTS_PER_MESSAGE = 3
SEGMENTS = 6
_folder_numbers = itertools.count(1)


class Cost(NamedTuple):
    """Medians over the rounds; the ratios are medians of the rounds' ratios, with : without.

    Attributes:
        segments: written while messages were moved, in all rounds.
    """

    without: Moved
    with_journal: Moved
    speed_ratio: float
    cpu_ratio: float
    segments: int


def bench_journal(broker: Broker, folder: Path, *, count: int, rounds: int) -> Cost:
    """Return the figures; the first round warms up and does not count."""
    pairs: list[tuple[Moved, Moved]] = []
    written = 0
    with dead_letters(broker, "bench.journal") as dead:
        for number in range(rounds + 1):
            found: dict[bool, Moved] = {}
            for has_journal in (True, False) if number % 2 else (False, True):
                found[has_journal], segments = _run(dead, folder, count, has_journal)
                written += segments
            if number:
                pairs.append((found[False], found[True]))
    return Cost(
        without=_median([without for without, _ in pairs]),
        with_journal=_median([with_journal for _, with_journal in pairs]),
        speed_ratio=median(one.per_second / none.per_second for none, one in pairs),
        cpu_ratio=median(one.cpu_us / none.cpu_us for none, one in pairs),
        segments=written,
    )


def _run(dead: DeadLetters, folder: Path, count: int, has_journal: bool) -> tuple[Moved, int]:
    run = folder / f"journal-{next(_folder_numbers)}"
    dead.put(count)
    with measured_sidecar(run, dead.broker, delay_ms=0) as sidecar:
        if has_journal:
            per_segment = max(1, EVENTS_PER_MESSAGE * count // SEGMENTS)
            sidecar.options += [
                f"journal.path={run / 'journal'}",
                f"journal.segment_events={per_segment}",
            ]
        sidecar.start()
        samples = watch(sidecar, count)
        segments = int(sidecar.metric("amqsidecar_journal_segments_total"))
        sidecar.stop()
    arrived = dead.peer.drain(dead.origin, count, wait_ms=10_000)
    assert arrived.count == count, f"{arrived.count} of {count} messages arrived"
    return moved(samples), segments


def _median(runs: list[Moved]) -> Moved:
    return Moved(median(run.per_second for run in runs), median(run.cpu_us for run in runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    shared_process(LONG_RUN)
    brokers: list[Broker] = [
        ArtemisBroker(jvm_flags=FULL_SPEED),
        ClassicBroker(CLASSIC_6, jvm_flags=FULL_SPEED),
    ]
    print(f"load {os.getloadavg()[0]:.1f} at the beginning")
    print("| where | without | with a journal | ratio | processor time | ratio | segments |")
    print("|---|---|---|---|---|---|---|")
    for broker in brokers:
        with broker, tempfile.TemporaryDirectory() as folder:
            cost = bench_journal(broker, Path(folder), count=options.count, rounds=options.rounds)
        print(
            f"| {broker.kind} {broker.version} | {cost.without.per_second:,.0f}/s "
            f"| {cost.with_journal.per_second:,.0f}/s | {cost.speed_ratio:.2f} "
            f"| {cost.without.cpu_us:.0f} µs, {cost.with_journal.cpu_us:.0f} µs "
            f"| {cost.cpu_ratio:.2f} | {cost.segments} |"
        )
        sys.stdout.flush()
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
