"""The table of the broker's surprises is whole, and names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "sidecar" / "amqsidecar" / "policy" / "README.md"
ROWS = 25


def test_every_row_is_there_once_in_order() -> None:
    """Rows 1 to 25 of the specification's list, each with five cells."""
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, ROWS + 1))
    assert [number for number, cells in rows if len(cells.split(" | ")) != 4] == []


def test_every_test_that_is_named_exists() -> None:
    """A test that is renamed or removed takes its row along."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TABLE.read_text(encoding="utf-8"))
    assert len(named) > ROWS
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []


def test_no_row_is_without_a_holder() -> None:
    """Each row names a test, a planned place, or says that it is documented only."""
    rows = re.findall(r"^\| \d+ \|.*\|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    holders = [row.rsplit(" | ", 1)[1] for row in rows]
    assert [it for it in holders if "tests/" not in it and "document only" not in it] == []
