"""How each job ends: a line, the same for programs, and a report that says what it lacks."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.journals import START_MS, event, write_journal
from pipeline.running import run_job

HOUR_MS = 3_600_000
ORIGIN = "queue://orders"


def died_for_ever(number: int) -> list[dict[str, Any]]:
    """One message whose only re-send fails and that is given up, in segment 2 or 4."""
    segment = 2 if number < 20 else 4
    at_ms = START_MS + number * HOUR_MS // 4
    common = {"redelivery_id": f"r-{number}", "origin": ORIGIN, "cause_group": "died"}
    acts = (("received", 0, 0), ("resent", 1, 5_000), ("returned", 1, 6_000), ("exhausted", 1, 0))
    return [
        event(
            segment,
            4 * number + place,
            **common,
            type=kind,
            at=at_ms + after_ms + place,
            redelivery_count=count,
            destination=ORIGIN,
        )
        for place, (kind, count, after_ms) in enumerate(acts)
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Segment 1 was removed and segment 3 is missing."""
    lives = [died_for_ever(number) for number in range(40)]
    for segment, some in ((2, lives[:20]), (4, lives[20:])):
        rows = [row for life in some for row in life]
        write_journal(tmp_path / "journal", rows, number=segment)
    return tmp_path / "journal"


@pytest.mark.parametrize("job", ["recovery", "causes", "whatif"])
def test_a_job_ends_with_what_it_found_for_programs_and_its_report_says_what_it_lacks(
    spark: SparkSession, tmp_path: Path, journal: Path, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    assert spark
    out = tmp_path / job
    more = ["--output", "json"]
    if job == "whatif":
        today = tmp_path / "today.yaml"
        today.write_text("plugins: [{redelivery: {default_entry: {maximum_redeliveries: 1}}}]\n")
        more += ["--policy", str(today)]
    capsys.readouterr()

    assert run_job(job, journal, out, *more) == 0

    told = json.loads(capsys.readouterr().out)
    summary = json.loads((out / "summary.json").read_text())
    page = (out / "report.html").read_text()
    assert (told["job"], told["path"], told["is_new"]) == (job, f"{out}/report.html", True)
    assert summary.items() <= told.items()
    doubts = told["what_to_doubt"]
    assert "Stream main is cut: its segments 1 were removed before this run." in doubts
    assert "Stream main lacks segments 3: returns in them look like recoveries." in doubts
    assert all(line.split(":")[0] in page for line in doubts)
    assert told["what_to_do"], "all messages were given up: nothing is no advice"
    assert "Nothing" not in page.split("<h2>What to do</h2>")[1].split("<h2>")[0]


def test_a_job_ends_with_one_line_for_people(
    spark: SparkSession, tmp_path: Path, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark
    out = tmp_path / "out"
    capsys.readouterr()

    assert run_job("causes", journal, out) == 0

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("causes: what changed: ")
    assert f"; {out}/report.html; " in line
