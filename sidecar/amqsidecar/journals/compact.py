"""Merges small files of a journal into larger ones.

Files are merged by tens of segments: 1 to 10, 11 to 20, then 1 to 100, and so on. So any
two files ever made are either nested or disjoint, even if processes compact at the same time or die
in between (`journal.current_files`).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa

from amqsidecar.errors import JournalError
from amqsidecar.journal import SegmentFile, gaps, segment_file
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import opened, parquet_writer, path_of, portions
from amqsidecar.journals.writer import files_of, streams_of

_FACTOR: Final = 10
_GROUP_ROWS: Final = 100_000
_GROUP_BYTES: Final = 64 << 20
"""Rows that are read together later on, and their bytes; few enough for little memory."""


class Compacted(msgspec.Struct, kw_only=True):
    """The result of a compaction.

    Attributes:
        merged: number of files merged.
        into: number of files that these became.
        removed: number of files removed, since larger files hold their events.
    """

    merged: int = 0
    into: int = 0
    removed: int = 0


def compact(folder: Folder, max_events: int) -> Compacted:
    """Merge small files, and remove those whose content larger files hold.

    If the process dies midway, every event is still in exactly one file that counts.

    Args:
        folder: where the journal is.
        max_events: maximum events of a merged file.

    Raises:
        JournalError: a file is damaged, or can't be read, written or removed.
    """
    done = Compacted()
    for stream in streams_of(folder):
        _remove_held(folder, stream, done)
        files = files_of(folder, stream)
        counts = {file: _count(folder, stream, file) for file in files}
        size = _FACTOR
        while files and size <= files[-1].last:
            for target, group in _groups(files, size):
                count = sum(map(counts.__getitem__, group))
                if count > max_events:
                    continue
                _merge(folder, stream, target, group)
                counts[target] = count
                files = [file for file in files if file not in group]
                files.append(target)
                done.merged += len(group)
                done.into += 1
                for file in group:
                    folder.remove(stream, file.name)
                    done.removed += 1
            files.sort()
            size *= _FACTOR
    return done


def _groups(
    files: Sequence[SegmentFile], size: int
) -> Iterator[tuple[SegmentFile, list[SegmentFile]]]:
    """Yield each merged file to write and the files that fill its range of `size` segments."""
    numbers = [(file.first - 1) // size for file in files]
    for number, members in groupby(zip(numbers, files, strict=True), itemgetter(0)):
        group = [file for _, file in members]
        target = SegmentFile(number * size + 1, (number + 1) * size)
        is_whole = (group[0].first, group[-1].last) == target and not gaps(group)
        if is_whole and len(group) > 1:
            yield target, group


def _count(folder: Folder, stream: str, file: SegmentFile) -> int:
    with opened(folder, stream, file) as parquet:
        return int(parquet.metadata.num_rows)


def _merge(folder: Folder, stream: str, target: SegmentFile, files: Sequence[SegmentFile]) -> None:
    def fill(sink: BinaryIO) -> None:
        with parquet_writer(sink) as merged:
            waiting: list[pa.Table] = []
            for file in files:
                with opened(folder, stream, file) as parquet:
                    for portion in portions(parquet):
                        waiting.append(portion)
                        if (
                            sum(len(one) for one in waiting) >= _GROUP_ROWS
                            or sum(one.nbytes for one in waiting) >= _GROUP_BYTES
                        ):
                            merged.write_table(pa.concat_tables(waiting))
                            waiting = []
            if waiting:
                merged.write_table(pa.concat_tables(waiting))

    folder.write(stream, target.name, fill)


def _remove_held(folder: Folder, stream: str, done: Compacted) -> None:
    """Remove files whose events a larger file holds, after checking that it does."""
    names = folder.names(stream)
    current = files_of(folder, stream)
    for name in names:
        file = segment_file(name)
        if file is None or file in current:
            continue
        holder = next(one for one in current if one.first <= file.first and file.last <= one.last)
        rows = _rows_between(folder, stream, holder, file)
        if rows != _count(folder, stream, file):
            raise JournalError(
                f"{path_of(stream, holder)}: does not contain all of {name}; both are kept"
            )
        folder.remove(stream, name)
        done.removed += 1


def _rows_between(folder: Folder, stream: str, holder: SegmentFile, file: SegmentFile) -> int:
    count = 0
    with opened(folder, stream, holder) as parquet:
        for portion in portions(parquet, ["segment"]):
            count += sum(file.first <= n <= file.last for n in portion["segment"].to_pylist())
    return count
