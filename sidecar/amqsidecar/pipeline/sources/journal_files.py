"""The files of journals, their segments, and checks of their content.

Several files can hold one segment: an interrupted compaction leaves the old files beside the new
one, and a journal may have been copied. Their content is the same, so any of them will do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import fsspec
import fsspec.core
import pyarrow
import pyarrow.compute
from pyarrow import parquet

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.formats.parquet_pages import unpacking_problem
from amqsidecar.journal import ADDED, COLUMNS, segment_file, stream_of, version_problem

_TRIES: Final = 3


class JournalFile(NamedTuple):
    """One file, as its name describes it.

    Attributes:
        url: as Spark and fsspec take it.
        first: number of the first segment that it holds.
        last: number of the last one.
        size_bytes: 0 = not known.
    """

    url: str
    stream: str
    first: int
    last: int
    size_bytes: int


class Slice(NamedTuple):
    """The segments of one file that are read, from `first` to `last`."""

    file: JournalFile
    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether it has all segments of the file."""
        return (self.first, self.last) == (self.file.first, self.file.last)

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether some of the segments from `first` to `last` are read."""
        return first <= self.last and last >= self.first

    def rows_of(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return the rows that are read; only of a whole file, `batch` may lack `segment`."""
        if self.is_whole:
            return batch
        segment = batch.column("segment")
        return batch.filter(
            pyarrow.compute.and_(
                pyarrow.compute.greater_equal(segment, self.first),
                pyarrow.compute.less_equal(segment, self.last),
            )
        )


class Gap(NamedTuple):
    """Missing segments, from `first` to `last`."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def list_streams(paths: Iterable[str]) -> dict[str, list[JournalFile]]:
    """Return the files of journals by stream; streams without a file are left out.

    Args:
        paths: folders, or URLs of object stores.

    Raises:
        ConfigError: one is not there, can't be listed, or has a foreign Parquet file in it.
    """
    streams: dict[str, list[JournalFile]] = {}
    for path in paths:
        for file in _list_journal(path):
            streams.setdefault(file.stream, []).append(file)
    return streams


def folder_of(path: str) -> tuple[Any, str, str]:
    """Return the file system of a folder, its path there, and its URL as Spark takes it.

    A path without a scheme is on this machine, even if Spark has another default file system.

    Raises:
        ConfigError: the kind of URL is unknown, or its library is not installed.
    """
    try:
        system, inner = fsspec.core.url_to_fs(path)
    except (ValueError, ImportError) as error:
        raise ConfigError([Problem(path, f"can't be read: {error}")]) from error
    is_local = "file" in (system.protocol if isinstance(system.protocol, tuple) else ())
    return system, inner, f"file://{inner}" if is_local else path.rstrip("/")


def _list_journal(path: str) -> list[JournalFile]:
    system, root, url = folder_of(path)
    try:
        system.invalidate_cache(root)
        folders = [
            (name, stream)
            for entry in system.ls(root, detail=True)
            if (stream := stream_of(name := _last_name(entry))) is not None
        ]
        return [
            _journal_file(entry, stream, f"{url}/{folder}")
            for folder, stream in sorted(folders)
            for entry in sorted(system.ls(f"{root}/{folder}", detail=True), key=_last_name)
            if _is_visible_parquet(_last_name(entry))
        ]
    except FileNotFoundError as error:
        raise ConfigError(
            [Problem(path, "is not there; expected the folder of a journal")]
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([Problem(path, f"can't be listed: {reason}")]) from error


def _last_name(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _is_visible_parquet(name: str) -> bool:
    """Return whether it claims to be data; a file that is being written begins with a dot."""
    return name.endswith(".parquet") and not name.startswith((".", "_"))


def _journal_file(entry: dict[str, Any], stream: str, folder_url: str) -> JournalFile:
    name = _last_name(entry)
    found = segment_file(name)
    if found is None:
        what = "is no segment of a journal: expected segment-<first>-<last>.parquet; move it away"
        raise ConfigError([Problem(f"{folder_url}/{name}", what)])
    return JournalFile(
        url=f"{folder_url}/{name}",
        stream=stream,
        first=found.first,
        last=found.last,
        size_bytes=int(entry.get("size") or 0),
    )


def cover(files: Sequence[JournalFile], first: int, last: int) -> tuple[list[Slice], list[Gap]]:
    """Return slices that hold each segment from `first` to `last` once, and the missing segments.

    If several files hold the next segment, the one with the highest last segment is taken.
    """
    slices: list[Slice] = []
    gaps: list[Gap] = []
    following = sorted(files, key=lambda file: file.first, reverse=True)
    best: JournalFile | None = None
    while first <= last:
        while following and following[-1].first <= first:
            candidate = following.pop()
            if best is None or candidate.last > best.last:
                best = candidate
        if best is not None and best.last >= first:
            slices.append(Slice(best, first, min(best.last, last)))
            first = best.last + 1
        else:
            end = min(following[-1].first - 1 if following else last, last)
            gaps.append(Gap(first, end))
            first = end + 1
    return slices, gaps


@contextmanager
def opened(file: JournalFile, texts: Sequence[str] = ()) -> Iterator[parquet.ParquetFile]:
    """Open a file after a check that its footer and its name agree.

    Raises:
        ConfigError: it is torn, foreign, of an unknown version, or its name is wrong; damage may
            show only while the block reads.
        FileNotFoundError: it is gone.
    """
    with opened_parquet(file.url, texts) as content:
        _check_end(file, content.metadata)
        yield content


@contextmanager
def opened_parquet(url: str, texts: Sequence[str]) -> Iterator[parquet.ParquetFile]:
    """Open a file of a table.

    Args:
        url: as Spark and fsspec take it.
        texts: columns that are read as dictionaries, where the file has them.

    Raises:
        ConfigError: it is torn or no Parquet file; damage may show only while the block reads.
        FileNotFoundError: it is gone.
    """
    with fsspec.open(url, "rb") as handle:
        try:
            footer = parquet.read_metadata(handle)
            if (problem := unpacking_problem(footer, handle)) is not None:
                raise ConfigError([Problem(url, problem)])
            there = footer.schema.names
            yield parquet.ParquetFile(
                handle,
                metadata=footer,
                read_dictionary=[one for one in texts if one in there],
                page_checksum_verification=True,
            )
        except FileNotFoundError:
            raise
        except (pyarrow.ArrowException, OSError) as error:
            what = f"is torn, or no Parquet file: {error}"
            raise ConfigError([Problem(url, what)]) from error


def read_slice(
    wanted: Slice,
    read: Callable[[parquet.ParquetFile, Slice], Iterator[pyarrow.RecordBatch]],
    find_again: Callable[[Slice], Iterable[Slice]],
    texts: Sequence[str] = (),
    tries: int = _TRIES,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a slice, from other files if a compaction removed its own meanwhile.

    Args:
        wanted: the planned slice.
        read: reads one slice of an open file.
        find_again: lists the journal anew and returns where the segments of a slice are.
        texts: see `opened`.
        tries: files that may be gone, one after the other.

    Raises:
        ConfigError: see `opened`; or the segments are gone.
    """
    with ExitStack() as stack:
        try:
            content = stack.enter_context(opened(wanted.file, texts))
        except FileNotFoundError as error:
            if tries == 1:
                raise removed(wanted.file.url) from error
        else:
            try:
                yield from read(content, wanted)
            except FileNotFoundError as error:
                raise removed(wanted.file.url) from error
            return
    for one in find_again(wanted):
        yield from read_slice(one, read, find_again, texts, tries - 1)


