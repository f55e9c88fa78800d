"""Kill, cut, stop and fill everything under load, and count what became of each message.

    PYTHONPATH=tests python -m chaos.chaos --minutes 30 --seed 0 [--only artemis-amqp,...]

One seed decides the plan of each pair: which faults, in which order, with which share of chance.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from chaos import disk, faults
from chaos.accounting import account, hold_against_journal, settle
from chaos.faults import Step
from chaos.pairs import PAIRS, Pair
from chaos.report import Outcome, record, table
from chaos.stage import Stage

REPORT = Path(__file__).parents[2] / "deploy" / "evidence" / "records" / "chaos.csv"


def plan(seed: int, pair: Pair, fault: str | None) -> Iterator[Step]:
    """Return the steps of a pair, without end: deck after deck of all its faults, shuffled.

    Args:
        fault: the only one, when there is to be no other.
    """
    chance = random.Random(f"{seed} {pair.name}")
    while True:
        names = [fault] if fault else faults.deck(pair)
        chance.shuffle(names)
        for name in names:
            yield Step(name, moment_s=chance.uniform(0.0, 0.8), share=chance.random())


def short_plans(seed: int, pairs: Sequence[Pair]) -> list[Iterator[Step]]:
    """Return plans in which the pairs share one fault of each kind."""
    chance = random.Random(seed)
    plans: list[list[Step]] = [[] for _ in pairs]
    for name in faults.SHORT:
        able = [plan for plan, pair in zip(plans, pairs, strict=True) if name in faults.deck(pair)]
        if able:
            min(able, key=len).append(Step(name, 0.0, chance.random()))
    return [iter(plan) for plan in plans]


def run(pair: Pair, steps: Iterator[Step], seed: int, until_s: float, folder: Path) -> Outcome:
    """Do the steps, at least one, until the time is over or none is left; then count."""
    with Stage(pair, folder / pair.name, random.Random(f"load {seed} {pair.name}")) as stage:
        for number, step in enumerate(steps):
            # Why one at least: the pairs before may have used up its time.
            if number and time.monotonic() > until_s:
                break
            took_s = faults.apply(stage, step)
            print(f"  {step.name}: sends again after {took_s:.1f} s", flush=True)
        accounts = account(stage, settle(stage))
        for sidecar in stage.sidecars:
            assert "cycle_in_doubt" not in sidecar.log(), "the token queue was lost"
        stage.stop_sidecars()
        hold_against_journal(stage, accounts)
        return Outcome(stage, accounts)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="all pairs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="one fault of each kind")
    parser.add_argument("--fault", choices=faults.FAULTS, help="this one again and again")
    parser.add_argument("--only", default="", help="names of pairs, with commas")
    parser.add_argument("--report", type=Path, help=f"default: {REPORT.name}, of all pairs")
    parser.add_argument("--keep", type=Path, help="folder in which the sidecars' logs are left")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the pairs one after the other; return 1 when a message is not accounted for."""
    options = parse(arguments)
    only = [name for name in options.only.split(",") if name]
    pairs = [pair for pair in PAIRS if not only or pair.name in only]
    plans = (
        short_plans(options.seed, pairs)
        if options.short
        else [plan(options.seed, pair, options.fault) for pair in pairs]
    )
    report = options.report or (None if only or options.short or options.fault else REPORT)
    began_s = time.monotonic()
    outcomes: list[Outcome] = []
    broken: list[str] = []
    print(f"seed {options.seed}")
    if not disk.is_own():
        print(disk.NOT_HERE)
    with ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-"))
        for number, (pair, steps) in enumerate(zip(pairs, plans, strict=True), 1):
            print(f"{pair.name}:", flush=True)
            until_s = began_s + options.minutes * 60 * number / len(pairs)
            try:
                outcome = run(pair, steps, options.seed, until_s, Path(folder))
            except Exception as error:  # noqa: BLE001 - the other pairs are run all the same
                traceback.print_exc()
                broken.append(f"{pair.name} did not come to its end: {str(error).splitlines()[:1]}")
                continue
            outcomes.append(outcome)
            print("\n".join(outcome.accounts.faults[:50]), flush=True)
            if report is not None:
                minutes = (time.monotonic() - began_s) / 60
                report.write_text(record(outcomes, options.seed, minutes), encoding="utf-8")
    print(*broken, sep="\n")
    if outcomes:
        print(table(outcomes))
    return 1 if broken or any(outcome.accounts.faults for outcome in outcomes) else 0


if __name__ == "__main__":
    disk.start_anew_in_own_namespaces()
    sys.exit(main(sys.argv[1:]))
