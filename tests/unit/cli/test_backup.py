"""`amqsidecar backup`: a whole copy of a store that somebody writes to, or none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.cli.main import run_command_line
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, taken_row
from support.virtual_clock import VirtualClock


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=VirtualClock(), instance_name="test")
    store.open()
    return store


def take(store: SqliteStore, cycle: int, count: int) -> None:
    first = store.allocate_ids(count)
    rows = [taken_row(first + number, message=bytes(20_000)) for number in range(count)]
    take_rows(store, cycle, rows)


def back_up(path: Path, target: Path) -> int:
    return run_command_line(["backup", str(target), "--set", f"store.url=sqlite://{path}"])


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return opened(tmp_path / "schedule.db")


def test_a_copy_is_of_one_moment_while_others_write(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy.db"
    take(store, 1, 20)
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 7)
        assert back_up(tmp_path / "schedule.db", target) == 0
    take(store, 2, 5)
    assert capsys.readouterr().out.startswith(f"{target}: ")
    assert {path.name for path in tmp_path.glob("copy*")} == {"copy.db"}
    with closing(opened(target)) as copy:
        assert (copy.open().cycle, copy.count_rows(RowFilter()), copy.holds()) == (1, 20, {})
        take(copy, 2, 1)
    store.close()


def test_a_copy_that_cant_be_written_is_no_fault_of_the_program(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "none" / "copy.db"
    assert back_up(tmp_path / "schedule.db", target) == 69
    assert f"could not be copied: No such file or directory: {target}" in capsys.readouterr().err
    store.close()


def test_a_file_that_is_there_is_left_alone(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy.db"
    target.write_text("older")
    assert back_up(tmp_path / "schedule.db", target) == 69
    assert target.read_text() == "older"
    assert "is there already" in capsys.readouterr().err
    store.close()


def test_a_damaged_store_is_found_out_and_not_copied(
    store: SqliteStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedule.db"
    take(store, 1, 50)
    store.close()
    with closing(sqlite3.connect(path)) as database:
        pages = database.execute("PRAGMA page_count").fetchone()[0]
    with path.open("r+b") as file:
        for page in range(pages // 2, pages, 3):
            file.seek(page * 8192)
            file.write(b"\x05" * 64)
    assert back_up(path, tmp_path / "copy.db") == 69
    assert "damaged" in capsys.readouterr().err
    assert list(tmp_path.glob("copy*")) == []


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("postgresql://db/redelivery", 2, "pg_dump"),
        ("sqlite:///nowhere/schedule.db", 69, "does not exist"),
    ],
)
def test_what_is_no_file_is_not_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, code: int, said: str
) -> None:
    arguments = ["backup", str(tmp_path / "copy.db"), "--set", f"store.url={url}"]
    assert run_command_line(arguments) == code
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_relative_url_names_a_file_in_the_working_directory(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the README writes it."""
    take(store, 1, 3)
    monkeypatch.chdir(tmp_path)
    name = next(tmp_path.glob("*.db")).name
    command = ["backup", "copy.db", "--set", f"store.url=sqlite:{name}"]
    assert run_command_line(command) == 0
    assert opened(tmp_path / "copy.db").count_rows(RowFilter()) == 3
