"""What lies in the folder of a job is of one run."""

from pathlib import Path

import pyarrow

from amqsidecar.pipeline.results import Results

ONE = pyarrow.table({"number": [1]})
TWO = pyarrow.table({"number": [1, 2]})


def test_a_run_begins_by_removing_what_an_earlier_one_left(tmp_path: Path) -> None:
    names = ("first", "second", "proposal")
    old = Results(str(tmp_path), names)
    for name in names:
        old.write(name, ONE)
    Path(old.report_path).write_text("old", encoding="utf-8")
    (tmp_path / "mine").write_text("of somebody else", encoding="utf-8")

    new = Results(str(tmp_path), names)
    assert (tmp_path / "second" / "_SUCCESS").exists()
    new.write("first", TWO)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["first", "mine"]


def test_an_output_is_of_a_source_only_as_long_as_it_is_whole(tmp_path: Path) -> None:
    results = Results(str(tmp_path), ("first",))
    assert not results.are_of("mine")
    results.write("first", ONE)
    results.name_source("mine")
    assert not results.are_of("mine")
    Path(results.report_path).write_text("whole", encoding="utf-8")
    assert results.are_of("mine")
    assert not results.are_of("another")

    Results(str(tmp_path), ("first",)).write("first", TWO)
    Path(results.report_path).write_text("of another", encoding="utf-8")
    assert not results.are_of("mine")
