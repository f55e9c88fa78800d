"""`amqsidecar journal`: what is printed, and with which exit code."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.cli import main
from amqsidecar.journals.folder import LocalFolder
from amqsidecar.journals.writer import JournalWriter
from amqsidecar.stores.sqlite.database import SCHEMA_VERSION
from support.histories.journal_rows import KINDS, filled
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

SEGMENTS = 10
COMMANDS = ("verify", "compact", "export")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Ten segments of one event each, and the store they are of."""
    store = UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock())
    store.open()
    path = tmp_path / "journal"
    writer = JournalWriter(LocalFolder(path, "t", lambda: None), sidecar="t", cause_text=False)
    for number in range(SEGMENTS):
        with store.transaction() as transaction:
            transaction.record([filled(KINDS[0], number)])
        segment = store.plan_segment(1)
        assert segment is not None
        writer.write(segment, store.segment_events(segment))
        store.segment_written(segment)
    store.close()
    return path


@pytest.fixture
def run(journal: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    store = ("--set", f"store.url=sqlite:///{tmp_path / 'schedule.db'}")

    def command(name: str, *arguments: str, named: bool = True) -> tuple[int, str, str]:
        configured = (*store, "--set", f"journal.path={journal}") if named else ()
        code = main.run_command_line(["journal", name, *configured, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_common_options(name: str, run: Run) -> None:
    code, text, _ = run(name, "--help", named=False)
    assert code == 0
    for option in ("--config", "--set", "--path"):
        assert option in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_needs_to_know_which_journal(name: str, run: Run) -> None:
    code, _, told = run(name, named=False)
    assert code == main.EXIT_CONFIG
    assert "journal.path: is not set: set the path of the journal, or use --path" in told


def test_a_whole_journal_is_compared_with_its_store(run: Run) -> None:
    code, text, _ = run("verify", "--output", "json")
    found = json.loads(text)
    assert code == 0
    assert (found["faults"], found["remarks"], found["compared"]) == ([], [], SEGMENTS)
    (stream,) = found["streams"]
    assert (stream["first"], stream["last"], stream["events"]) == (1, SEGMENTS, SEGMENTS)


def test_the_store_of_an_unknown_version_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "schedule.db")) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = (tmp_path / "schedule.db").read_bytes()
    code, text, told = run("verify")
    assert (code, text) == (main.EXIT_UNAVAILABLE, "")
    newer = f"schema version {SCHEMA_VERSION + 1}, this amqsidecar knows {SCHEMA_VERSION}"
    assert f"{newer}: a newer version wrote it" in told
    assert (tmp_path / "schedule.db").read_bytes() == before


def test_a_fault_is_a_line_and_an_exit_code(run: Run, journal: Path) -> None:
    next(journal.glob("*/segment-4-4.parquet")).unlink()
    code, text, told = run("verify")
    assert code == 78
    assert "1 faults" in text
    assert "segment 4 is missing" in told


def test_a_path_alone_is_verified_without_a_store(run: Run, journal: Path) -> None:
    code, text, told = run("verify", "--path", str(journal), named=False)
    assert (code, told) == (0, "")
    assert "segments 1 to 10 in 10 files, 10 events" in text
    next(journal.glob("*/segment-4-4.parquet")).unlink()
    assert run("verify", "--path", str(journal), named=False)[0] == 78


def test_a_journal_of_another_store_lacks_what_this_one_wrote(run: Run, tmp_path: Path) -> None:
    code, _, told = run("verify", "--store", "--path", str(tmp_path / "elsewhere"))
    assert code == 78
    assert "segment 1 is missing, but the store recorded it as written" in told


def test_files_are_compacted(run: Run, journal: Path) -> None:
    code, text, _ = run("compact")
    assert (code, text) == (0, "10 files merged into 1, 10 removed\n")
    assert [path.name for path in journal.glob("*/*")] == ["segment-1-10.parquet"]
    assert json.loads(run("compact", "--output", "json")[1]) == {
        "merged": 0,
        "into": 0,
        "removed": 0,
    }
    assert run("verify")[0] == 0


def test_a_damaged_file_ends_compaction_with_its_name(run: Run, journal: Path) -> None:
    next(journal.glob("*/segment-4-4.parquet")).write_bytes(b"x")
    code, _, told = run("compact")
    assert code == main.EXIT_UNAVAILABLE
    assert "segment-4-4.parquet: is torn or no Parquet file" in told
    assert "Traceback" not in told


def test_events_are_exported(run: Run, tmp_path: Path) -> None:
    code, text, _ = run("export")
    assert code == 0
    assert len([json.loads(line) for line in text.splitlines()]) == SEGMENTS
    file = tmp_path / "events.csv"
    code, text, told = run("export", "--format", "csv", "--output-file", str(file))
    assert (code, text) == (0, "")
    assert "10 events written to" in told
    assert len(file.read_text(encoding="utf-8").splitlines()) == SEGMENTS + 1
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("export", "--since", "2023-11-15")[1] == ""
    assert run("export", "--until", "2023-11-15T00:00:00Z")[1].count("\n") == SEGMENTS


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "parquet"),
        ("--since", "yesterday"),
        ("--format", "xml"),
        ("--output-file", "/nowhere/events.json"),
    ],
)
def test_wrong_usage_is_reported(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("export", *arguments)[0] == main.EXIT_USAGE
