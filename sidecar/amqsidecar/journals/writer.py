"""Writes segments, and removes old segments."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from amqsidecar.errors import JournalError, SegmentTaken
from amqsidecar.journal import MESSAGES, Segment, SegmentFile, current_files, stream_of
from amqsidecar.journals.columns import table_of
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import holds, newest_at_ms, opened, parquet_writer, path_of
from amqsidecar.journals.schema import MESSAGES_SCHEMA
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import RowView


class JournalWriter:
    """Writes into one journal.

    Args:
        folder: where the journal is.
        sidecar: value of the column `sidecar`.
        cause_text: whether the broker's cause text is written.
    """

    def __init__(self, folder: Folder, *, sidecar: str, cause_text: bool) -> None:
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

    def write_messages(
        self, folder: str, operation: int, messages: Sequence[tuple[RowView, bytes]]
    ) -> int:
        """Write messages with their bodies into a file of their own; returns the bytes written.

        The same messages make the same file; a kill may leave a message in two files.

        Raises:
            JournalError: it can't be written.
        """
        ids = ",".join(str(row.id) for row, _ in messages)
        digest = hashlib.sha256(ids.encode()).hexdigest()[:16]
        columns = [
            [getattr(row, name) for row, _ in messages] for name in MESSAGES_SCHEMA.names[:-1]
        ]
        table = pa.table([*columns, [body for _, body in messages]], schema=MESSAGES_SCHEMA)
        return self._folder.write(
            folder,
            f"{MESSAGES}{operation}-{digest}.parquet",
            lambda sink: pq.write_table(table, sink, compression="zstd"),
        )

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