def find_again(wanted: Slice) -> list[Slice]:
    """Return where the segments of a slice are now.

    Raises:
        ConfigError: they are gone.
    """
    journal, _, _ = wanted.file.url.rsplit("/", 2)
    stream = wanted.file.stream
    files = list_streams([journal]).get(stream, [])
    slices, gaps = cover(files, wanted.first, wanted.last)
    if gaps:
        numbers = ", ".join(map(str, gaps))
        what = f"segments {numbers} of stream {stream} were removed while the job ran: run it again"
        raise ConfigError([Problem(journal, what)])
    return slices


def removed(url: str) -> ConfigError:
    """Return the fault of a file that was there."""
    return ConfigError([Problem(url, "was removed while the job ran: run it again")])


def _check_end(file: JournalFile, footer: parquet.FileMetaData) -> None:
    problem = (
        version_problem(footer.metadata) or _column_problem(footer) or _name_problem(file, footer)
    )
    if problem is not None:
        raise ConfigError([Problem(file.url, problem)])


def row_groups_of(
    footer: parquet.FileMetaData, may_hold: Mapping[str, Callable[[Any, Any], bool]]
) -> list[int]:
    """Return the numbers of the row groups that can hold matching rows.

    Args:
        footer: the file's footer.
        may_hold: by column: decides it by the smallest and the largest value.
    """
    groups = set(range(footer.num_row_groups))
    for column, is_asked in may_hold.items():
        bounds = list(_bounds(footer, column))
        if len(bounds) == footer.num_row_groups:
            groups -= {number for number, one in enumerate(bounds) if not is_asked(*one)}
    return sorted(groups)


def _column_problem(footer: parquet.FileMetaData) -> str | None:
    there = set(footer.schema.to_arrow_schema().names)
    lacking = [one.name for one in COLUMNS if one.name not in there and one.name not in ADDED]
    return f"lacks columns: {', '.join(lacking)}" if lacking else None


def _name_problem(file: JournalFile, footer: parquet.FileMetaData) -> str | None:
    """Compare name and content by the statistics; a copy would count twice."""
    said = (file.stream, file.stream, file.first, file.last)
    streams = list(_bounds(footer, "stream"))
    segments = list(_bounds(footer, "segment"))
    if not streams or not segments:
        return None
    held = (
        min(low for low, _ in streams),
        max(high for _, high in streams),
        min(low for low, _ in segments),
        max(high for _, high in segments),
    )
    if held == said:
        return None
    return f"holds segments {held[2]} to {held[3]} of stream {held[0]}, which contradicts its name"


def _bounds(footer: parquet.FileMetaData, column: str) -> Iterator[tuple[Any, Any]]:
    """Yield the smallest and the largest value of each row group that has statistics."""
    index = footer.schema.to_arrow_schema().names.index(column)
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(index)
        statistics = chunk.statistics if chunk.path_in_schema == column else None
        if statistics is not None and statistics.has_min_max:
            yield statistics.min, statistics.max
