"""Evidence of each destination in history: its windows, and failure models of its messages."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.whatif.attempts import WINDOW_MS, GroupKey, Usual, WindowCounts
from amqsidecar.pipeline.whatif.ensemble import Ensemble, fit_ensemble
from amqsidecar.pipeline.whatif.replay import known_of

MOST_SAMPLED: Final = 4_000
"""Messages of a destination and cause group that models are fitted to."""
_HASHES: Final = 2**20
"""Parts that the hashes of messages fall in, of which a sample takes some."""
MOST_GROUPS: Final = 20
"""Cause groups of a destination with models of their own: those with the most messages."""

_NO_WINDOWS: Final = WindowCounts(0, *[np.zeros(1)] * 4)
_SEEN: Final = ("deaths", "successes", "failures", "lost")
_FITTED: Final = "destination string, cause_group string, ensemble binary"
_FITTED_NAMES: Final = ("destination", "cause_group", "ensemble")
_SAMPLED: Final = (
    "number", "arrived_ms", "observed_ms", "sent_ms", "late_ms", "back_ms", "recovered_ms",
)  # fmt: skip


def count_windows(messages: DataFrame) -> DataFrame:
    """Return the counts of each window of each destination."""
    number, one = f.size("sent_ms").alias("number"), f.col("one")
    sent = f.posexplode(f.arrays_zip("sent_ms", "back_ms")).alias("place", "one")
    tries = messages.select("destination", "arrived_ms", "recovered_ms", number, sent)
    has_recovered = f.col("recovered_ms").isNotNull()
    is_last = f.col("place") + 1 == f.col("number")
    came_to = f.when(
        one["back_ms"].isNotNull(), f.when(has_recovered, "failures").otherwise("lost")
    ).when(is_last & has_recovered, "successes")
    deaths = messages.select("destination", f.col("arrived_ms").alias("at"), f.lit("deaths"))
    seen = deaths.union(
        tries.select("destination", f.col("arrived_ms") + one["sent_ms"], came_to)
    ).toDF("destination", "at", "kind")
    window = f.floor(f.col("at") / WINDOW_MS).alias("window")
    counted = seen.where(f.col("kind").isNotNull()).groupBy("destination", window)
    return counted.pivot("kind", list(_SEEN)).count().na.fill(0)


def fit_ensembles(
    messages: DataFrame, windows: DataFrame, usual: Mapping[str, Usual], least_messages: int
) -> dict[GroupKey, Ensemble]:
    """Return the models of each destination and cause group."""

    def fit(here: pd.DataFrame, seen: pd.DataFrame) -> pd.DataFrame:
        rows: list[tuple[str, str | None, bytes]] = []
        # Why asked: a destination without a message in the sample has windows, too.
        windows = _dense(seen) if len(here) else _NO_WINDOWS
        destination = here["destination"].iloc[0] if len(here) else ""
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
        return pd.DataFrame(rows, columns=_FITTED_NAMES)

    fitted = (
        _sample(messages, least_messages)
        .groupBy("destination")
        .cogroup(windows.groupBy("destination"))
        .applyInPandas(fit, _FITTED)
    )
    return {
        (row["destination"], row["cause_group"]): pickle.loads(row["ensemble"])  # noqa: S301 - as dumped above
        for row in fitted.collect()
    }


def windows_by_destination(
    windows: DataFrame, destinations: Iterable[str]
) -> dict[str, WindowCounts]:
    """Return the counts of all windows of these destinations."""
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


def _sample_schema() -> pa.Schema:
    times = pa.list_(pa.int64())
    kinds = [*[pa.int64()] * 3, *[times] * 3, pa.int64()]
    return pa.schema(list(zip(_SAMPLED, kinds, strict=True)))


def _sample(messages: DataFrame, least_messages: int) -> DataFrame:
    """Return a sample of each group, with the group whose models it is for.

    The hash of a message's id decides whether it is in the sample.
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
