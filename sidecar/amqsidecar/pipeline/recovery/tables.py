"""The tables of the job `recovery`, all made of counts.

All counts of a group come to one Python process, which makes all of its rows in all tables. A group
has at most some thousand distinct times for each re-send, however many messages it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pandas
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    ENDS,
    FIRST_HOURLY,
    FIRST_MESSAGE,
    GROUP,
    HOURLY_OUTCOMES,
    MESSAGE_OUTCOMES,
    NONE,
    NOTHING,
    OUTCOMES,
    SEND_OUTCOMES,
    add_up,
)
from amqsidecar.pipeline.recovery.over_time import (
    Periods,
    changes,
    hourly_resends,
    over_time,
    with_bounds,
)
from amqsidecar.pipeline.recovery.survival import FLOWS, cumulative_incidence, reached_at
from amqsidecar.pipeline.results import parquet_file
from amqsidecar.pipeline.tables import (
    RECOVERY_BY_ATTEMPT,
    RECOVERY_BY_CONSUMER,
    RECOVERY_BY_MESSAGE,
    RECOVERY_CHANGES,
    RECOVERY_OVER_TIME,
    RECOVERY_SUMMARY,
    arrow_schema,
)

RESENDS: Final = (*GROUP, "attempt")
_QUANTILES: Final = {"recovery_p50_ms": 0.5, "recovery_p90_ms": 0.9}

TABLES: Final[Mapping[str, StructType]] = {
    "recovery_by_attempt": RECOVERY_BY_ATTEMPT,
    "recovery_by_message": RECOVERY_BY_MESSAGE,
    "recovery_by_consumer": RECOVERY_BY_CONSUMER,
    "recovery_summary": RECOVERY_SUMMARY,
    "recovery_over_time": RECOVERY_OVER_TIME,
    "recovery_changes": RECOVERY_CHANGES,
}
"""By name."""
_NAMED: Final = "table string, content binary"
"""Rows of a table, as a Parquet file: to Spark a row of ours is one of many numbers."""
_TIME_BITS: Final = 42
"""Of a time in milliseconds: 139 years."""
_MARKS: Final = ("negative_times", "implied_returns", "repeated_resends", "proved")
_HAPPENED: Final = [
    place
    for place, one in enumerate(OUTCOMES)
    if one in (("resend", "returned"), ("message", "recovered"))
]
_COMPETED: Final = [OUTCOMES.index(("message", one)) for one in ENDS]


def in_groups(counted: DataFrame, groups: Mapping[tuple[int, int], int]) -> DataFrame:
    """Return `COUNTS` with parts of groups replaced by their groups."""
    if not groups:
        return counted
    rows = [(origin, cause, group) for (origin, cause), group in groups.items()]
    columns = [pyarrow.array(one, pyarrow.int64()) for one in zip(*rows, strict=True)]
    named = pyarrow.table(columns, ["origin", "cause_group", "named"])
    joined = counted.join(
        f.broadcast(counted.sparkSession.createDataFrame(named)), list(GROUP), "left"
    )
    cause = f.coalesce("named", "cause_group")
    return joined.withColumn("cause_group", cause).select(*COUNTS.names)


def collected(named: DataFrame) -> dict[str, pyarrow.Table]:
    """Return the tables of `Estimator.estimate`, in this process."""
    rows = named.toArrow()
    parts: dict[str, list[pyarrow.Table]] = {name: [] for name in TABLES}
    for name, content in zip(*(rows.column(one) for one in ("table", "content")), strict=True):
        parts[name.as_py()].append(parquet.read_table(pyarrow.BufferReader(content.as_buffer())))
    return {
        name: pyarrow.concat_tables([arrow_schema(schema).empty_table(), *parts[name]])
        for name, schema in TABLES.items()
    }


class Estimator(NamedTuple):
    """Makes the tables.

    Attributes:
        texts: see `lives.Survey`.
        confidence: of the bounds, between 0 and 1.
        periods: how re-sends are divided by time.
    """

    texts: Mapping[int, str]
    confidence: float
    periods: Periods

    def estimate(self, counted: DataFrame) -> DataFrame:
        """Return the rows of all tables, from one pass over the counts: `_NAMED`."""

        def named(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            counts = add_up(pyarrow.Table.from_batches(batches, COUNTS))
            if len(counts):
                tables = self.tables(counts)
                contents = pyarrow.array(map(parquet_file, tables.values()), pyarrow.binary())
                names = pyarrow.array(tables, pyarrow.string())
                yield pyarrow.RecordBatch.from_arrays([names, contents], ["table", "content"])

        return counted.repartition(*GROUP).mapInArrow(named, _NAMED)

    def tables(self, counts: pyarrow.Table) -> dict[str, pyarrow.Table]:
        """Return all tables of some groups.

        Args:
            counts: `COUNTS`, at least one; all rows of each group that has one. A key may have
                several.
        """
        summed = add_up(counts)
        group, names = self._groups(summed)
        numbers = {
            name: summed.column(name).to_numpy() for name in COUNTS.names if name not in GROUP
        }
        numbers["outcome"] = numbers["what"] // 2
        rows = pandas.DataFrame({**numbers, "group": group})
        kind = np.searchsorted((FIRST_MESSAGE, FIRST_HOURLY), rows["outcome"], side="right")
        resends, messages, hourly = (rows[kind == number] for number in range(3))
        by_hour = hourly_resends(hourly)
        made = {
            "recovery_by_attempt": self._by_attempt(resends),
            "recovery_by_message": self._by_message(messages),
            "recovery_by_consumer": self._by_consumer(hourly),
            "recovery_summary": self._summary(messages),
            "recovery_over_time": over_time(by_hour, self.periods.days, self.confidence),
            "recovery_changes": changes(by_hour, self.periods.end_hour),
        }
        return {name: _table(TABLES[name], frame, names) for name, frame in made.items()}

    def _groups(self, counts: pyarrow.Table) -> tuple[NDArray[np.int64], pyarrow.Table]:
        """Return the number of the group of each row, and the names of groups by number."""
        found = [np.unique(counts.column(one).to_numpy(), return_inverse=True) for one in GROUP]
        (origins, origin), (causes, cause) = found
        pairs, group = np.unique(origin * len(causes) + cause, return_inverse=True)
        parts = np.divmod(pairs, len(causes))
        names = [
            pyarrow.array([self.texts.get(int(one)) for one in numbers[part]], pyarrow.string())
            for numbers, part in zip((origins, causes), parts, strict=True)
        ]
        return group, pyarrow.table(names, list(GROUP))

    def _by_attempt(self, resends: pandas.DataFrame) -> pandas.DataFrame:
        """Return `RECOVERY_BY_ATTEMPT`: who stayed away at the horizon, and counts.

        If no message was observed up to the horizon and some may still return, the share is
        unknown. Its bounds are then 0 and the upper bound at the last observed time.
        """
        keys = ["group", "attempt"]
        curve = self._incidence(resends, keys, 0, resends["after_ms"])
        away = curve.assign(
            share_away=1 - curve["share"], low=1 - curve["high"], high=1 - curve["low"]
        )
        last = away.groupby(keys).last()[["share_away", "low", "high"]].reset_index()
        found = _tallied(resends, keys, 0, SEND_OUTCOMES).merge(last, on=keys)
        is_known = (found["stayed"] + found["returned_later"] > 0) | (found["open"] == 0)
        return found.assign(
            share_recovered=found["share_away"].where(is_known),
            low=found["low"].where(is_known, 0.0),
        )

    def _by_message(self, messages: pandas.DataFrame) -> pandas.DataFrame:
        """Return `RECOVERY_BY_MESSAGE`: recoveries over the stages of lives."""
        placed = messages[messages["exit_stage"] != NONE]
        stages = self._incidence(placed, ["group"], placed["entry_stage"], placed["exit_stage"])
        attempts = ((stages["time"] + 1) // 2).rename("attempts")
        grouped = stages.groupby(["group", attempts])
        found = grouped.agg(
            at_risk=("at_risk", "first"),
            recovered=("happened", "sum"),
            ended=("competed", "sum"),
            waiting=("left", "sum"),
            share_recovered=("share", "last"),
            low=("low", "last"),
            high=("high", "last"),
            remaining=("remaining", "last"),
        ).reset_index()
        ended = (1 - found["share_recovered"] - found["remaining"]).clip(lower=0.0)
        return found.assign(share_ended=ended)

    def _by_consumer(self, rows: pandas.DataFrame) -> pandas.DataFrame:
        """Return `RECOVERY_BY_CONSUMER`."""
        noted = rows[rows["target"] != NOTHING]
        tallied = _tallied(noted, ["group", "target"], FIRST_HOURLY, HOURLY_OUTCOMES)
        named = tallied.assign(
            consumer=tallied["target"].map(self.texts).astype("object"), resends=tallied["messages"]
        )
        return with_bounds(named, self.confidence)

    def _summary(self, messages: pandas.DataFrame) -> pandas.DataFrame:
        """Return `RECOVERY_SUMMARY`."""
        named = messages.assign(target=messages["target"].map(self.texts)).dropna(subset="target")
        counts = named.groupby(["group", "target"])["messages"].sum().sort_values(ascending=False)
        targets: dict[int, list[str]] = {}
        for (group, target), number in counts.items():
            targets.setdefault(group, []).append(f"{target} ({number:,})")
        tallied = _tallied(messages, ["group"], FIRST_MESSAGE, MESSAGE_OUTCOMES)
        joined = {group: ", ".join(found) for group, found in targets.items()}
        timed = messages[messages["after_ms"] != NONE]
        curve = self._incidence(timed, ["group"], 0, timed["after_ms"])
        times = {
            name: tallied["group"].map(reached_at(curve, share))
            for name, share in _QUANTILES.items()
        }
        where = tallied["group"].map(joined).astype("object")
        return tallied.assign(redirected_to=where, owner=None, **times)

    def _incidence(
        self,
        rows: pandas.DataFrame,
        keys: list[str],
        entry: pandas.Series | int,
        exit_: pandas.Series,
    ) -> pandas.DataFrame:
        """Return `survival.cumulative_incidence` of counted rows, by `keys` in place of `group`."""
        numbered = rows.groupby(keys, sort=False).ngroup()
        named = rows[keys].assign(curve=numbered).drop_duplicates("curve").set_index("curve")
        messages = rows["messages"]
        has_happened = rows["outcome"].isin(_HAPPENED)
        has_competed = rows["outcome"].isin(_COMPETED)
        gone = [messages.where(has_happened, 0), messages.where(has_competed, 0)]
        gone.append(messages - gone[0] - gone[1])
        flows = _flows(numbered, (entry, exit_), (messages, *gone))
        curve = cumulative_incidence(flows, self.confidence)
        return curve.drop(columns="group").assign(
            **{key: named[key].reindex(curve["group"]).to_numpy() for key in keys}
        )


def _table(schema: StructType, frame: pandas.DataFrame, names: pyarrow.Table) -> pyarrow.Table:
    named = names.take(pyarrow.array(frame["group"], pyarrow.int64()))
    fields = arrow_schema(schema)
    columns = [
        named.column(one.name)
        if one.name in GROUP
        else pyarrow.array(frame[one.name], one.type, from_pandas=True)
        for one in fields
    ]
    return pyarrow.table(columns, schema=fields)


def with_owners(summary: pyarrow.Table, owners: Mapping[tuple[str, str], str]) -> pyarrow.Table:
    """Return `RECOVERY_SUMMARY` with the owners of groups, by origin and cause group."""
    groups = zip(*(summary.column(name).to_pylist() for name in GROUP), strict=True)
    owner = pyarrow.array([owners.get((at or "", of or "")) for at, of in groups], pyarrow.string())
    place = summary.schema.get_field_index("owner")
    return summary.set_column(place, summary.schema.field(place), owner)


def _tallied(
    rows: pandas.DataFrame, keys: list[str], first: int, outcomes: Sequence[str]
) -> pandas.DataFrame:
    """Return the number of messages by keys: all, by outcome, left-truncated, and the marks."""
    messages = rows["messages"]
    tallies = {
        name: messages.where(rows["outcome"] == number, 0)
        for number, name in enumerate(outcomes, first)
    }
    tallies |= {"left_truncated": messages.where(rows["what"] % 2 == 1, 0)}
    wanted = [*keys, "messages", *_MARKS, *tallies]
    return rows.assign(**tallies)[wanted].groupby(keys).sum().reset_index()


def _flows(
    group: pandas.Series,
    times: tuple[pandas.Series | int, pandas.Series],
    messages: tuple[pandas.Series, ...],
) -> pandas.DataFrame:
    """Return `survival.FLOWS` by `group` and `time`.

    Args:
        group: number of the curve of each row.
        times: when the messages of a row come and when they go.
        messages: how many come; and of them, to how many it happens, who compete, who leave.
    """
    rows = len(group)
    time = np.concatenate([np.broadcast_to(np.asarray(one, "int64"), rows) for one in times])
    # Why one key: numpy sorts one whole number much faster than pandas groups by two.
    key = (np.tile(group.to_numpy(), 2) << _TIME_BITS) + time
    order = np.argsort(key)
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    summed = {}
    for name, counts in zip(FLOWS, messages, strict=True):
        both = np.zeros(2 * rows, dtype="int64")
        both[:rows] = counts if name == "entered" else 0
        both[rows:] = 0 if name == "entered" else counts
        summed[name] = np.add.reduceat(both[order], starts) if rows else both
    found = {"group": key[starts] >> _TIME_BITS, "time": key[starts] & ((1 << _TIME_BITS) - 1)}
    return pandas.DataFrame({**found, **summed})
