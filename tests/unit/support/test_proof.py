"""The report of `make proof`: each stage in it, also after one that failed."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from support import proof
from support.proof import STAGES, Result, Stage, count_tests, report, run

MAKEFILE = Path(__file__).parents[3] / "Makefile"
PRINTS = ("-c", "print('2 passed, 1 skipped in 0.10s'); raise SystemExit(3)")


def test_tests_are_added_up_over_the_runs_of_a_stage() -> None:
    lines = [
        "collected 9 passed by hand",
        "1 failed, 3 passed, 2 skipped in 70.31s (0:01:10)",
        "==== 4 passed, 1 error in 0.10s ====",
    ]
    assert count_tests(lines) == {"failed": 1, "passed": 7, "skipped": 2, "error": 1}


def test_the_report_has_a_row_for_each_stage() -> None:
    good, bad = Stage("a", "it works", ()), Stage("b", "it lasts", ())
    results = [Result(good, 0, Counter(passed=2), 1.4), Result(bad, 2, Counter(), 90.0)]
    assert report(results).splitlines()[2:] == [
        "| a | passed | 2 passed | 1 | it works |",
        "| b | **failed** (exit code 2) |  | 90 | it lasts |",
    ]


def test_a_stage_leaves_its_output_and_its_exit_code(tmp_path: Path) -> None:
    result = run(Stage("broken", "nothing", (sys.executable, *PRINTS)), tmp_path)
    assert (result.exit_code, result.tests) == (3, Counter(passed=2, skipped=1))
    assert "2 passed" in (tmp_path / "broken.log").read_text()


def test_what_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stages = [
        Stage("broken", "nothing", (sys.executable, *PRINTS)),
        Stage("sound", "something", (sys.executable, "-c", "")),
    ]
    monkeypatch.setattr(proof, "STAGES", stages)
    monkeypatch.setattr(run, "__defaults__", (tmp_path,))
    assert proof.main([]) == 1
    assert "| sound | passed |" in capsys.readouterr().out
    assert proof.main(["--only", "sound"]) == 0


def test_each_stage_is_a_target_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):", MAKEFILE.read_text(), re.MULTILINE)
    assert {one.command[1] for one in STAGES if one.command[0] == "make"} <= set(targets)
