"""Decision records have their four parts, at most a page each, and are all in the index."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "sidecar" / "internals" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
WORDS_MAX = 500
"""About a page."""


def test_the_index_names_every_record_in_order() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index) == [record.name for record in RECORDS]
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_its_parts(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(record.name[:4])}. ")
    assert re.search(r"^Status: (accepted|superseded by .*), \d{4}-\d\d-\d\d\.", text, re.MULTILINE)
    parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert parts == ["Context", "Decision", "Consequences", "Alternatives"]
    assert len(text.split()) <= WORDS_MAX
