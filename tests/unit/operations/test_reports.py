"""The console shows reports that jobs have left, and no other file."""

import os
from pathlib import Path

import pytest

from amqsidecar.http.console.report_pages import REPORT_MAX_BYTES, list_reports, read_report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    for at_s, name in enumerate(("causes", "recovery <b>")):
        (folder / name).mkdir(parents=True)
        report = folder / name / "report.html"
        report.write_text(f"<h1>{name}", encoding="utf-8")
        os.utime(report, (at_s, at_s))
    return folder


def test_reports_are_listed_the_latest_first(folder: Path) -> None:
    assert [(one.name, one.written_at_ms, one.size_bytes) for one in list_reports(folder)] == [
        ("recovery <b>", 1000, 16),
        ("causes", 0, 10),
    ]
    assert read_report(folder, "causes") == b"<h1>causes"


def test_nothing_else_is_a_report(folder: Path) -> None:
    """Neither what lies higher or deeper, nor links, nor what is still being written."""
    secret = folder.parent / "secret" / "report.html"
    secret.parent.mkdir()
    secret.write_text("secret", encoding="utf-8")
    (folder / "report.html").write_text("too high", encoding="utf-8")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "report.html").write_text("too deep", encoding="utf-8")
    (folder / "other").mkdir()
    (folder / "other" / "table.html").write_text("no report", encoding="utf-8")
    (folder / "linked").symlink_to(secret.parent)
    (folder / "link").mkdir()
    (folder / "link" / "report.html").symlink_to(secret)
    (folder / "is folder" / "report.html").mkdir(parents=True)
    (folder / ".unfinished").mkdir()
    (folder / ".unfinished" / "report.html").write_text("unfinished", encoding="utf-8")
    (folder / "large").mkdir()
    with (folder / "large" / "report.html").open("wb") as large:
        large.truncate(REPORT_MAX_BYTES + 1)
    unprintable = os.fsencode(folder) + b"/bad\xff"
    Path(os.fsdecode(unprintable)).mkdir()
    (Path(os.fsdecode(unprintable)) / "report.html").write_text("bad name", encoding="utf-8")
    assert {one.name for one in list_reports(folder)} == {"causes", "recovery <b>"}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../secret", "causes/../../secret", "deep/er", "/etc", "causes\0", "x"]
)
def test_a_name_never_becomes_a_path(folder: Path, name: str) -> None:
    assert read_report(folder, name) is None


def test_a_folder_that_is_not_there_has_no_reports(tmp_path: Path) -> None:
    assert list_reports(tmp_path / "nowhere") == []
