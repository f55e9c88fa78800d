"""The page of compatibility: what pytest reports gets into the table, and nothing else changes."""

from collections import Counter
from pathlib import Path

import pytest

from support.compatibility import PAGE, outcomes, table, with_table
from support.versions import RELEASES, release

REPORT = """<?xml version="1.0"?><testsuites>
<testsuite tests="7" failures="1" errors="1" skipped="2"/></testsuites>"""


def test_tests_are_counted_by_outcome(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert outcomes(path) == Counter(failed=2, skipped=2, passed=3)


def test_a_table_replaces_the_one_before_and_nothing_else() -> None:
    text = PAGE.read_text(encoding="utf-8")
    once = with_table(text, "| a |")
    assert "| a |" in once
    assert with_table(with_table(once, "| b |"), "| a |") == once
    assert once.startswith(text.partition("<!--")[0])
    assert once.endswith(text.rpartition("-->")[2])


def test_a_release_has_a_row_with_its_wires_and_results() -> None:
    chosen = release("artemis", "2.57.0")
    row = table({chosen: {"kills": Counter(passed=3, skipped=1)}}).splitlines()[-1]
    assert row.startswith("| Artemis 2.57.0 | core, stomp |")
    assert "3 passed, 1 skipped" in row


def test_a_release_that_is_not_in_the_table_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"artemis 1.0.0 is not in .*: take one of 2.44.0, 2.55.0"):
        release("artemis", "1.0.0")
    assert len({(one.family, one.version) for one in RELEASES}) == len(RELEASES)
