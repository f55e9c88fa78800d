"""Cells of the matrix, and the record `fidelity.json` of them in few rows."""

import json
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from amqsidecar.diagnosis.fidelity import CellOutcome, FidelityRow


class Cell(NamedTuple):
    """One cell of the matrix."""

    broker: str
    wire: str
    producer: str
    consumer: str
    subject: str


def outcomes(rows: Iterable[FidelityRow]) -> dict[Cell, CellOutcome]:
    """Return the outcome of each cell."""
    return {
        Cell(broker, row.wire, producer, consumer, subject): row.outcome
        for row in rows
        for broker, producer, consumer, subject in product(
            row.brokers, row.producers, row.consumers, row.subjects
        )
    }


def rows_of(cells: Mapping[Cell, CellOutcome]) -> tuple[FidelityRow, ...]:
    """Return few rows that say the same as the cells, in a fixed order."""
    rows = [
        FidelityRow(
            (cell.broker,), cell.wire, (cell.producer,), (cell.consumer,), (cell.subject,), outcome
        )
        for cell, outcome in sorted(cells.items())
    ]
    for column in (4, 0, 3, 2):
        rows = _merged(rows, column)
    return tuple(sorted(rows, key=lambda row: (row.wire, *row[:1], *row[2:5])))


def _merged(rows: Iterable[FidelityRow], column: int) -> list[FidelityRow]:
    """Return rows that differ in one column only as one row each."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        groups.setdefault((*row[:column], *row[column + 1 :]), []).extend(row[column])
    return [
        FidelityRow._make((*rest[:column], tuple(sorted(values)), *rest[column:]))
        for rest, values in groups.items()
    ]


def written(rows: Iterable[FidelityRow]) -> str:
    """Return the text of `fidelity.json`."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    return "[\n" + ",\n".join(lines) + "\n]\n"
