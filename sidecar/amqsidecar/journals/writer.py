"""Writes segments, and removes those that are too old."""

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from amqsidecar.errors import JournalError, SegmentTaken
from amqsidecar.journal import Segment, SegmentFile, current_files, stream_of
from amqsidecar.journals.columns import table_of
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import holds, newest_at_ms, opened, parquet_writer, path_of
from amqsidecar.model.event import AnyEvent


class JournalWriter:
    """Writes into one journal."""

    def __init__(self, folder: Folder, *, sidecar: str, cause_text: bool) -> None:
        """Prepare.

        Args:
            folder: where the journal is.
            sidecar: what the column of that name says.
            cause_text: whether the broker's words are written.
        """
        self._folder = folder
        self._sidecar = sidecar
        self._cause_text = cause_text

    def write(self, segment: Segment, blocks: Iterable[Sequence[AnyEvent]]) -> int:
        """Write a segment's file, unless it is there; returns the bytes written.

        If the process dies inside, the file is there, whole, or not.

        Raises:
            JournalError: it can't be written.
            SegmentTaken: there are other events under this number.
        """
        rows = table_of(segment, blocks, sidecar=self._sidecar, cause_text=self._cause_text)
        if rows.num_rows != segment.event_count:
            raise JournalError(
                f"segment {segment.number} of {segment.stream} was planned with "
                f"{segment.event_count} events, the store has {rows.num_rows}"
            )
        if self._is_there(segment, rows):
            return 0
        file = SegmentFile(segment.number, segment.number)

        def fill(sink: BinaryIO) -> None:
            with parquet_writer(sink) as parquet:
                parquet.write_table(rows)

        return self._folder.write(segment.stream, file.name, fill)

    def forget(self, before_ms: int) -> int:
        """Remove files whose events are all older, the oldest first; returns how many."""
        removed = 0
        for stream in streams_of(self._folder):
            for file in files_of(self._folder, stream):
                with opened(self._folder, stream, file) as parquet:
                    if newest_at_ms(parquet) >= before_ms:
                        break
                self._folder.remove(stream, file.name)
                removed += 1
        return removed

    def _is_there(self, segment: Segment, rows: Any) -> bool:
        """Return whether an earlier attempt, another process or a compaction has written it.

        A file with other events is never replaced: it is the only place where they are.
        """
        for file in files_of(self._folder, segment.stream):
            if file.first <= segment.number <= file.last:
                with opened(self._folder, segment.stream, file) as parquet:
                    is_same = holds(parquet, segment.number, rows)
                if not is_same:
                    raise SegmentTaken(
                        f"{path_of(segment.stream, file)}: has other events of segment "
                        f"{segment.number} than the store, which is an older state or a copy"
                    )
                return True
        return False


def streams_of(folder: Folder) -> list[str]:
    """Return the streams in a journal."""
    return [stream for name in folder.top_names() if (stream := stream_of(name)) is not None]


def files_of(folder: Folder, stream: str) -> list[SegmentFile]:
    """Return the files of a stream that count.

    Raises:
        JournalError: it can't be listed, or two files overlap.
    """
    try:
        return current_files(folder.names(stream))
    except ValueError as error:
        raise JournalError(f"{folder.path}, stream {stream}: {error}") from error
