"""Only their owner can read files with messages, whatever the umask and earlier modes."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from amqsidecar.journals.folder import open_folder
from amqsidecar.stores.sqlite.backup import copy_schedule
from amqsidecar.stores.sqlite.store import SqliteStore
from support.virtual_clock import VirtualClock


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def filled(file: BinaryIO) -> None:
    file.write(b"x")


def service(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=VirtualClock(), reserve_bytes=1024 * 1024)
    store.lock_for_service()
    store.open()
    store.room()
    store.allocate_ids(1)
    return store


def modes(folder: Path) -> dict[str, int]:
    found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
    assert found
    return found


NAMES = {f"schedule.db{end}" for end in ("", "-wal", "-shm", ".lock", ".reserve")}


@pytest.mark.usefixtures("umask")
def test_a_new_store_its_log_its_lock_its_reserve_and_its_copy(tmp_path: Path) -> None:
    store = service(tmp_path / "schedule.db")
    copy_schedule(tmp_path / "schedule.db", tmp_path / "copy.db")
    assert modes(tmp_path) == dict.fromkeys([*sorted(NAMES), "copy.db"], 0o600)
    store.close()


def test_a_store_that_everybody_could_read_is_mended(tmp_path: Path) -> None:
    first = service(tmp_path / "schedule.db")
    for one in tmp_path.iterdir():
        one.chmod(0o664)
    second = SqliteStore(tmp_path / "schedule.db", clock=VirtualClock())
    second.open()
    second.close()
    first.close()
    service(tmp_path / "schedule.db").close()
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_store_of_somebody_else_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a command of root's beside a service that is another user."""
    service(tmp_path / "schedule.db").close()
    (tmp_path / "schedule.db").chmod(0o660)

    def refuse(*_: object, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chmod", refuse)
    store = SqliteStore(tmp_path / "schedule.db", clock=VirtualClock())
    store.open()
    store.close()


@pytest.mark.usefixtures("umask")
def test_a_journal_and_its_segments(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "made" / "journal"), "writer", lambda: None)
    folder.write("stream-1", "one.parquet", filled)
    found = {
        one.relative_to(tmp_path).as_posix(): stat.S_IMODE(one.stat().st_mode)
        for one in tmp_path.rglob("*")
    }
    assert {mode for name, mode in found.items() if name.endswith("parquet")} == {0o600}
    assert {mode for name, mode in found.items() if not name.endswith("parquet")} == {0o700}


def test_a_journal_that_everybody_could_read_is_mended_with_the_next_segment(
    tmp_path: Path,
) -> None:
    folder = open_folder(str(tmp_path / "journal"), "writer", lambda: None)
    folder.write("stream-1", "one.parquet", filled)
    for one in (tmp_path / "journal").rglob("*"):
        one.chmod(0o755 if one.is_dir() else 0o644)
    (tmp_path / "journal").chmod(0o755)
    again = open_folder(str(tmp_path / "journal"), "writer", lambda: None)
    again.write("stream-1", "two.parquet", filled)
    files = [one for one in (tmp_path / "journal").rglob("*") if one.is_file()]
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    assert len(files) == 2
