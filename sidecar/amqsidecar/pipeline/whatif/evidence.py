"""Evidence of each destination in history: its windows, and failure models of its messages."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType

from amqsidecar.pipeline.whatif.attempts import WINDOW_MS, GroupKey, Usual, WindowCounts
from amqsidecar.pipeline.whatif.ensemble import Ensemble, fit_ensemble
from amqsidecar.pipeline.whatif.replay import known_of, numbers_of

MOST_SAMPLED: Final = 4_000
"""Messages of a destination and cause group that models are fitted to."""
_HASHES: Final = 2**20
"""Parts that the hashes of messages fall in, of which a sample takes some."""
MOST_GROUPS: Final = 20
"""Cause groups of a destination with models of their own: those with the most messages."""

_WINDOWS: Final = StructType(
    [
        StructField("destination", StringType(), False),
        StructField("window", LongType(), False),
        *(
            StructField(name, DoubleType(), False)
            for name in ("deaths", "successes", "failures", "lost")
        ),
    ]
)
_NO_WINDOWS: Final = WindowCounts(0, *[np.zeros(1)] * 4)
_SEEN: Final = ("deaths", "successes", "failures", "lost")
_FITTED: Final = StructType(
    [
        StructField("destination", StringType(), False),
        StructField("cause_group", StringType(), True),
        StructField("ensemble", BinaryType(), False),
    ]
)
_SAMPLED: Final = (
    "number", "arrived_ms", "observed_ms", "sent_ms", "late_ms", "back_ms", "recovered_ms",
)  # fmt: skip


def count_windows(messages: DataFrame) -> DataFrame:
    """Return the counts of each window of each destination."""
    return (
        messages.mapInArrow(_windows_of, _WINDOWS)
        .groupBy("destination", "window")
        .agg(*(f.sum(name).alias(name) for name in _SEEN))
    )


def fit_ensembles(
    messages: DataFrame, windows: DataFrame, usual: Mapping[str, Usual], least_messages: int
) -> dict[GroupKey, Ensemble]:
    """Return the models of each destination and cause group."""

    def fit(here: pd.DataFrame, seen: pd.DataFrame) -> pd.DataFrame:
        destination = here["destination"].iloc[0]
        windows = _dense(seen)
        rows = []
        for group, part in here.groupby("model_group", dropna=False):
            # Why sorted: the same history gives the same models, on any machine.
            ordered = part.sort_values("number")[list(_SAMPLED)]
            batch = pa.RecordBatch.from_pandas(
                ordered, schema=_sample_schema(), preserve_index=False
            )
            known = known_of(batch, usual[destination], windows)
            is_first = ordered["number"].to_numpy() % 2 == 0
            ensemble = fit_ensemble(
                known.tries, known.arrived_ms, is_first, windows, int(part["total"].iloc[0])
            )
            key = None if pd.isna(group) else group
            rows.append((destination, key, pickle.dumps(ensemble)))
        return pd.DataFrame(rows, columns=_FITTED.names)

    fitted = (
        _sample(messages, least_messages)
        .groupBy("destination")
        .cogroup(windows.groupBy("destination"))
        .applyInPandas(lambda here, seen: fit(here, seen) if len(here) else _none(), _FITTED)
    )
    return {
        (row["destination"], row["cause_group"]): pickle.loads(row["ensemble"])  # noqa: S301 - as dumped above
        for row in fitted.collect()
    }


def windows_by_destination(
    windows: DataFrame, destinations: Iterable[str]
) -> dict[str, WindowCounts]:
    """Return what the windows of destinations saw of all messages."""
    found = dict.fromkeys(destinations, _NO_WINDOWS)
    frame: pd.DataFrame = windows.toPandas()
    for destination, part in frame.groupby("destination"):
        found[str(destination)] = _dense(part)
    return found


def usual_waits(messages: DataFrame) -> dict[str, Usual]:
    """Return the usual lateness and time to return of first re-sends, by destination."""
    medians = messages.groupBy("destination").agg(
        *(
            f.percentile(f.try_element_at(name, f.lit(1)), f.lit(0.5)).alias(name)
            for name in ("late_ms", "back_ms")
        )
    )
    return {
        row["destination"]: Usual(float(row["late_ms"] or 0), float(row["back_ms"] or 0))
        for row in medians.collect()
    }


def _none() -> pd.DataFrame:
    return pd.DataFrame([], columns=_FITTED.names)


def _sample_schema() -> pa.Schema:
    times = pa.list_(pa.int64())
    kinds = [*[pa.int64()] * 3, *[times] * 3, pa.int64()]
    return pa.schema(list(zip(_SAMPLED, kinds, strict=True)))


def _sample(messages: DataFrame, least_messages: int) -> DataFrame:
    """Return some messages of each group, with the group whose models they are for.

    Which ones the hash of their ids decides.
    """
    sizes = messages.groupBy("destination", "cause_group").count()
    frame: pd.DataFrame = sizes.toPandas()
    frame = frame.sort_values(["destination", "count", "cause_group"])
    place = frame.groupby("destination").cumcount(ascending=False)
    is_own = (frame["count"] >= least_messages) & (place < MOST_GROUPS)
    frame["model_group"] = frame["cause_group"].where(is_own, None)
    total = frame.groupby(["destination", "model_group"], dropna=False)["count"].transform("sum")
    frame["total"] = total
    frame["limit"] = (MOST_SAMPLED / total * _HASHES).clip(upper=_HASHES).astype("int64")
    kept = messages.sparkSession.createDataFrame(
        frame.drop(columns="count").astype({"model_group": object}).where(frame.notna(), None),
        "destination string, cause_group string, model_group string, total bigint, limit bigint",
    )
    # Why not the lowest bit: it decides the half.
    drawn = f.pmod(f.shiftright("number", 1), f.lit(_HASHES))
    return (
        messages.join(f.broadcast(kept), ["destination", "cause_group"], "inner")
        .where(drawn < f.col("limit"))
        .select("destination", "model_group", "total", *_SAMPLED)
    )


def _windows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        parts = []
        names = batch.column("destination").to_numpy(zero_copy_only=False)
        arrived = numbers_of(batch.column("arrived_ms"), 0.0)
        has_recovered = np.isfinite(numbers_of(batch.column("recovered_ms"), np.inf))
        counts = np.asarray(batch.column("sent_ms").value_lengths())
        rows = np.repeat(np.arange(len(counts)), counts)
        sent = arrived[rows] + numbers_of(batch.column("sent_ms").flatten(), 0.0)
        has_failed = np.isfinite(numbers_of(batch.column("back_ms").flatten(), np.inf))
        is_last = np.zeros(len(rows), dtype=bool)
        is_last[(np.cumsum(counts) - 1)[counts > 0]] = True
        seen = {
            "deaths": (np.arange(len(counts)), arrived, np.ones(len(counts), dtype=bool)),
            "successes": (rows, sent, is_last & has_recovered[rows] & ~has_failed),
            "failures": (rows, sent, has_failed & has_recovered[rows]),
            "lost": (rows, sent, has_failed & ~has_recovered[rows]),
        }
        for name, (of, at, is_meant) in seen.items():
            frame = pd.DataFrame(
                {
                    "destination": names[of[is_meant]],
                    "window": (at[is_meant] // WINDOW_MS).astype(np.int64),
                }
            )
            parts.append(frame.value_counts().rename(name).astype(float))
        counted = pd.concat(parts, axis=1).fillna(0.0).reset_index()
        yield pa.RecordBatch.from_pandas(counted[_WINDOWS.names], preserve_index=False)


def _dense(seen: pd.DataFrame) -> WindowCounts:
    """Return the windows, from the first to the last."""
    first, last = int(seen["window"].min()), int(seen["window"].max())
    at = (seen["window"] - first).to_numpy(np.int64)
    values: list[Any] = []
    for name in _SEEN:
        column = np.zeros(last - first + 1)
        column[at] = seen[name].to_numpy()
        values.append(column)
    return WindowCounts(first, *values)
