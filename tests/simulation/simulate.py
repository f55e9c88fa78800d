"""Many simulated histories, on all cores; or one of them, printed whole.

python -m simulation.simulate --seeds 10000 --seed 0
python -m simulation.simulate --seeds 1 --seed 1234 --trace
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulation.checkers import CHECKERS, Violation
from simulation.run import Run

_CHUNK = 25
_SHOWN = 20


class Outcome(NamedTuple):
    """What some histories came to.

    Attributes:
        broken: seeds whose histories broke a claim, with what was said of it.
        happened: counts of what went wrong and of what was done.
        died_at: steps at which processes died.
        cpu_s: what it took.
    """

    broken: dict[int, Sequence[Violation]]
    happened: Counter[str]
    died_at: Counter[str]
    cpu_s: float


def simulate(seeds: Sequence[int]) -> Outcome:
    """Run these seeds one after the other."""
    outcome = Outcome({}, Counter(), Counter(), 0.0)
    began_s = time.process_time()
    for seed in seeds:
        run = Run(seed)
        if violations := run.go():
            outcome.broken[seed] = violations
        outcome.happened.update(run.faults.counts)
        outcome.happened.update(run.done())
        outcome.died_at.update(run.faults.died_at)
    return outcome._replace(cpu_s=time.process_time() - began_s)


def simulate_on_all_cores(first: int, count: int) -> Outcome:
    """Run `count` seeds from `first` on."""
    total = Outcome({}, Counter(), Counter(), 0.0)
    with multiprocessing.Pool() as pool:
        for one in pool.imap_unordered(simulate, _chunks(first, count)):
            total.broken.update(one.broken)
            total.happened.update(one.happened)
            total.died_at.update(one.died_at)
            total = total._replace(cpu_s=total.cpu_s + one.cpu_s)
    return total


def _chunks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, _CHUNK):
        yield range(start, min(start + _CHUNK, first + count))


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def main() -> int:
    """Run what the arguments say; return 1 if a claim did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--trace", action="store_true", help="tell the history of the first one")
    options = parser.parse_args()
    if options.trace:
        run = Run(options.seed, traces=True)
        violations = run.go()
        print(*run.trace, *violations, sep="\n")
        return 1 if violations else 0
    began_s = time.monotonic()
    total = simulate_on_all_cores(options.seed, options.seeds)
    took_s = time.monotonic() - began_s
    print(
        f"{options.seeds} seeds from {options.seed} on in {took_s:.1f} s on {os.cpu_count()} cores:"
        f" {options.seeds / took_s:.0f} seeds/s, {total.cpu_s / options.seeds * 1000:.1f} ms of CPU"
        " each"
    )
    print(f"happened: {_told(total.happened)}")
    print(f"processes died at: {_told(total.died_at)}")
    for checker in CHECKERS:
        of_checker = sum(
            any(one.checker == checker.__name__ for one in violations)
            for violations in total.broken.values()
        )
        verdict = f"BROKEN in {of_checker}" if of_checker else "held in all"
        print(f"{verdict:12} {checker.__name__}: {(checker.__doc__ or '').partition(chr(10))[0]}")
    for seed in sorted(total.broken)[:_SHOWN]:
        print(f"seed {seed}: {total.broken[seed][0]}")
        print(f"  PYTHONPATH=tests python -m simulation.simulate --seed {seed} --seeds 1 --trace")
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
