"""What a history holds beside what was read already."""

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.sources.event_files import EventFile, TablePart, find_files

Segments = list[tuple[int, int]]
"""First and last numbers, ascending."""


class Covered(msgspec.Struct, frozen=True):
    """What was read of a history.

    Attributes:
        segments: of a journal, by stream.
        files: of a table.
    """

    segments: dict[str, Segments] = {}
    files: tuple[str, ...] = ()


def unread_files(
    spark: SparkSession, path: str, covered: Covered
) -> tuple[list[EventFile], Covered]:
    """Return the files that were not read, whatever their times, and what is covered with them.

    Raises:
        ConfigError: see `find_files`; or a table has none of the files that were read.
    """
    unread: list[EventFile] = []
    segments = dict(covered.segments)
    known, files = set(covered.files), set()
    for one in find_files(spark, path):
        if isinstance(one, TablePart):
            files.add(one.url)
            unread += [] if one.url in known else [one]
            continue
        stream = one.file.stream
        for first, last in missing(covered.segments.get(stream, ()), one.first, one.last):
            unread.append(one._replace(first=first, last=last))
            segments[stream] = joined([*segments.get(stream, ()), (first, last)])
    if known and files.isdisjoint(known):
        what = "has none of the files that the state has read; name a new folder for --state"
        raise ConfigError([Problem(path, what)])
    return unread, Covered(segments, tuple(sorted(files)))


def missing(covered: Sequence[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield which of the numbers from `first` to `last` are not covered."""
    for low, high in (*covered, (last + 1, last + 1)):
        if first <= min(low - 1, last):
            yield first, min(low - 1, last)
        first = max(first, high + 1)


def joined(intervals: Segments) -> Segments:
    """Return the same numbers in as few intervals as possible, ascending."""
    found: Segments = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found
