"""The tables of the job `recovery`, all made of `RECOVERY_COUNTS`.

All rows of a group come to one Python process, which makes all of its rows in all tables. A group
has at most some thousand distinct times for each re-send, however many messages it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pandas
import pyarrow
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from amqsidecar.pipeline.recovery.judge import ENDS, MESSAGE_OUTCOMES, SEND_OUTCOMES
from amqsidecar.pipeline.recovery.over_time import Periods, changes, hourly_resends, over_time
from amqsidecar.pipeline.recovery.survival import FLOWS, cumulative_incidence, reached_at
from amqsidecar.pipeline.tables import (
    RECOVERY_BY_ATTEMPT,
    RECOVERY_BY_MESSAGE,
    RECOVERY_CHANGES,
    RECOVERY_CURVE,
    RECOVERY_OVER_TIME,
    RECOVERY_SUMMARY,
    TIME_TO_RECOVERY,
)

GROUP: Final = ("origin", "cause_group")
RESENDS: Final = (*GROUP, "attempt")
QUANTILES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the time to recovery."""

ESTIMATED: Final[Mapping[str, StructType]] = {
    "recovery_curve": RECOVERY_CURVE,
    "recovery_by_attempt": RECOVERY_BY_ATTEMPT,
    "recovery_by_message": RECOVERY_BY_MESSAGE,
    "time_to_recovery": TIME_TO_RECOVERY,
    "recovery_summary": RECOVERY_SUMMARY,
    "recovery_over_time": RECOVERY_OVER_TIME,
    "recovery_changes": RECOVERY_CHANGES,
}
"""The tables by name."""
_ALL: Final = StructType(
    [
        StructField("table", StringType()),
        *{one.name: one for schema in ESTIMATED.values() for one in schema}.values(),
    ]
)
_TIME_BITS: Final = 42
"""Of a time in milliseconds: 139 years."""
_MARKS: Final = ("negative_times", "implied_returns", "repeated_resends")


