"""The tables of `whatif`."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from amqsidecar.pipeline.tables import (
    WHATIF_BY_DESTINATION,
    WHATIF_BY_POLICY,
    WHATIF_PROPOSALS,
)
from amqsidecar.pipeline.whatif.curve import EDGES_MS
from amqsidecar.pipeline.whatif.evidence import mix_curves
from amqsidecar.pipeline.whatif.replay import (
    CUT_OFF,
    GAINED,
    KEPT,
    MESSAGES_PLAYED,
    RESENDS,
    Usual,
)
from amqsidecar.pipeline.whatif.search import (
    Grid,
    Rule,
    choose,
    mean_recoverable_ms,
    pareto_front,
    score,
)

_QUANTILES: Final = {"recovery_p50_ms": 0.5, "recovery_p90_ms": 0.9, "recovery_p99_ms": 0.99}


def by_policy(played: DataFrame) -> DataFrame:
    """Return `WHATIF_BY_POLICY` of `PLAYED`: the results of each policy."""
    return _summarised(played, WHATIF_BY_POLICY, "policy")


def by_destination(played: DataFrame) -> DataFrame:
    """Return `WHATIF_BY_DESTINATION` of `PLAYED`: the results of each policy by destination."""
    return _summarised(played, WHATIF_BY_DESTINATION, "policy", "destination")


def load_over_time(played: DataFrame) -> DataFrame:
    """Return `WHATIF_LOAD` of `PLAYED`: the re-sends of each policy over time."""
    return played.where(f.col("measure") == RESENDS).select(
        "policy",
        "destination",
        f.timestamp_millis("at").alias("begins_at"),
        f.col("best").cast("long").alias("resends_lower"),
        f.col("likely").alias("resends"),
        f.col("worst").cast("long").alias("resends_upper"),
    )


def propose(
    curves: DataFrame, grid: Grid, usual: Mapping[str, Usual], rule: Rule, least_messages: int
) -> DataFrame:
    """Return `WHATIF_PROPOSALS`: the Pareto front of each destination.

    Args:
        curves: `CURVES`.
        grid: the settings that are tried.
        usual: usual delays, by destination.
        rule: chooses one setting of each front.
        least_messages: destinations with fewer messages get no proposal, nor do those where nothing
            recovered.
    """

    def search(frame: pd.DataFrame) -> pd.DataFrame:
        destination = frame["destination"].iloc[0]
        curve = mix_curves(frame)
        if frame["messages"].sum() < least_messages or not curve[-1] > 0:
            return pd.DataFrame(columns=WHATIF_PROPOSALS.names)
        scores = score(grid, curve, usual[destination])
        chosen = choose(scores, mean_recoverable_ms(curve), rule)
        is_shown = pareto_front(scores)
        is_shown[chosen] = True
        rows = []
        for row in np.flatnonzero(is_shown).tolist():
            setting = grid.settings[row]
            rows.append(
                (
                    destination,
                    setting.initial_redelivery_delay_ms,
                    setting.back_off_multiplier,
                    setting.maximum_redelivery_delay_ms,
                    setting.maximum_redeliveries,
                    scores.share[row],
                    scores.deliveries[row],
                    scores.mean_ms[row],
                    scores.p90_ms[row],
                    row == chosen,
                )
            )
        return pd.DataFrame(rows, columns=WHATIF_PROPOSALS.names)

    return (
        curves.groupBy("destination")
        .applyInPandas(search, WHATIF_PROPOSALS)
        .select(*WHATIF_PROPOSALS.names)
    )


def _summarised(played: DataFrame, schema: StructType, *keys: str) -> DataFrame:
    def summarise(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame([{**dict(zip(keys, key, strict=True)), **_summary(frame)}])

    # Why: when a re-send was makes no difference here, and times are many.
    at = f.when(f.col("measure") == RESENDS, 0).otherwise(f.col("at"))
    return (
        played.groupBy(*keys, "measure", at.alias("at"))
        .agg(*(f.sum(name).alias(name) for name in ("worst", "likely", "best")))
        .groupBy(*keys)
        .applyInPandas(lambda key, frame: summarise(key, frame)[schema.names], schema)
        .select(*schema.names)
    )


def _summary(frame: pd.DataFrame) -> dict[str, float | int | None]:
    answers = ["worst", "likely", "best"]
    sums = frame.groupby("measure")[answers].sum()
    zero = pd.Series(0.0, index=answers)
    messages = float(sums["worst"].get(MESSAGES_PLAYED, 0.0))
    kept, gained, resends, cut_off = (
        sums.loc[measure] if measure in sums.index else zero
        for measure in (KEPT, GAINED, RESENDS, CUT_OFF)
    )
    recovered = kept + gained
    times = frame[frame["measure"].isin((KEPT, GAINED))].groupby("at")["likely"].sum().sort_index()
    return {
        "messages": round(messages),
        "recovered_lower": round(recovered["worst"]),
        "recovered": recovered["likely"],
        "recovered_upper": round(recovered["best"]),
        "share_lower": recovered["worst"] / messages,
        "share": recovered["likely"] / messages,
        "share_upper": recovered["best"] / messages,
        "kept_lower": round(kept["worst"]),
        "kept": kept["likely"],
        "kept_upper": round(kept["best"]),
        "resends_lower": round(resends["best"]),
        "resends": resends["likely"],
        "resends_upper": round(resends["worst"]),
        **{name: _quantile(times, share) for name, share in _QUANTILES.items()},
        "cut_off_messages": round(cut_off["worst"]),
    }


def _quantile(by_cell: pd.Series, share: float) -> int | None:
    """Return the end of the cell by which a share of the recoveries has come."""
    total = by_cell.sum()
    if not total > 0:
        return None
    # Why the small difference: the sum of many parts may be a hair less than the whole.
    reached = by_cell.cumsum() >= share * total * (1 - 1e-9)
    return round(float(EDGES_MS[by_cell.index[int(reached.to_numpy().argmax())]]))
