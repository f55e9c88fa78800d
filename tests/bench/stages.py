"""Processor time per moved message by stage, of this checkout and perhaps of another one beside it.

Run it in `tests` with `python -m bench.stages`, or with `--other FOLDER`, where the folder is a
clone at the commit to compare with; it needs no environment of its own. On a loaded machine the
processor time of one run says little, and the ratio of two runs next to each other much; their
order changes from round to round. Nothing is asserted but that all messages arrived.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.dead_letters import DeadLetters, dead_letters
from bench.peers import BROKERS, NAMES
from bench.sidecar_watch import measured_sidecar, watch
from bench.staged_sidecar import Told
from support.jms.process import LONG_RUN, shared_process
from support.otlp_receiver import otlp_receiver

OWN = Path(__file__).parents[2]
PROGRAM = ("-m", "bench.staged_sidecar")
OTHER_THREADS = "other threads"


class Program(NamedTuple):
    """What is measured: a checkout, run by an interpreter that has the dependencies."""

    checkout: Path
    python: Path
    sets: tuple[str, ...] = ()


OWN_PROGRAM = Program(OWN, Path(sys.executable))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="a clone to compare with")
    parser.add_argument("--other-python", type=Path, help="an interpreter to compare with")
    parser.add_argument("--broker", choices=tuple(BROKERS), default="artemis")
    parser.add_argument("--wire", help="default: core or openwire")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000, help="messages per round and checkout")
    parser.add_argument("--delay-ms", type=int, default=0, help="1: each is a row of the schedule")
    parser.add_argument("--otel", type=float, help="compare with sending spans: the sampling")
    options = parser.parse_args()
    shared_process(LONG_RUN)
    wire = options.wire or ("core" if options.broker.startswith("artemis") else "openwire")
    other = Program(options.other or OWN, options.other_python or OWN_PROGRAM.python)
    programs = [OWN_PROGRAM] if other == OWN_PROGRAM else [other, OWN_PROGRAM]
    rounds: list[list[Told]] = []
    with (
        otlp_receiver() as receiver,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        BROKERS[options.broker]() as broker,
        dead_letters(broker, "bench.moved") as dead,
    ):
        if options.otel is not None:
            dead.properties["traceparent"] = f"00-{'ab' * 16}-{'cd' * 8}-01"
            sets = (f"otel.endpoint={receiver.url}", f"otel.sampling={options.otel}")
            programs = [OWN_PROGRAM, OWN_PROGRAM._replace(sets=sets)]
        for number in range(options.rounds + 1):
            told: dict[Program, Told] = {}
            for program in programs if number % 2 else programs[::-1]:
                run = Path(folder, f"{number}-{len(told)}")
                told[program] = bench_stages(
                    dead, run, options.count, wire, program, options.delay_ms
                )
            if number:  # The first round warms broker and bytecode up.
                rounds.append([told[program] for program in programs])
                print(*(f"{whole_us(one):.1f}" for one in rounds[-1]), "µs", file=sys.stderr)
    print(
        f"{NAMES[options.broker]}; {wire}://, {options.rounds} rounds of {options.count} messages, "
        f"delay {options.delay_ms} ms"
    )
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    print(table(rounds))
    if len(programs) > 1:
        ratios = [whole_us(ours) / whole_us(other) for other, ours in rounds]
        print(f"median of the ratios of the rounds, here by there: {median(ratios):.3f}")
        print(f"spans that arrived: {len(receiver.spans)}")


def bench_stages(
    dead: DeadLetters, folder: Path, count: int, wire: str, program: Program, delay_ms: int = 0
) -> Told:
    """Let a sidecar move this many dead letters, and return what it spent."""
    dead.put(count)
    with measured_sidecar(folder, dead.broker, delay_ms=delay_ms, wire=wire) as sidecar:
        sidecar.program = (str(program.python), *PROGRAM)
        sidecar.options += program.sets
        checkout = program.checkout
        folders = (checkout / "sidecar", checkout / "plugins", OWN / "tests")
        path = os.pathsep.join(str(folder.resolve()) for folder in folders)
        sidecar.start(environ={"PYTHONPATH": path})
        watch(sidecar, count)
        sidecar.stop()
        (line,) = [line for line in sidecar.log_lines() if line.get("event") == "stages"]
    arrived = dead.peer.drain(dead.origin, count, wait_ms=10_000)
    assert arrived.count == count, f"{arrived.count} of {count} messages arrived"
    return msgspec.convert(line, Told)


def whole_us(told: Told) -> float:
    """Return the processor time of the whole process per message."""
    return told.process_ns / told.moved / 1e3


def by_stage_us(told: Told) -> dict[str, float]:
    """Return the processor time per message by stage."""
    others_ns = told.process_ns - sum(told.stages_ns.values())
    stages_ns = {**told.stages_ns, OTHER_THREADS: others_ns}
    return {name: spent_ns / told.moved / 1e3 for name, spent_ns in stages_ns.items()}


def table(rounds: Sequence[Sequence[Told]]) -> str:
    """Return the medians over the rounds, the longest stages of the last column first."""
    columns: list[dict[str, float]] = []
    for runs in zip(*rounds, strict=True):
        found = [by_stage_us(told) for told in runs]
        stages = dict.fromkeys(name for one in found for name in one)
        column = {name: median(one.get(name, 0) for one in found) for name in stages}
        columns.append({"whole process": median(map(whole_us, runs)), **column})
    names = sorted(columns[-1], key=lambda name: -columns[-1][name])
    head = ["stage, µs per message", *(["there"] if len(columns) > 1 else []), "here"]
    lines = [head, ["---"] * len(head)]
    lines += [[name, *(f"{one.get(name, 0):.1f}" for one in columns)] for name in names]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
