"""Where the files of a journal are: a folder on a disk, or a prefix of an object store."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from amqsidecar.errors import ConfigError, JournalError, Problem
from amqsidecar.journal import stream_folder
from amqsidecar.private_files import make_private_folder, mend, open_private, sync_folder

Fill = Callable[[BinaryIO], None]
"""Writes a file's content."""

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LOCAL_SCHEMES: Final = ("file://", "local://")


class Folder(Protocol):
    """The files of a journal, by stream and name.

    Every method raises JournalError where the medium fails.
    """

    @property
    def path(self) -> str:
        """Its place, for people."""
        ...

    def top_names(self) -> list[str]:
        """Return all names in the journal's folder: streams and other entries.

        Without the folder the list is empty.
        """
        ...

    def names(self, stream: str) -> list[str]:
        """Return the names of all files of a stream; an unknown stream has none."""
        ...

    def open(self, stream: str, name: str) -> BinaryIO:
        """Return a file for reading at any place in it."""
        ...

    def size(self, stream: str, name: str) -> int:
        """Return the bytes of a file."""
        ...

    def write(self, stream: str, name: str, fill: Fill) -> int:
        """Make or replace a file atomically and durably; return its size.

        If the process dies inside, there is no file of this name, or the old one.
        """
        ...

    def remove(self, stream: str, name: str) -> None:
        """Remove a file; it may be gone already."""
        ...


def open_folder(path: str, writer: str, before_rename: Callable[[], None]) -> Folder:
    """Return the folder or prefix that a path or URL names; it need not exist.

    Args:
        path: value of `journal.path`.
        writer: a name unique among concurrent writers.
        before_rename: called when a new file is durable, but does not have its name yet.

    Raises:
        ConfigError: a library for journals, or for this kind of URL, is not installed.
    """
    try:
        import pyarrow  # noqa: F401, PLC0415 - an extra that each opener of a journal needs
    except ImportError as error:
        what = f'needs Apache Arrow: pip install "amqsidecar[journal]" ({error})'
        raise ConfigError([Problem("journal.path", what)]) from error
    local = local_folder(path)
    if local is not None:
        return LocalFolder(local, writer, before_rename)
    from fsspec.core import url_to_fs  # noqa: PLC0415 - not needed for folders

    try:
        filesystem, root = url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise ConfigError([Problem("journal.path", f"can't be used: {error}")]) from error
    return ObjectFolder(filesystem, root, path)


def local_folder(path: str) -> Path | None:
    """Return the folder that `journal.path` names; None = it names a prefix of an object store."""
    for scheme in _LOCAL_SCHEMES:
        path = path.removeprefix(scheme)
    return None if "://" in path else Path(path)


@contextmanager
def _told(what: str, path: object, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise JournalError(f"{path} can't be {what}: {reason}") from error


class LocalFolder:
    """A folder on a disk."""

    def __init__(self, root: Path, writer: str, before_rename: Callable[[], None]) -> None:
        self._root = root
        self._writer = writer
        self._before_rename = before_rename
        self._mended: set[Path] = set()

    @property
    def path(self) -> str:
        """Where it is."""
        return str(self._root)

    def top_names(self) -> list[str]:
        """Return the names in the journal's folder."""
        return self._listed(self._root)

    def names(self, stream: str) -> list[str]:
        """Return the names of all files of a stream."""
        return self._listed(self._root / stream_folder(stream))

    def open(self, stream: str, name: str) -> BinaryIO:
        """Return a file for reading."""
        path = self._of(stream, name)
        with _told("read", path, OSError):
            return path.open("rb")

    def size(self, stream: str, name: str) -> int:
        """Return the bytes of a file."""
        path = self._of(stream, name)
        with _told("read", path, OSError):
            return path.stat().st_size

    def write(self, stream: str, name: str, fill: Fill) -> int:
        """Write beside it, make that durable, and rename it.

        A process that dies leaves a hidden file that readers don't see; it is written over when
        the same writer writes the same file again.
        """
        path = self._of(stream, name)
        temporary = path.with_name(f".{name}.{self._writer}")
        with _told("written", path, OSError):
            self._make_folder(path.parent)
            try:
                with os.fdopen(open_private(temporary, _NEW_FILE), "wb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                    size = file.tell()
                self._before_rename()
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            sync_folder(path.parent)
        return size

    def remove(self, stream: str, name: str) -> None:
        """Remove a file."""
        path = self._of(stream, name)
        with _told("removed", path, OSError):
            path.unlink(missing_ok=True)

    def _of(self, stream: str, name: str) -> Path:
        return self._root / stream_folder(stream) / name

    def _listed(self, folder: Path) -> list[str]:
        with _told("read", folder, OSError):
            try:
                return sorted(path.name for path in folder.iterdir())
            except FileNotFoundError:
                return []

    def _make_folder(self, folder: Path) -> None:
        """Make the folder of a stream, or correct its permissions once: it is private."""
        if not folder.is_dir():
            make_private_folder(folder)
        elif folder not in self._mended:
            for one in (folder, *folder.iterdir()):
                mend(one)
        self._mended.add(folder)


class ObjectFolder:
    """A prefix of an object store, where a file exists once its single put is done."""

    def __init__(self, filesystem: Any, root: str, url: str) -> None:
        self._files = filesystem
        self._root = root.rstrip("/")
        self.path = url

    def top_names(self) -> list[str]:
        """Return the names in the journal's folder."""
        return self._listed(self._root)

    def names(self, stream: str) -> list[str]:
        """Return the names of all files of a stream."""
        return self._listed(f"{self._root}/{stream_folder(stream)}")

    def open(self, stream: str, name: str) -> BinaryIO:
        """Return a file for reading."""
        with _told("read", self._told_path(stream, name), Exception):
            file: BinaryIO = self._files.open(self._of(stream, name), "rb")
            return file

    def size(self, stream: str, name: str) -> int:
        """Return the bytes of a file."""
        with _told("read", self._told_path(stream, name), Exception):
            return int(self._files.size(self._of(stream, name)))

    def write(self, stream: str, name: str, fill: Fill) -> int:
        """Put the whole file at once."""
        with _told("written", self._told_path(stream, name), Exception):
            content = io.BytesIO()
            fill(content)
            self._files.pipe_file(self._of(stream, name), content.getvalue())
            return content.tell()

    def remove(self, stream: str, name: str) -> None:
        """Remove a file."""
        with _told("removed", self._told_path(stream, name), Exception):
            try:
                self._files.rm_file(self._of(stream, name))
            except FileNotFoundError:
                return

    def _of(self, stream: str, name: str) -> str:
        return f"{self._root}/{stream_folder(stream)}/{name}"

    def _told_path(self, stream: str, name: str) -> str:
        return f"{self.path.rstrip('/')}/{stream_folder(stream)}/{name}"

    def _listed(self, prefix: str) -> list[str]:
        with _told("read", prefix, Exception):
            # Why: listings are kept, and others write there, too.
            self._files.invalidate_cache(prefix)
            try:
                found = self._files.ls(prefix, detail=False)
            except FileNotFoundError:
                return []
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in found)
