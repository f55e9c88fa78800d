"""Journals as a source of Spark, batch and streaming; runs in its Python processes.

An offset is the first and the last segment that was read of each stream. So it stays right when a
compaction changes which file holds a segment, and a restarted query reads the same segments again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import pyarrow
import structlog
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.sources.event_files import EventFile, in_tasks, read_columns
from amqsidecar.pipeline.sources.journal_files import (
    Gap,
    JournalFile,
    Slice,
    cover,
    list_streams,
    read_slice,
)
from amqsidecar.pipeline.tables import EVENTS, arrow_schema

log = structlog.get_logger("amqsidecar.pipeline")


class Reached(TypedDict):
    """The segments of a stream that were read: all from `first` to `last`."""

    first: int
    last: int


Offset = dict[str, Reached]
"""By stream; one that is not in it was not begun."""


class JournalSourceOptions(NamedTuple):
    """The options of the source.

    Attributes:
        paths: of journals; a stream in several of them is read once.
        fails_on_data_loss: whether a missing segment ends a read; otherwise it is logged.
        max_segments: maximum segments of each stream in one micro-batch; None = all.
    """

    paths: tuple[str, ...]
    fails_on_data_loss: bool
    max_segments: int | None


class SlicesPartition(InputPartition):
    """The slices that one task reads."""

    def __init__(self, slices: Sequence[EventFile]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)


class _Journals:
    """The common part of both readers."""

    def __init__(self, options: JournalSourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the events of a partition in order, with the columns of `EVENTS`."""
        assert isinstance(partition, SlicesPartition)  # noqa: S101 - ours are
        schema = arrow_schema(EVENTS)
        for one in partition.slices:
            assert isinstance(one, Slice)  # noqa: S101 - of a journal
            for batch in read_slice(one, self._batches, self._find_again):
                yield batch.cast(schema)

    def _batches(self, content: Any, wanted: Slice) -> Iterator[pyarrow.RecordBatch]:
        return read_columns(content, wanted, EVENTS.names, {})

    def _find_again(self, wanted: Slice) -> list[Slice]:
        stream = wanted.file.stream
        files = list_streams(self._options.paths).get(stream, [])
        return self._cover(stream, files, wanted.first, wanted.last)

    def _cover(
        self, stream: str, files: Sequence[JournalFile], first: int, last: int
    ) -> list[Slice]:
        """Return the slices of files that hold these segments.

        Raises:
            ConfigError: some lack, and that is an error.
        """
        slices, gaps = cover(files, first, last)
        if gaps and self._options.fails_on_data_loss:
            raise self._lost(stream, gaps)
        for gap in gaps:
            log.warning("journal_gap", stream=stream, lacking_segments=str(gap))
        return slices

    def _lost(self, stream: str, gaps: Sequence[Gap]) -> ConfigError:
        what = (
            f"segments {', '.join(str(gap) for gap in gaps)} of stream {stream} are in none of "
            "these journals: they were removed before they were read, or lie in a journal that is "
            "not named; restore them, or continue without them by failOnDataLoss=false"
        )
        return ConfigError([Problem(", ".join(self._options.paths), what)])


class JournalReader(_Journals, DataSourceReader):
    """Reads all segments that journals hold when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return parts of about equal size."""
        streams = list_streams(self._options.paths)
        if not streams:
            what = "no segments of a journal are there (stream=*/segment-*.parquet)"
            raise ConfigError([Problem(", ".join(self._options.paths), what)])
        slices: list[Slice] = []
        for stream, files in sorted(streams.items()):
            first, last = min(file.first for file in files), max(file.last for file in files)
            slices += self._cover(stream, files, first, last)
        return _partitions(slices)


class JournalStreamReader(_Journals, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads segments as they are added to journals."""

    def __init__(self, options: JournalSourceOptions) -> None:
        super().__init__(options)
        self._target: Mapping[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which no stream was read."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options."""
        limit = self._options.max_segments
        return ReadAllAvailable() if limit is None else ReadMaxFiles(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only segments that exist now."""
        streams = list_streams(self._options.paths)
        self._target = {
            stream: max(file.last for file in files) for stream, files in streams.items()
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch.

        Raises:
            ConfigError: the next segment of a stream is gone.
        """
        at_most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        end: Offset = dict(start)
        for stream, files in list_streams(self._options.paths).items():
            newest = max(file.last for file in files)
            if self._target is not None:
                newest = min(newest, self._target.get(stream, 0))
            reached = end.get(stream)
            first = min(file.first for file in files) if reached is None else reached["last"] + 1
            if at_most is not None:
                newest = min(newest, first + at_most - 1)
            newest = self._before_gap(stream, files, first, newest)
            if newest >= first:
                begun = first if reached is None else reached["first"]
                end[stream] = Reached(first=begun, last=newest)
        return dict(end)

    def _before_gap(
        self, stream: str, files: Sequence[JournalFile], first: int, newest: int
    ) -> int:
        """Return the last segment without a gap before it."""
        _, gaps = cover(files, first, newest)
        if not gaps or not self._options.fails_on_data_loss:
            return newest
        if gaps[0].first == first:
            raise self._lost(stream, gaps)
        return gaps[0].first - 1

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return parts of a micro-batch, of about equal size."""
        streams = list_streams(self._options.paths)
        slices: list[Slice] = []
        for stream, reached in sorted(end.items()):
            first = start[stream]["last"] + 1 if stream in start else reached["first"]
            slices += self._cover(stream, streams.get(stream, []), first, reached["last"])
        return _partitions(slices)


def _partitions(slices: Sequence[Slice]) -> list[InputPartition]:
    return [SlicesPartition(task) for task in in_tasks(slices)]
