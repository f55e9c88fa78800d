"""The tables of compatibility hold what pytest reports."""

from pathlib import Path

import pytest

from support.compatibility import PARTS, Part, planned, result
from support.compatibility_tables import (
    DIFFERENCES,
    RECORDS,
    Result,
    differences_csv,
    read_record,
    results_csv,
    tables,
)
from support.versions import RELEASES, release

ROOT = Path(__file__).parents[3]
REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase name="a"/><testcase name="b[1]"><failure message="no"/></testcase>
<testcase name="c"><error message="no"/></testcase>
<testcase name="d"><skipped message="it runs without amqp"/></testcase>
</testsuite></testsuites>"""
FOUND = Result(
    release="Artemis 2.57.0",
    part="counters",
    paths=["contract/test_queue_counters.py"],
    passed=3,
    failed=["b[1]"],
    skipped={"it runs without amqp": 1},
    commit="12345678",
    day="2026-11-24",
)


def test_tests_are_counted_by_outcome(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    found = result(release("artemis", "2.57.0"), PARTS[0], path)
    assert (found.release, found.part) == ("Artemis 2.57.0", PARTS[0].name)
    assert (found.passed, found.failed) == (1, ["b[1]", "c"])
    assert found.skipped == {"it runs without amqp": 1}


def test_the_tables_are_made_of_the_record() -> None:
    """A table that is edited by hand fails this test."""
    for name, table in tables(read_record()).items():
        assert (RECORDS / name).read_text(encoding="utf-8") == table


def test_a_line_has_failed_tests_and_the_reason_of_skipped_ones() -> None:
    assert results_csv([FOUND]).splitlines() == [
        "release,tests,passed,failed,skipped,commit,day",
        "Artemis 2.57.0,counters,3,b[1],1: it runs without amqp,12345678,2026-11-24",
    ]


def test_a_difference_has_a_test_and_says_where_it_passed() -> None:
    """A test that failed holds nothing."""
    for one in DIFFERENCES:
        assert (ROOT / one.path).is_file()
    path = DIFFERENCES[0].path.removeprefix("tests/")
    failed = Result("Artemis 2.55.0", "settings", [path], 1, ["b"], {}, "", "")
    passed = Result("Artemis 2.57.0", "settings", [path], 1, [], {}, "", "")
    row = differences_csv([failed, passed]).splitlines()[1]
    assert row.endswith(f",{DIFFERENCES[0].path},Artemis 2.57.0")


def test_a_part_is_run_where_its_wire_is_spoken_and_where_it_is_asked_for() -> None:
    assert not [part for one, part in planned([]) if part.needs not in ("", *one.wires)]
    [(chosen, part)] = planned(["artemis=2.55.0/kills"])
    assert (str(chosen), part.name, part.keyword) == ("Artemis 2.55.0", "kills", "amqp")
    assert planned(["artemis=2.57.0/kills"]) == []


@pytest.mark.parametrize("part", PARTS, ids=lambda one: f"{one.name} {one.families[0]}")
def test_the_tests_of_a_part_exist(part: Part) -> None:
    for path in part.paths:
        assert (ROOT / "tests" / path).is_file()


def test_a_release_that_is_not_in_the_table_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"artemis 1.0.0 is not in .*: take one of 2.44.0, 2.55.0"):
        release("artemis", "1.0.0")
    assert len({(one.family, one.version) for one in RELEASES}) == len(RELEASES)
