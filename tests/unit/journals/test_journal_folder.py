"""A journal's file is there whole or not at all, on a disk and in an object store."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import fsspec
import pytest

from amqsidecar.errors import ConfigError, JournalError
from amqsidecar.journals.folder import Folder, LocalFolder, open_folder

MEMORY = "memory://journals/test"


@pytest.fixture(params=["disk", "object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "disk":
        yield open_folder(str(tmp_path / "a" / "journal"), "me", lambda: None)
        return
    yield open_folder(MEMORY, "me", lambda: None)
    memory = fsspec.filesystem("memory")
    for path in memory.find("/journals"):
        memory.rm_file(path)


def hello(file: BinaryIO) -> None:
    file.write(b"hello")


def hello_twice(file: BinaryIO) -> None:
    file.write(b"hello" * 2)


def test_a_file_is_written_read_replaced_and_removed(folder: Folder) -> None:
    assert folder.top_names() == folder.names("s") == []
    assert folder.write("s", "one", hello) == 5
    assert folder.write("s", "two", hello) == 5
    assert folder.write("s", "one", hello_twice) == 10
    assert folder.top_names() == ["stream=s"]
    assert folder.names("s") == ["one", "two"]
    assert (folder.size("s", "one"), folder.size("s", "two")) == (10, 5)
    with folder.open("s", "one") as file:
        assert file.read() == b"hellohello"
    folder.remove("s", "one")
    folder.remove("s", "one")
    assert folder.names("s") == ["two"]


def test_what_is_not_there_is_reported(folder: Folder) -> None:
    with pytest.raises(JournalError, match=r"stream=s/one can't be read: "):
        folder.open("s", "one")


def test_a_write_that_fails_leaves_nothing(folder: Folder) -> None:
    folder.write("s", "one", hello)

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(JournalError, match=r"one can't be written: No space left on device"):
        folder.write("s", "one", fail)
    assert folder.names("s") == ["one"]
    assert folder.size("s", "one") == 5


def test_a_file_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the system calls; only a loss of power could prove more."""
    calls = list[str]()
    sync = os.fsync

    def seen(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        calls.append(str(path.relative_to(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    folder = LocalFolder(tmp_path / "new", "me", lambda: calls.append("rename"))
    folder.write("s", "one", hello)
    assert calls == [".", "new", "new/stream=s/.one.me", "rename", "new/stream=s"]


def test_a_journal_that_somebody_moved_away_is_made_anew(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "new", "me", lambda: None)
    folder.write("s", "one", hello)
    (tmp_path / "new").rename(tmp_path / "old")
    folder.write("s", "two", hello)
    assert folder.names("s") == ["two"]


def test_a_process_that_dies_before_the_rename_leaves_an_ignored_file(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        LocalFolder(tmp_path, "me", lambda: os._exit(7)).write("s", "one", hello)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    folder = LocalFolder(tmp_path, "me", lambda: None)
    assert folder.names("s") == [".one.me"]
    folder.write("s", "one", hello)
    assert folder.names("s") == ["one"]


@pytest.mark.parametrize("url", ["nonsense://bucket/journal", "s3://bucket/journal"])
def test_a_url_that_nothing_installed_knows_is_reported_with_the_option(url: str) -> None:
    if url.startswith("s3:"):
        pytest.importorskip("fsspec")
        try:
            import s3fs  # noqa: F401, PLC0415
        except ImportError:
            pass
        else:
            pytest.skip("s3fs is installed here")
    with pytest.raises(ConfigError, match=r"journal\.path: can't be used: "):
        open_folder(url, "me", lambda: None)
