"""The table of test times counts what a test and its child processes take."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import Spent, Timing, by_file, table

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_table_adds_up_by_folder_with_the_largest_first() -> None:
    lines = [
        json.dumps([name, *spent])
        for name, spent in (
            ("tests/unit/test_a.py::one", Spent(1, 1.0, 1.0, 0.0, 0)),
            ("tests/oracle/test_b.py::one", Spent(1, 9.6, 2.0, 7.6, 1)),
            ("tests/oracle/test_b.py::two", Spent(1, 1.0, 3.0, 0.0, 2)),
        )
    ]
    assert table(lines).splitlines()[2:] == [
        "| oracle | 2 | 11 | 5 | 8 | 3 |",
        "| unit | 1 | 1 | 1 | 0 | 0 |",
        "| all | 3 | 12 | 6 | 8 | 3 |",
    ]
    assert "| tests/oracle/test_b.py | 2 " in table(lines, by_file)


@pytest.mark.parametrize("is_ended", [True, False])
def test_the_time_of_child_processes_counts(
    tmp_path: Path, request: pytest.FixtureRequest, is_ended: bool
) -> None:
    timing = Timing(tmp_path / "times")
    running = timing.pytest_runtest_protocol(request.node)
    next(running)
    code = f"{BURN}\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        if is_ended:
            child.communicate(b"\n")
        with pytest.raises(StopIteration):
            next(running)
        if not is_ended:
            child.communicate(b"\n")
    collecting, test = map(json.loads, (tmp_path / "times").read_text().splitlines())
    assert collecting[:2] == ["(collecting)", 0]
    assert test[0] == request.node.nodeid
    # Why not 0.3: the kernel counts in ticks of 0.01 s.
    assert Spent(*test[1:]).processor_s > 0.25
