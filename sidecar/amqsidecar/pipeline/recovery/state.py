"""The state of `recovery --state`: the part of a history that was read, for the next run.

It keeps the steps of all messages, so that a later run judges the whole history by its own question
and reads only what is new. Each run writes a folder of steps and then, by one rename, a file
`state-<number>.json` that names the valid folders. The highest number counts.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.recovery.lives import read_steps, seen_of
from amqsidecar.pipeline.recovery.steps import DIVIDED, SEEN_BUCKET
from amqsidecar.pipeline.sources.event_files import EventFile, TablePart, find_files
from amqsidecar.pipeline.sources.journal_files import folder_of
from amqsidecar.pipeline.sources.output_files import list_names, read_file, remove, write_file

_MOST_KEPT: Final = 16
"""Folders of steps; more are made one."""
_ANEW: Final = "name a new folder for --state, which reads all again"


Segments = list[tuple[int, int]]
"""First and last numbers, ascending."""


class Covered(msgspec.Struct, frozen=True):
    """The part of a history that was read.

    Attributes:
        segments: read segments of a journal, by stream.
        files: read files of a table.
    """

    segments: dict[str, Segments] = {}
    files: tuple[str, ...] = ()


class _Known(msgspec.Struct, frozen=True):
    """The content of a file of the state.

    Attributes:
        events: where the history is.
        covered: the part that was read.
        kept: names of the folders that have its steps.
        format: raised with each change of `DIVIDED`, `Seen` or `STEPS`.
    """

    events: str
    covered: Covered = Covered()
    kept: tuple[str, ...] = ()
    format: int = 4


class KeptState:
    """The part of a history that earlier runs have read, and the rest.

    Attributes:
        is_current: whether nothing is new in the history.
    """

    def __init__(self, spark: SparkSession, folder: str, events: str) -> None:
        """Open a folder, and remove files that a killed run left there.

        Raises:
            ConfigError: the history or the state can't be read, or the state is of another history.
        """
        self._spark = spark
        self._folder = folder_of(folder)[2]
        files = sorted(one for one in list_names(self._folder) if one.startswith("state-"))
        self._number = int(files[-1].split("-")[1].split(".")[0]) if files else 0
        self._known = _Known(events)
        if files:
            self._known = _opened(f"{self._folder}/{files[-1]}", self._known)
        self._clear()
        self._unread, self._covered = unread_files(spark, events, self._known.covered)
        self.is_current = bool(files) and not self._unread

    @property
    def name(self) -> str:
        """A name of the kept steps; it changes with them."""
        return " ".join(self._known.kept)

    def advance(self) -> DataFrame:
        """Read and keep unread files, and return the steps of the whole history.

        Returns:
            `steps.DIVIDED`, of events of all times.

        Raises:
            ConfigError: events can't be read; nothing more is kept then.
        """
        if self.is_current:
            return self._steps(self._known.kept)
        kept = (*self._known.kept, self._write(read_steps(self._spark, self._unread)))
        seen = seen_of(self._steps(kept))
        if len(kept) > _MOST_KEPT:
            steps = self._steps(kept).where(f.col("bucket") != SEEN_BUCKET)
            rest = [(SEEN_BUCKET, msgspec.msgpack.encode(seen))]
            kept = (self._write(steps.unionByName(self._spark.createDataFrame(rest, DIVIDED))),)
        self._known = msgspec.structs.replace(self._known, covered=self._covered, kept=kept)
        # Why not over the older one: on a local disk its checksum is a file of its own.
        self._number += 1
        write_file(f"{self._folder}/{self._file}", msgspec.json.encode(self._known))
        self._clear()
        return self._steps(kept)

    @property
    def _file(self) -> str:
        return f"state-{self._number:06}.json"

    def _write(self, steps: DataFrame) -> str:
        name = f"run-{uuid4().hex}"
        steps.write.option("compression", "zstd").parquet(f"{self._folder}/{name}")
        return name

    def _steps(self, kept: Sequence[str]) -> DataFrame:
        return self._spark.read.schema(DIVIDED).parquet(*(f"{self._folder}/{one}" for one in kept))

    def _clear(self) -> None:
        """Remove files that don't count, including a killed run's."""
        needed = {self._file, *self._known.kept}
        ours = [n for n in list_names(self._folder) if n.startswith(("run-", "state-"))]
        remove(f"{self._folder}/{name}" for name in ours if name not in needed)


def _opened(path: str, wanted: _Known) -> _Known:
    """Return the content of a state file, if it belongs to this history."""
    try:
        content = msgspec.json.decode(read_file(path), type=dict[str, Any])
        for name, said in (("format", "format"), ("events", "history")):
            was, now = content.get(name), getattr(wanted, name)
            if was != now:
                what = f"is of another {said}: {was}, not {now}; {_ANEW}"
                raise ConfigError([Problem(path, what)])
        known = msgspec.convert(content, _Known)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError([Problem(path, f"is damaged; {_ANEW}")]) from error
    folder = path.rpartition("/")[0]
    for run in known.kept:
        if "_SUCCESS" not in list_names(f"{folder}/{run}"):
            raise ConfigError([Problem(f"{folder}/{run}", f"is not whole; {_ANEW}")])
    return known


def unread_files(
    spark: SparkSession, path: str, covered: Covered
) -> tuple[list[EventFile], Covered]:
    """Return the unread files of all times, and the coverage once they are read.

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
