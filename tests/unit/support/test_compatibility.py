"""The tables of compatibility hold what pytest reports."""

from pathlib import Path

import pytest

from support.compatibility import PARTS, Part, planned
from support.compatibility_tables import (
    RECORDS,
    read_record,
    tables,
)
from support.versions import RELEASES, release

ROOT = Path(__file__).parents[3]


def test_the_tables_are_made_of_the_record() -> None:
    """A table that is edited by hand fails this test."""
    for name, table in tables(read_record()).items():
        assert (RECORDS / name).read_text(encoding="utf-8") == table


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
