"""Plays the matrix on real brokers and writes it down: `make matrix`."""

import argparse
import sys
import tempfile
from pathlib import Path

from amqsidecar.diagnosis import fidelity
from matrix.cells import cells_of, pairs_of
from matrix.play import Pair, play
from matrix.record import Cell, outcomes, rows_of, written
from matrix.stage import KINDS, clients_of

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "sidecar" / "amqsidecar" / "diagnosis" / "fidelity.json"


def played(
    kind: str, pairs: list[Pair], folder: Path
) -> tuple[dict[Cell, fidelity.CellOutcome], list[str]]:
    """Return the cells of one broker and what is wrong: faults and unexplained differences."""
    cells: dict[Cell, fidelity.CellOutcome] = {}
    wrong: list[str] = []
    for one in play(kind, pairs, folder):
        found, unexplained = cells_of(kind, one)
        cells |= found
        wrong += one.faults + unexplained
    return cells, wrong


def main() -> int:
    """Play all pairs of the brokers asked for, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    asked = parser.parse_args().brokers
    cells = outcomes(fidelity.recorded()) if RECORD.exists() else {}
    cells = {cell: outcome for cell, outcome in cells.items() if cell.broker not in asked}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in asked:
            found, faults = played(kind, pairs_of(clients_of(kind)), Path(folder))
            print(f"{kind}: {len(found)} cells, {len(faults)} faults", file=sys.stderr)
            cells |= found
            wrong += faults
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        RECORD.write_text(written(rows_of(cells)), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
