"""The page of the journal has each column as the contract says it."""

from pathlib import Path

from amqsidecar.journal import COLUMNS

PAGE = Path(__file__).parents[2] / "deploy" / "reference" / "journal.md"
HEAD = "| column | type | null | meaning |\n|---|---|---|---|\n"


def columns_table() -> str:
    rows = (
        f"| `{column.name}` | {column.kind} | {'yes' if column.optional else 'no'} "
        f"| {column.meaning} |\n"
        for column in COLUMNS
    )
    return HEAD + "".join(rows)


def test_the_page_has_the_columns() -> None:
    table = columns_table()
    assert table in PAGE.read_text(encoding="utf-8"), f"put this into {PAGE.name}:\n{table}"
