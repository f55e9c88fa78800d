"""The site's page of all raw tables, made of the records of measurements."""

import csv
from pathlib import Path

RECORDS = Path(__file__).parents[2] / "deploy" / "evidence" / "records"

_INTRODUCTION = """# Raw tables

The records of measurements. Method, conditions and conclusions: [evidence](README.md)."""


def records_page() -> str:
    """Return a section for each record, with its table."""
    lines = [_INTRODUCTION]
    for record in sorted(RECORDS.glob("*.csv")):
        with record.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        lines += ["", f"## {record.stem}", "", _row(head), "|---" * len(head) + "|"]
        lines += map(_row, rows)
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
