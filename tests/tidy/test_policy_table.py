"""The table of the broker's surprises is whole: each row decides, and names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "sidecar" / "amqsidecar" / "policy" / "README.md"
ROWS = 26
DECISIONS = ("replicate", "fix", "document")
WITHOUT_TEST = {23}
"""What the broker loses before any client can see it."""


def rows() -> dict[int, list[str]]:
    """Return the cells of each row by number: the broker, the sidecar, why, held by."""
    found = re.findall(r"^\| (\d+) \| (.*) \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): cells.split(" | ") for number, cells in found if cells.count(" | ") == 3}


def test_every_row_is_there_once_in_order() -> None:
    """All rows, numbered without a gap, each with five cells."""
    assert list(rows()) == list(range(1, ROWS + 1))
    assert all(cell.strip() for cells in rows().values() for cell in cells)


def test_every_row_says_what_is_decided() -> None:
    """Replicate, fix or document, and what that means where it is not obvious."""
    undecided = [n for n, cells in rows().items() if not re.match(_any_of(DECISIONS), cells[1])]
    assert undecided == []


def test_every_row_is_held_by_tests_that_exist() -> None:
    """A test that is renamed or removed takes its row along; a file alone is no test."""
    missing = {
        number: [name for name in _named(cells[3]) if not _exists(name)]
        for number, cells in rows().items()
    }
    assert {number: names for number, names in missing.items() if names} == {}
    assert {number for number, cells in rows().items() if not _named(cells[3])} == WITHOUT_TEST


def test_every_test_that_is_named_elsewhere_on_the_page_exists() -> None:
    """The same for the text around the table."""
    named = _named(TABLE.read_text(encoding="utf-8"))
    assert [name for name in named if "::" in name and not _exists(name)] == []


def test_nothing_is_only_planned() -> None:
    """What is not built is named as such, with the reason."""
    text = TABLE.read_text(encoding="utf-8")
    assert "planned" not in text
    table = text.split("**Not built**", 1)[1].split("\n\n")[1]
    options = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert options
    assert {int(number) for number, _, _ in options} <= set(rows())


def _any_of(words: tuple[str, ...]) -> str:
    return rf"(?:{'|'.join(words)})\b"


def _named(text: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", text)


def _exists(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / path
    return (
        bool(function)
        and file.is_file()
        and re.search(rf"^def {function}\(", file.read_text(encoding="utf-8"), re.MULTILINE)
        is not None
    )
