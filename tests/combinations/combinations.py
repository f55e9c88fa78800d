"""Plays many rows of the array: `python -m combinations.combinations --rows 2000 --seed 0`.

A row that breaks the law is printed with the command that repeats it alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

from combinations.axes import (
    AXES,
    DRESSES,
    Asker,
    Content,
    Death,
    Detour,
    Note,
    Place,
    Policy,
    Row,
    Setup,
    Wire,
    exists,
)
from combinations.covering import Pair, all_rows, covering_rows, pairs_in, pairs_of
from combinations.play import Brokers, Verdict, play

ROWS_OF_A_CHANGE: Final = 60
SEED_OF_A_CHANGE: Final = 39
"""What `make test` plays; the first rows of this seed find each fault of `planted.py`."""
SETUPS_OF_A_GROUP: Final = 2
"""Setups of each wire with each policy, chosen by the seed; each needs a sidecar of its own."""
_CANDIDATES: Final = 40
AT_ONCE: Final = 250
"""Rows that share brokers; an Artemis of tests gets full by the settings of some 1,500."""


def make_row(*values: str) -> Row:
    """Return the row of these values, one for each axis, and those of its dress, if any."""
    wire, policy, asker, place, note, death, *dress = values
    setup, content, detour = dress or (Setup.PLAIN, Content.TEXT, Detour.NONE)
    return Row(
        Wire(wire),
        Policy(policy),
        Asker(asker),
        Place(place),
        Note(note),
        Death(death),
        Setup(setup),
        Content(content),
        Detour(detour),
    )


@cache
def rows_that_exist() -> Sequence[Row]:
    """Return all of them, undressed."""
    return all_rows(AXES, make_row, lambda row: exists(row) and not row.is_dressed)


def array(count: int, seed: int) -> Mapping[int, Row]:
    """Return the rows of an array by number."""
    undressed = [tuple(map(str, row[: len(AXES)])) for row in rows_that_exist()]
    chosen = covering_rows(undressed, count, seed)
    return {number: make_row(*values) for number, values in enumerate(chosen)}


def dressed(rows: Mapping[int, Row], seed: int) -> Mapping[int, Row]:
    """Return rows with values of `DRESSES`, each chosen for the pairs that those before it lack."""
    chance = random.Random(seed)
    setups = {
        group: chance.sample(DRESSES["setup"], SETUPS_OF_A_GROUP)
        for group in product(AXES["wire"], AXES["policy"])
    }
    covered: set[Pair] = set()
    found: dict[int, Row] = {}
    for number, row in rows.items():
        candidates = [row]
        for _ in range(_CANDIDATES):
            values = {**row._asdict(), **{name: chance.choice(DRESSES[name]) for name in DRESSES}}
            values["setup"] = chance.choice(setups[row.wire, row.policy])
            candidate = make_row(*values.values())
            candidates += [candidate] if exists(candidate) else []
        found[number] = max(candidates, key=lambda one: len(pairs_of(one) - covered))
        covered |= pairs_of(found[number])
    return found


def repeating(row: Row) -> str:
    """Return the command that plays a row alone."""
    return f"PYTHONPATH=tests .venv/bin/python -m combinations.combinations --only {row}"


def told(verdict: Verdict) -> str:
    """Return a row that breaks the law, in words."""
    lines = [f"  {one}" for one in verdict.problems]
    return "\n".join([str(verdict.case.row), *lines, f"  {repeating(verdict.case.row)}"])


def main(arguments: Sequence[str]) -> int:
    """Play, and return 1 if a row breaks the law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the array")
    parser.add_argument("--only", default="", help="one row, as it is printed, or part of rows")
    parser.add_argument("--folder", type=Path, help="keeps stores and logs")
    given = parser.parse_args(arguments)
    if given.only.count("/") >= len(AXES) - 1:
        rows: Mapping[int, Row] = {0: make_row(*given.only.split("/"))}
    else:
        chosen = dressed(array(given.rows, given.seed), given.seed)
        rows = {number: row for number, row in chosen.items() if given.only in str(row)}
    began, red = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        numbered = list(rows.items())
        for begin in range(0, len(numbered), AT_ONCE):
            part = dict(numbered[begin : begin + AT_ONCE])
            with Brokers() as brokers:
                verdicts = play(part, brokers, folder, label=f"-{begin}")
            for verdict in verdicts:
                if verdict.problems:
                    red += 1
                    print(told(verdict), flush=True)
            print(f"{begin + len(part)} rows, {red} red", flush=True)
    pairs = len(pairs_in(rows.values()))
    print(f"{len(rows)} rows with {pairs} pairs in {time.monotonic() - began:.0f} s: {red} red")
    return int(bool(red))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
