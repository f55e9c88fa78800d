"""The record of the cluster's tests is of the tests that there are, and its page sums it up."""

import csv
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "deploy" / "evidence" / "README.md"
RECORD = PAGE.parent / "records" / "kubernetes.csv"
TESTS = ROOT / "tests" / "kubernetes"


def rows() -> list[dict[str, str]]:
    with RECORD.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def section() -> str:
    """Return what the page says of Kubernetes, in one line."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    return " ".join(text.split())


def summed(column: str) -> str:
    return f"{sum(int(row[column].replace(',', '') or 0) for row in rows()):,}"


def test_each_row_is_of_a_test_and_each_test_has_one() -> None:
    texts = (path.read_text(encoding="utf-8") for path in TESTS.glob("test_*.py"))
    tests = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert {row["test"] for row in rows()} == tests


def test_the_page_has_the_sums_and_marks_each_commit_that_was_tested() -> None:
    said = section()
    assert f"{len(rows())} rows" in said
    assert f"{summed('sent')} messages, {summed('deaths')} deaths" in said
    assert {summed(column) for column in ("lost", "doubled", "altered")} == {"0"}
    assert "lost, doubled, altered: 0" in said
    for commit, count in Counter(row["commit"] for row in rows()).items():
        assert f"{count} rows are of {commit}" in said