def estimates(counts: DataFrame, confidence: float, periods: Periods) -> DataFrame:
    """Return the rows of all tables of `ESTIMATED`, from one pass over the counts; see `part_of`.

    Args:
        counts: `RECOVERY_COUNTS`.
        confidence: of the bounds, between 0 and 1.
        periods: how re-sends are divided by time.
    """

    def estimate(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        there = list(batches)
        if there:
            yield from estimate_all(pyarrow.Table.from_batches(there), confidence, periods)

    return counts.repartition(*GROUP).mapInArrow(estimate, _ALL)


def part_of(estimated: DataFrame, name: str) -> DataFrame:
    """Return one of the tables of `ESTIMATED` of what `estimates` has returned."""
    return estimated.where(f.col("table") == name).select(*ESTIMATED[name].names)


def estimate_all(
    counts: pyarrow.Table, confidence: float, periods: Periods
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of all tables of `ESTIMATED`, with a column `table`.

    Args:
        counts: `RECOVERY_COUNTS`, all rows of each group that has one.
        confidence: of the bounds, between 0 and 1.
        periods: how re-sends are divided by time.
    """
    group, names = _groups(counts)
    numbers = counts.drop_columns(list(GROUP))
    rows = numbers.to_pandas(categories=["kind", "outcome"]).assign(group=group)
    resends, messages, hourly = (
        rows[rows["kind"] == one] for one in ("resend", "message", "hourly")
    )
    by_hour = hourly_resends(hourly)
    curve = _curve(resends, confidence)
    made = {
        "recovery_curve": curve,
        "recovery_by_attempt": _by_attempt(resends, curve),
        "recovery_by_message": _by_message(messages, confidence),
        "time_to_recovery": _times(messages, confidence),
        "recovery_summary": _tallied(messages, ["group"], MESSAGE_OUTCOMES),
        "recovery_over_time": over_time(by_hour, periods.days, confidence),
        "recovery_changes": changes(by_hour, periods.end_hour),
    }
    for name, frame in made.items():
        yield from _batches(name, frame, names)


def _groups(counts: pyarrow.Table) -> tuple[NDArray[np.int64], pyarrow.Table]:
    """Return the number of the group of each row, and the names of groups by number."""
    encoded = [counts.column(one).combine_chunks().dictionary_encode() for one in GROUP]
    codes = [
        one.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype("int64") for one in encoded
    ]
    base = len(encoded[1].dictionary) + 1
    pairs, group = np.unique((codes[0] + 1) * base + codes[1] + 1, return_inverse=True)
    parts = (pairs // base - 1, pairs % base - 1)
    names = [
        one.dictionary.take(pyarrow.array(part, mask=part < 0))
        for one, part in zip(encoded, parts, strict=True)
    ]
    return group, pyarrow.table(names, list(GROUP))


def _batches(
    name: str, frame: pandas.DataFrame, names: pyarrow.Table
) -> Iterator[pyarrow.RecordBatch]:
    """Yield a table as rows of `_ALL`."""
    group = names.take(pyarrow.array(frame["group"], pyarrow.int64()))
    columns = []
    for one in to_arrow_schema(_ALL, timezone="UTC"):
        if one.name in GROUP:
            columns.append(group.column(one.name))
        elif one.name in frame:
            columns.append(pyarrow.array(frame[one.name], one.type, from_pandas=True))
        else:
            columns.append(pyarrow.nulls(len(frame), one.type))
    columns[_ALL.names.index("table")] = pyarrow.repeat(name, len(frame))
    yield from pyarrow.table(columns, _ALL.names).to_batches()


def _curve(resends: pandas.DataFrame, confidence: float) -> pandas.DataFrame:
    """Return `RECOVERY_CURVE`."""
    known = resends[resends["after_ms"].notna()]
    curve = _incidence(known, ["group", "attempt"], 0, known["after_ms"], confidence)
    return curve.assign(
        after_ms=curve["time"],
        returned=curve["happened"],
        open=curve["left"],
        share_away=1 - curve["share"],
        low=1 - curve["high"],
        high=1 - curve["low"],
    )


def _by_attempt(resends: pandas.DataFrame, curve: pandas.DataFrame) -> pandas.DataFrame:
    """Return `RECOVERY_BY_ATTEMPT`: the curve of each group at the horizon, and its counts.

    If no message was observed up to the horizon and some may still return, the share is unknown.
    Its bounds are then 0 and the upper bound at the last observed time.
    """
    keys = ["group", "attempt"]
    last = curve.groupby(keys).last()[["share_away", "low", "high"]].reset_index()
    found = _tallied(resends, keys, SEND_OUTCOMES).merge(last, on=keys)
    is_known = (found["stayed"] + found["returned_later"] > 0) | (found["open"] == 0)
    return found.assign(
        share_recovered=found["share_away"].where(is_known), low=found["low"].where(is_known, 0.0)
    )


def _by_message(messages: pandas.DataFrame, confidence: float) -> pandas.DataFrame:
    """Return `RECOVERY_BY_MESSAGE`: recoveries over the stages of lives."""
    placed = messages[messages["exit_stage"].notna()]
    stages = _incidence(placed, ["group"], placed["entry_stage"], placed["exit_stage"], confidence)
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


def _times(messages: pandas.DataFrame, confidence: float) -> pandas.DataFrame:
    """Return `TIME_TO_RECOVERY`: recoveries after the first death, at `QUANTILES`."""
    timed = messages[messages["after_ms"].notna()]
    curve = _incidence(timed, ["group"], 0, timed["after_ms"], confidence)
    reached = reached_at(curve, QUANTILES)
    return reached.rename(
        columns={"after": "after_ms", "earliest": "earliest_ms", "latest": "latest_ms"}
    )


def _tallied(rows: pandas.DataFrame, keys: list[str], outcomes: Sequence[str]) -> pandas.DataFrame:
    """Return the number of messages by keys: all, by outcome, left-truncated, and the marks."""
    messages = rows["messages"]
    tallies = {name: messages.where(rows["outcome"] == name, 0) for name in outcomes}
    tallies |= {"left_truncated": messages.where(rows["left_truncated"], 0)}
    wanted = [*keys, "messages", *_MARKS, *tallies]
    return rows.assign(**tallies)[wanted].groupby(keys).sum().reset_index()


def _incidence(
    rows: pandas.DataFrame,
    keys: list[str],
    entry: pandas.Series | int,
    exit_: pandas.Series,
    confidence: float,
) -> pandas.DataFrame:
    """Return `survival.cumulative_incidence` of counted rows, by `keys` in place of `group`.

    Args:
        rows: counts of one kind.
        keys: columns that name a curve.
        entry: when they come under observation.
        exit_: when their outcome is known.
        confidence: of the bounds.
    """
    numbered = rows.groupby(keys, sort=False).ngroup()
    named = rows[keys].assign(curve=numbered).drop_duplicates("curve").set_index("curve")
    messages = rows["messages"]
    has_happened = rows["outcome"].isin(("returned", "recovered"))
    has_competed = rows["outcome"].isin(ENDS)
    gone = [messages.where(has_happened, 0), messages.where(has_competed, 0)]
    gone.append(messages - gone[0] - gone[1])
    flows = _flows(numbered, (entry, exit_), (messages, *gone))
    curve = cumulative_incidence(flows, confidence)
    return curve.drop(columns="group").assign(
        **{key: named[key].reindex(curve["group"]).to_numpy() for key in keys}
    )


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
