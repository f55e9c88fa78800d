"""The state of `recovery --state`: what was read, and what became of it, for the next run.

Each run writes a folder of its own and then, by one rename, a file `state-<number>.json` that names
it. The highest number counts.

A message is kept in three parts: the counts and the steps that were settled once, and the steps
since then. The kept counts are those of the settled steps alone, whatever is known besides. So a
message whose life goes on after it was settled, counts again with all of its steps, less what is
kept; how a history is divided into runs makes no difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib.metadata import version
from typing import Any, Final, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    GROUP,
    MOMENT_STEP,
    STEPS,
    SUMS,
    ObservedStreams,
    add_up,
    count_lives,
    judge_lives,
)
from amqsidecar.pipeline.recovery.lives import (
    Survey,
    observed_streams,
    read_steps,
    seen_of,
    surveyed,
)
from amqsidecar.pipeline.recovery.packed import pack, unpack
from amqsidecar.pipeline.recovery.steps import SEEN_BUCKET, seen_in
from amqsidecar.pipeline.results import time_text
from amqsidecar.pipeline.sources.journal_files import folder_of
from amqsidecar.pipeline.sources.output_files import list_names, read_file, remove, write_file
from amqsidecar.pipeline.sources.unread import Covered, unread_files


class Continued(NamedTuple):
    """What a run makes of the steps that are not settled.

    Attributes:
        settled: `COUNTS` to add to those that are kept.
        unsettled: `COUNTS` to add to the kept ones for now.
        finished: `STEPS` that are settled now.
        open: `STEPS` that are not, or that come after the end of the observation.
        carried: settled `STEPS` of messages that are open.
    """

    settled: pyarrow.Table
    unsettled: pyarrow.Table
    finished: pyarrow.Table
    open: pyarrow.Table
    carried: pyarrow.Table


def advance(
    carried: pyarrow.Table,
    looked_up: pyarrow.Table,
    unfinished: pyarrow.Table,
    observed: ObservedStreams,
    until_ms: int | None,
) -> Continued:
    """Judge messages again of which something is new or open.

    Args:
        carried: see `Continued`, of the run before.
        looked_up: all `STEPS` that are settled, of the messages that are new in this run.
        unfinished: `STEPS` that are open or new; all of each message that has one.
        observed: what is observed now; no stream's end is earlier than when steps were settled.
        until_ms: steps at or after this don't count yet; None = all do.
    """
    none = COUNTS.empty_table()
    finished = pyarrow.concat_tables([carried, _of(looked_up, carried, are_in=False)])
    is_later = np.zeros(len(unfinished), dtype=np.bool_)
    if until_ms is not None:
        is_later = unfinished.column("moment").to_numpy() // MOMENT_STEP >= until_ms
    later, steps = unfinished.filter(is_later), unfinished.filter(~is_later)
    known = pyarrow.concat_tables([finished, steps])
    if not len(known):
        return Continued(none, none, known, later, known)
    judged = judge_lives(known, observed)
    was_kept, is_settled = np.split(judged.is_settled_step, [len(finished)])

    def changed(is_of: NDArray[np.bool_], is_kept: NDArray[np.bool_]) -> pyarrow.Table:
        kept = finished.filter(is_kept)
        less = _negative(count_lives(kept, observed)) if len(kept) else none
        return add_up(pyarrow.concat_tables([judged.counts.filter(is_of), less]))

    settled, open_ = steps.filter(is_settled), steps.filter(~is_settled)
    open_ = pyarrow.concat_tables([open_, later])
    return Continued(
        settled=changed(judged.is_settled_count, was_kept),
        unsettled=changed(~judged.is_settled_count, ~was_kept),
        finished=settled,
        open=open_,
        carried=_of(pyarrow.concat_tables([finished, settled]), open_),
    )


def _of(steps: pyarrow.Table, others: pyarrow.Table, *, are_in: bool = True) -> pyarrow.Table:
    """Return the steps of messages that others are of, or are not of."""
    is_in = np.isin(steps.column("id").to_numpy(), others.column("id").to_numpy())
    return steps.filter(is_in == are_in)


def _negative(counts: pyarrow.Table) -> pyarrow.Table:
    for name in SUMS:
        at = counts.schema.get_field_index(name)
        counts = counts.set_column(at, name, [-counts.column(name).to_numpy()])
    return counts


_MOST_KEPT: Final = 16
"""Folders with settled messages; more are made one."""
_ROWS: Final = "bucket int, origin bigint, cause_group bigint, ids binary, content binary"
"""Steps of a bucket, with the ids of messages if they are settled; or counts of a group."""
_JUDGED: Final = f"kind string, {_ROWS}"
_FINISHED, _OPEN, _CARRIED, _SETTLED, _UNSETTLED = (
    *("finished", "open", "carried"),
    *("settled", "unsettled"),
)
"""Kinds of rows; see `incremental.Continued`."""
_OF_ONE_RUN: Final = ("seen", *(f"judged/kind={one}" for one in (_OPEN, _CARRIED, _UNSETTLED)))
"""What the next run writes again."""

_QUESTION: Final = {
    "version": "version",
    "format": "format",
    "events": "history",
    "horizon_ms": "horizon (ms)",
}
"""What must be the same in all runs."""


class _Known(msgspec.Struct, frozen=True):
    """What a file of the state holds.

    Attributes:
        version: of amqsidecar; another may count in another way.
        events: where the history is.
        horizon_ms: see `judge.ObservedStreams`.
        covered: what was read.
        ends_ms: end of the observation by number of the stream.
        until_ms: events at and after it did not count; None = all did.
        run: name of the folder of the last run; empty = none.
        kept: names of the folders that have settled messages.
        format: of the steps and counts; another number with each change of `STEPS` or `COUNTS`.
    """

    version: str
    events: str
    horizon_ms: int
    covered: Covered = Covered()
    ends_ms: dict[int, int] = {}
    until_ms: int | None = None
    run: str = ""
    kept: tuple[str, ...] = ()
    format: int = 2


class KeptState:
    """What earlier runs found in a history, and what is unread.

    Attributes:
        is_current: whether nothing is new, in the history or in the question.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        events: str,
        horizon_ms: int,
        until_ms: int | None,
    ) -> None:
        """Open a folder, and remove what a killed run left there.

        Raises:
            ConfigError: the history or the state can't be read, or the state is of another history.
        """
        self._spark = spark
        self._folder = folder_of(folder)[2]
        self._until_ms = until_ms
        names = list_names(self._folder)
        files = sorted(one for one in names if one.startswith("state-"))
        self._number = int(files[-1].split("-")[1].split(".")[0]) if files else 0
        self._known = _Known(version("amqsidecar"), events, horizon_ms)
        if files:
            self._known = _opened(f"{self._folder}/{files[-1]}", self._known)
        self._clear()
        self._unread, self._covered = unread_files(spark, events, self._known.covered)
        is_asked_again = bool(self._known.run) and until_ms == self._known.until_ms
        self.is_current = is_asked_again and not self._unread

    @property
    def run(self) -> str:
        """The name of the last run; no other has it."""
        return self._known.run

    def advance(self) -> tuple[Survey, DataFrame]:
        """Read and keep what is unread, and return all that is known.

        Returns:
            The survey, and `packed.PACKED`, as `lives.count_outcomes` makes them of the whole
            history.

        Raises:
            ConfigError: events can't be read, or the observation ended later in an earlier run.
        """
        if not self.is_current:
            self._add()
        content = read_file(f"{self._folder}/{self.run}/seen")
        counts = self._counts(self._known.kept, _SETTLED)
        counts = counts.unionByName(self._counts([self.run], _UNSETTLED))
        return surveyed(seen_in([content]), self._until_ms), counts

    def _add(self) -> None:
        old = self._known
        new = read_steps(
            self._spark,
            self._unread,
            until_ms=self._until_ms,
            keeps_later=True,
            keeps_ids=bool(old.kept),
        )
        new = new.persist(StorageLevel.DISK_ONLY)
        seen = seen_of(new)
        ids = np.unique(np.frombuffer(seen.ids, np.int64))
        seen.ids = b""
        if old.run:
            content = read_file(f"{self._folder}/{old.run}/seen")
            seen = seen_in([content, msgspec.msgpack.encode(seen)])
        seen = seen.before(None if self._until_ms is None else self._until_ms * 1_000)
        ends_ms = surveyed(seen, self._until_ms).ends_ms
        _check_ends(self._folder, old, ends_ms, self._until_ms)
        steps = [
            new.where(f.col("bucket") != SEEN_BUCKET).withColumn("kind", f.lit(_OPEN)),
            *(self._rows([old.run], kind) for kind in (_OPEN, _CARRIED)),
            self._finished_of(ids),
        ]
        named = [one.select("kind", "bucket", "content") for one in steps]
        observed = observed_streams(ends_ms, old.horizon_ms, None)
        run = f"run-{uuid4().hex}"
        self._write(_judged(reduce(DataFrame.unionByName, named), observed, self._until_ms), run)
        new.unpersist()
        write_file(f"{self._folder}/{run}/seen", msgspec.msgpack.encode(seen))
        kept = (*old.kept, run)
        self._known = msgspec.structs.replace(
            old,
            covered=self._covered,
            ends_ms=dict(ends_ms),
            until_ms=self._until_ms,
            run=run,
            kept=kept if len(kept) <= _MOST_KEPT else (self._made_one(kept),),
        )
        # Why not over the older one: on a local disk its checksum is a file of its own.
        self._number += 1
        content = msgspec.json.encode(self._known)
        write_file(f"{self._folder}/state-{self._number:06}.json", content)
        self._clear()

    def _made_one(self, kept: Sequence[str]) -> str:
        """Write what these folders keep into a new one, and return its name."""
        settled = self._counts(kept, _SETTLED).repartition(*GROUP).mapInArrow(_merge, _JUDGED)
        name = f"run-{uuid4().hex}"
        self._write(self._rows(kept, _FINISHED).unionByName(settled), name)
        return name

    def _clear(self) -> None:
        """Remove what no run needs, also of one that was killed."""
        known = self._known
        for name in list_names(self._folder):
            path = f"{self._folder}/{name}"
            if name.startswith("run-") and name not in {known.run, *known.kept}:
                remove([path])
            elif name.startswith("run-") and name != known.run:
                remove([f"{path}/{one}" for one in _OF_ONE_RUN])
            elif name.startswith("state-") and name != f"state-{self._number:06}.json":
                remove([path])

    def _rows(self, runs: Sequence[str], kind: str) -> DataFrame:
        paths = [f"{self._folder}/{run}/judged" for run in runs if run]
        paths = [one for one in paths if f"kind={kind}" in list_names(one)]
        files = [f"{one}/kind={kind}" for one in paths]
        return self._read(files).withColumn("kind", f.lit(kind))

    def _read(self, paths: Sequence[str]) -> DataFrame:
        if not paths:
            return self._spark.createDataFrame([], _ROWS)
        return self._spark.read.schema(_ROWS).parquet(*paths)

    def _counts(self, runs: Sequence[str], kind: str) -> DataFrame:
        return self._rows(runs, kind).selectExpr(*GROUP, "content AS counts")

    def _write(self, rows: DataFrame, run: str) -> None:
        path = f"{self._folder}/{run}/judged"
        rows.write.partitionBy("kind").option("compression", "zstd").parquet(path)

    def _finished_of(self, ids: NDArray[np.int64]) -> DataFrame:
        """Return the settled steps of messages; of files that have none only the ids are read."""

        def having(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                rows = zip(*batch.to_pydict().values(), strict=True)
                found = [
                    file for file, own in rows if _are_in(np.frombuffer(own, np.int64), ids).any()
                ]
                yield pyarrow.RecordBatch.from_pydict({"file": pyarrow.array(found, "string")})

        def chosen(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                for kind, bucket, content in zip(*batch.to_pydict().values(), strict=True):
                    matrix = _matrix([content])
                    is_asked = _are_in(matrix[0], ids)
                    if is_asked.any():
                        yield _row(kind, bucket=[bucket], content=[matrix[:, is_asked].tobytes()])

        files: list[str] = []
        if len(ids) and self._known.kept:
            there = self._rows(self._known.kept, _FINISHED)
            there = there.selectExpr("_metadata.file_path AS file", "ids")
            found = there.mapInArrow(having, "file string").toArrow()
            files = sorted({unquote(one) for one in found.column(0).to_pylist()})
        rows = self._read(files).select(f.lit(_FINISHED).alias("kind"), "bucket", "content")
        return rows.mapInArrow(chosen, _JUDGED)


def _opened(path: str, wanted: _Known) -> _Known:
    """Return what a file of the state holds, if it is of the same question."""
    anew = "name a new folder for --state, which reads all again"
    try:
        content = msgspec.json.decode(read_file(path), type=dict[str, Any])
        for name, said in _QUESTION.items():
            was, now = content.get(name), getattr(wanted, name)
            if was != now:
                what = f"is of another {said}: {was}, not {now}; {anew}"
                raise ConfigError([Problem(path, what)])
        known = msgspec.convert(content, _Known, strict=False)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError([Problem(path, f"is damaged; {anew}")]) from error
    folder = path.rpartition("/")[0]
    for run in (known.run, *known.kept):
        if "_SUCCESS" not in list_names(f"{folder}/{run}/judged"):
            raise ConfigError([Problem(f"{folder}/{run}", f"is not whole; {anew}")])
    return known


def _check_ends(folder: str, old: _Known, ends_ms: Mapping[int, int], until_ms: int | None) -> None:
    # Why one more: the event that ended the observation counted.
    more = int(until_ms is not None and old.until_ms is None)
    if any(ends_ms.get(stream, -1) < end + more for stream, end in old.ends_ms.items()):
        latest = time_text(max(old.ends_ms.values()) + more, "")
        raise ConfigError([Problem(folder, f"was observed until {latest}; give a later --until")])


def _judged(steps: DataFrame, observed: ObservedStreams, until_ms: int | None) -> DataFrame:
    def judge(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        parts: dict[int, dict[str, list[bytes]]] = {}
        for batch in batches:
            for kind, bucket, content in zip(*batch.to_pydict().values(), strict=True):
                parts.setdefault(bucket, {}).setdefault(kind, []).append(content)
        counts: dict[str, list[pyarrow.Table]] = {_SETTLED: [], _UNSETTLED: []}
        for bucket, part in parts.items():
            carried, finished, open_ = (
                _table(part.get(kind, ())) for kind in (_CARRIED, _FINISHED, _OPEN)
            )
            made = advance(carried, finished, open_, observed, until_ms)
            counts[_SETTLED].append(made.settled)
            counts[_UNSETTLED].append(made.unsettled)
            for kind in (_FINISHED, _OPEN, _CARRIED):
                table = getattr(made, kind)
                if len(table):
                    matrix = np.stack([one.to_numpy() for one in table.columns])
                    ids = np.unique(matrix[0]).tobytes() if kind == _FINISHED else None
                    yield _row(kind, bucket=[bucket], ids=[ids], content=[matrix.tobytes()])
        for kind, tables in counts.items():
            if tables:
                yield from _packed(kind, pyarrow.concat_tables(tables))

    return steps.repartition("bucket").mapInArrow(judge, _JUDGED)


def _merge(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    counts = unpack(batches)
    if len(counts):
        yield from _packed(_SETTLED, counts)


def _packed(kind: str, counts: pyarrow.Table) -> Iterator[pyarrow.RecordBatch]:
    for batch in pack(add_up(counts)):
        yield _row(kind, **dict(zip((*GROUP, "content"), batch.columns, strict=True)))


def _row(kind: str, **columns: Any) -> pyarrow.RecordBatch:
    """Return rows of `_JUDGED`; what isn't given is null."""
    rows = len(columns["content"])
    types = {"bucket": "int32", **dict.fromkeys(GROUP, "int64")}
    made = {"kind": pyarrow.array([kind] * rows)}
    for name in ("bucket", *GROUP, "ids", "content"):
        made[name] = pyarrow.array(columns.get(name, [None] * rows), types.get(name, "binary"))
    return pyarrow.RecordBatch.from_pydict(made)


def _matrix(contents: Sequence[bytes]) -> NDArray[np.int64]:
    none = np.zeros((len(STEPS), 0), dtype=np.int64)
    parts = [np.frombuffer(one, np.int64).reshape(len(STEPS), -1) for one in contents]
    return np.concatenate([none, *parts], axis=1)


def _table(contents: Sequence[bytes]) -> pyarrow.Table:
    return pyarrow.table(list(_matrix(contents)), schema=STEPS)


def _are_in(values: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which values are among some ids, at least one, ascending and each once."""
    found: NDArray[np.bool_] = ids[np.searchsorted(ids, values).clip(max=len(ids) - 1)] == values
    return found
