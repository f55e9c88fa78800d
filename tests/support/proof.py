"""Everything at length, stage by stage, with one report: `make proof`.

A stage that fails does not stop the others. What each printed is in `dist/proof/STAGE.log`.
"""

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
LOGS: Final = ROOT / "dist" / "proof"
RECORDS: Final = (
    "sidecar/amqsidecar/diagnosis/fidelity.json",
    "tests/field/field-tests.json",
    "deploy/evidence/records/field-tests.csv",
)
"""What the stages `matrix` and `field` write again: the same, unless a broker or we changed."""


class Stage(NamedTuple):
    """One part of the proof.

    Attributes:
        name: what `--only` takes.
        proves: its claim, in the report.
        command: of a process in the root of the checkout.
    """

    name: str
    proves: str
    command: Sequence[str]


STAGES: Final = (
    Stage("test", "every test of make test, with each column", ("make", "test", "PROOF=1")),
    Stage("versions", "the wires on each release of a broker", ("make", "versions")),
    Stage(
        "helm-4",
        "the chart with Helm 4",
        ("env", "TEST_HELM=4.3.2", ".venv/bin/pytest", "-q", "tests/helm"),
    ),
    Stage("simulate", "10,000 simulated histories", ("make", "simulate")),
    Stage("fuzz", "20,000 examples of bad input for each parser", ("make", "fuzz")),
    Stage("differential", "20 configurations beside a whole broker", ("make", "differential")),
    Stage("matrix", "every producer, consumer, wire and broker", ("make", "matrix")),
    Stage("field", "every stock broker and typical mistake", ("make", "field")),
    Stage("records", "both found what is recorded", ("git", "diff", "--exit-code", *RECORDS)),
    Stage("combinations", "2,000 combinations of features", ("make", "combinations")),
    Stage("chaos", "30 minutes of faults under load", ("make", "chaos")),
    Stage("soak", "memory over a million dead letters", ("make", "soak")),
    Stage("newcomer", "the README's commands on own brokers, timed", ("make", "newcomer")),
    Stage("interpreters", "install and demo on each Python", ("make", "interpreters")),
    Stage("fresh-machine", "the demo without tools and caches", ("make", "fresh-machine")),
    Stage("kubernetes", "the chart on a real cluster", ("make", "kubernetes")),
)


class Result(NamedTuple):
    """How a stage ended.

    Attributes:
        exit_code: 0 = all is as promised.
        tests: by outcome in pytest's words, such as `passed`; empty where pytest did not run.
        seconds: from begin to end.
    """

    stage: Stage
    exit_code: int
    tests: Counter[str]
    seconds: float


def count_tests(lines: Iterable[str]) -> Counter[str]:
    """Return the tests by outcome, as the last line of each pytest run says."""
    found: Counter[str] = Counter()
    for line in lines:
        if re.search(r"\bin \d+\.\d+s\b", line):
            for number, outcome in re.findall(r"(\d+) (passed|failed|skipped|error)", line):
                found[outcome] += int(number)
    return found


def run(stage: Stage, logs: Path = LOGS) -> Result:
    """Run a stage; its output is shown and kept in a log of its name."""
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{stage.name}.log"
    print(f"\n=== {stage.name}: {stage.proves}", flush=True)
    began = time.monotonic()
    with (
        path.open("wb") as log,
        subprocess.Popen(
            stage.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
    tests = count_tests(path.read_text(encoding="utf-8", errors="replace").splitlines())
    return Result(stage, process.returncode, tests, time.monotonic() - began)


def report(results: Iterable[Result]) -> str:
    """Return one table in Markdown of all stages."""
    rows = ["| stage | result | tests | seconds | what it proves |", "|---|---|---|---|---|"]
    for one in results:
        outcome = "passed" if one.exit_code == 0 else f"**failed** (exit code {one.exit_code})"
        tests = ", ".join(f"{number} {name}" for name, number in one.tests.items())
        cells = (one.stage.name, outcome, tests, f"{one.seconds:.0f}", one.stage.proves)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Run the stages and print the report; return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of stages, divided by commas")
    asked = list(filter(None, parser.parse_args(arguments).only.split(",")))
    if unknown := set(asked) - {stage.name for stage in STAGES}:
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    results = [run(stage) for stage in STAGES if not asked or stage.name in asked]
    print(f"\n{report(results)}\n\nlogs: {LOGS}")
    return int(any(one.exit_code for one in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
