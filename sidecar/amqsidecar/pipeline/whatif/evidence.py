"""Estimates over the messages of history: curves of recovery, and usual delays."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from amqsidecar.pipeline.whatif.curve import NEVER, Numbers, cell_of, fit_curve
from amqsidecar.pipeline.whatif.replay import Usual, numbers_of

_EVIDENCE: Final = StructType(
    [
        StructField("destination", StringType(), False),
        StructField("cause_group", StringType(), False),
        # Cells of the last re-sends that failed, and of those that succeeded; see `whatif_curve`.
        StructField("failed", IntegerType(), False),
        StructField("recovered", IntegerType(), False),
        StructField("messages", LongType(), False),
    ]
)
_PLACES: Final = ["destination", "cause_group", "failed", "recovered"]

CURVES: Final = StructType(
    [
        StructField("destination", StringType(), False),
        # null = of all groups of the destination that are too small for a curve of their own.
        StructField("cause_group", StringType(), True),
        StructField("messages", LongType(), False),
        StructField("curve", ArrayType(DoubleType(), False), False),
    ]
)


def fit_curves(messages: DataFrame, least_messages: int) -> DataFrame:
    """Return `CURVES`: the curve of each destination and cause group.

    Args:
        messages: `MESSAGES`, without those that are left out.
        least_messages: groups with fewer messages share one curve per destination.
    """

    def fit(frame: pd.DataFrame) -> pd.DataFrame:
        # Why sorted: the same history gives the same curve to the last digit, on any machine.
        frame = frame.sort_values(_PLACES)
        sizes = frame.groupby("cause_group")["messages"].transform("sum")
        frame = frame.assign(group=frame["cause_group"].where(sizes >= least_messages, None))
        rows = [
            (
                frame["destination"].iloc[0],
                None if pd.isna(group) else group,
                int(part["messages"].sum()),
                fit_curve(
                    part["failed"].to_numpy(np.int64),
                    part["recovered"].to_numpy(np.int64),
                    part["messages"].to_numpy(np.float64),
                ),
            )
            for group, part in frame.groupby("group", dropna=False)
        ]
        return pd.DataFrame(rows, columns=CURVES.names)

    evidence = (
        messages.mapInArrow(_count_intervals, _EVIDENCE)
        .groupBy(*_PLACES)
        .agg(f.sum("messages").alias("messages"))
    )
    return evidence.groupBy("destination").applyInPandas(fit, CURVES).select(*CURVES.names)


def _count_intervals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        recovered_ms = numbers_of(batch.column("recovered_ms"), np.inf)
        frame = batch.select(["destination", "cause_group"]).to_pandas()
        frame["failed"] = cell_of(numbers_of(batch.column("failed_ms"), -1.0))
        frame["recovered"] = np.where(np.isinf(recovered_ms), NEVER, cell_of(recovered_ms))
        counts = frame.groupby(_PLACES, sort=False).size().rename("messages").reset_index()
        yield pa.RecordBatch.from_pandas(
            counts.astype({"failed": "int32", "recovered": "int32"}), preserve_index=False
        )


def mix_curves(curves: pd.DataFrame) -> Numbers:
    """Return the curve of a destination: the mean of its groups' curves, weighted by messages.

    Args:
        curves: rows of `CURVES` of one destination.
    """
    curves = curves.sort_values("cause_group")
    mixed: Numbers = np.average(np.stack(list(curves["curve"])), axis=0, weights=curves["messages"])
    return mixed


def usual_waits(messages: DataFrame) -> dict[str, Usual]:
    """Return the usual lateness and time to return of first re-sends, by destination.

    Args:
        messages: `MESSAGES`, without those that are left out.
    """
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
