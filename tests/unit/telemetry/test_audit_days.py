"""An audit's file by day: what is kept, and what auditors see of it."""

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from amqsidecar.http.console.audit_pages import LINES_MAX, read_audit
from amqsidecar.telemetry import audit

TODAY = date(2026, 11, 29)


def write_day(path: Path, day: date, *actions: str) -> None:
    """Write the lines of a day, the last of which came at its end."""
    lines = [json.dumps({"event.action": one, "@timestamp": f"{day}T23:00:00Z"}) for one in actions]
    path.write_text("".join(f"{line}\n" for line in lines))
    written_s = datetime(day.year, day.month, day.day, 23, tzinfo=UTC).timestamp()
    os.utime(path, (written_s, written_s))


def files(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_file_of_an_earlier_day_gets_its_name_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_day(path, date(2026, 11, 27), "retry")
    for day in ("2026-10-29", "2026-10-30", "2026-13-01", "gz"):
        (tmp_path / f"audit.jsonl.{day}").touch()
    (tmp_path / "audit.2020-01-01").touch()
    audit.keep_latest_days(path, 30, TODAY)
    kept = {"audit.jsonl.2026-11-27", "audit.jsonl.2026-10-30"}
    others = {"audit.jsonl.2026-13-01", "audit.jsonl.gz", "audit.2020-01-01"}
    assert files(tmp_path) == kept | others
    # Again, and of today: nothing is named.
    write_day(path, TODAY, "hold")
    audit.keep_latest_days(path, 30, TODAY)
    assert files(tmp_path) == {*kept, *others, "audit.jsonl"}


def test_what_another_process_has_named_is_not_replaced(tmp_path: Path) -> None:
    path, named = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.2026-11-28"
    write_day(path, date(2026, 11, 28), "late")
    named.write_text("kept\n")
    audit.keep_latest_days(path, 30, TODAY)
    assert named.read_text() == "kept\n"
    assert "late" in path.read_text()


def test_a_service_begins_a_file_with_its_next_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = datetime.now(UTC).date() - timedelta(days=2)
    write_day(path, before, *(f"act-{n}" for n in range(3)))
    try:
        audit.open_audit(str(path), keep_days=30)
        audit.write("retry")
        audit.write("hold")
    finally:
        audit.open_audit(audit.STDERR)
    assert files(tmp_path) == {"audit.jsonl", f"audit.jsonl.{before}"}
    assert len(path.read_text().splitlines()) == 2
    seen = [one.action for one in read_audit(path, who="", action="", contains="")]
    assert seen == ["hold", "retry", "act-2", "act-1", "act-0"]


def test_auditors_see_the_latest_lines_of_several_days(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_day(path, TODAY, *(f"today-{n}" for n in range(LINES_MAX - 1)))
    with path.open("ab") as file:
        file.write(b"{\n\xff\n")
    write_day(tmp_path / "audit.jsonl.2026-11-28", date(2026, 11, 28), "earlier-0", "earlier-1")
    found = read_audit(path, who="", action="", contains="")
    assert (len(found), found[-1].action) == (LINES_MAX, "earlier-1")
    assert [one.action for one in read_audit(path, who="", action="earlier", contains="")] == [
        "earlier-1",
        "earlier-0",
    ]


def test_a_clock_that_is_years_ahead_for_a_moment_removes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_day(path, TODAY, "retry")
    (tmp_path / "audit.jsonl.2026-11-28").touch()
    audit.keep_latest_days(path, 30, TODAY + timedelta(3_650))
    assert files(tmp_path) == {"audit.jsonl.2026-11-28", "audit.jsonl.2026-11-29"}
