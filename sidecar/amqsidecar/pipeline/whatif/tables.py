"""The tables of `whatif`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.tables import EVERYWHERE, WHATIF_BY_DESTINATION, arrow_schema
from amqsidecar.pipeline.whatif.attempts import GroupKey, Usual
from amqsidecar.pipeline.whatif.curve import EDGES_MS
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.forecast import PolicyForecast, forecast
from amqsidecar.pipeline.whatif.models import FailureKind
from amqsidecar.pipeline.whatif.policy import HISTORY, PROPOSAL
from amqsidecar.pipeline.whatif.replay import ALL_MODELS, CUT_OFF, RECOVERED_AT, totals_of
from amqsidecar.pipeline.whatif.search import (
    Grid,
    Rule,
    choose,
    mean_recoverable_ms,
    score,
    why_not,
)

_QUANTILES: Final = {"recovery_p50_ms": 0.5, "recovery_p90_ms": 0.9, "recovery_p99_ms": 0.99}
_MOST_DOUBTFUL: Final = 0.05
"""Maximum share of messages that no model explains and that a policy treats differently."""


def by_destination(played: DataFrame, ensembles: Mapping[GroupKey, Ensemble]) -> pa.Table:
    """Return `WHATIF_BY_DESTINATION` of `PLAYED`: the results of each policy."""
    schema = WHATIF_BY_DESTINATION

    def summarise(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        row = {"policy": key[0], "destination": key[1], **_summary(frame, ensembles)}
        return pd.DataFrame([row])[schema.names].astype({"share": float, "recovered": float})

    places = f.explode(f.array("destination", f.lit(EVERYWHERE)))
    summarised = (
        played.withColumn("place", places)
        .groupBy("policy", "place")
        .applyInPandas(summarise, schema)
    )
    return summarised.toArrow().cast(arrow_schema(schema))


def evidence_rows(ensembles: Mapping[GroupKey, Ensemble]) -> list[dict[str, Any]]:
    """Return why messages fail, by destination and cause group, those with most messages first."""
    ordered = sorted(ensembles.items(), key=lambda item: (-item[1].messages, str(item[0])))
    return [
        {
            "destination": destination,
            "cause_group": cause_group,
            **asdict(one.evidence),
            "messages": one.messages,
            **{kind.value: one.weight_of(kind) for kind in FailureKind},
            "is_supported": one.evidence.is_supported,
        }
        for (destination, cause_group), one in ordered
    ]


def propose(
    ensembles: Mapping[GroupKey, Ensemble],
    grid: Grid,
    usual: Mapping[str, Usual],
    rule: Rule,
    least_messages: int,
) -> list[dict[str, Any]]:
    """Return rows of `WHATIF_PROPOSALS`, not judged yet: the best setting of each destination."""
    rows: list[dict[str, Any]] = []
    for destination in sorted({destination for destination, _ in ensembles}):
        ours = [one for key, one in sorted(ensembles.items(), key=str) if key[0] == destination]
        recovered = sum(float(one.any_repair.curve[-1]) for one in ours)
        if sum(one.messages for one in ours) < least_messages or not recovered > 0:
            continue
        scores = score(grid, ours, usual[destination])
        chosen = choose(scores, mean_recoverable_ms(ours), rule)
        setting = grid.settings[chosen]
        rows.append(
            {
                "destination": destination,
                **asdict(setting),
                "back_off_multiplier": float(setting.back_off_multiplier),
                "share": float(scores.share[chosen]),
                "resends_per_message": float(scores.deliveries[chosen]),
                "recovery_mean_ms": float(scores.mean_ms[chosen]),
                "recovery_p90_ms": float(scores.p90_ms[chosen]),
            }
        )
    return rows


def judge(
    rows: Sequence[dict[str, Any]], ensembles: Mapping[GroupKey, Ensemble], played: DataFrame
) -> list[dict[str, Any]]:
    """Return rows of `propose` with the replay's results for the chosen settings."""
    both = played.where(f.col("policy").isin(HISTORY, PROPOSAL))
    found = {
        (row["policy"], row["destination"]): row
        for row in by_destination(both, ensembles).to_pylist()
    }
    judged = []
    for row in rows:
        place = row["destination"]
        forecast_, history = found[PROPOSAL, place], found[HISTORY, place]
        reason = why_not(
            is_supported=forecast_["is_supported"],
            share=forecast_["share"],
            lower=forecast_["share_lower"],
            history=history["share_upper"],
        )
        verdict = {
            "share_lower": forecast_["share_lower"],
            "share_upper": forecast_["share_upper"],
            "history_share": history["share_upper"],
            "is_written": reason is None,
            "doubt": reason or _rests_on(place, ensembles),
        }
        judged.append(row | verdict)
    return judged


def _rests_on(destination: str, ensembles: Mapping[GroupKey, Ensemble]) -> str:
    ours = [one for (place, _), one in ensembles.items() if place == destination]
    total = sum(one.messages for one in ours)
    weights = {
        kind: sum(one.messages * one.weight_of(kind) for one in ours) / total
        for kind in FailureKind
    }
    return ", ".join(f"{kind} {weight:.0%}" for kind, weight in weights.items() if weight)


def _summary(
    frame: pd.DataFrame, ensembles: Mapping[GroupKey, Ensemble]
) -> dict[str, float | int | bool | None]:
    of_models = frame[frame["model"] != ALL_MODELS]
    groups, doubtful = [], 0.0
    for key, part in of_models.groupby(["destination", "cause_group"], dropna=False):
        group = (key[0], None if pd.isna(key[1]) else key[1])
        ensemble = ensembles[group]
        totals = [
            totals_of(dict(zip(one["measure"], one["amount"], strict=True)), ensemble, int(place))
            for place, one in part.groupby("model")
        ]
        groups.append(totals)
        if not ensemble.evidence.is_supported:
            doubtful += totals[0].changed
    result = forecast(groups)
    times = frame[frame["measure"] == RECOVERED_AT].groupby("at")["amount"].sum().sort_index()
    return {
        "messages": round(result.messages),
        "beyond_reach_messages": round(result.beyond),
        "is_supported": doubtful <= _MOST_DOUBTFUL * result.messages,
        **_columns(result),
        **{name: _quantile(times, share) for name, share in _QUANTILES.items()},
        "cut_off_messages": round(frame[frame["measure"] == CUT_OFF]["amount"].sum()),
    }


def _columns(result: PolicyForecast) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, one in (("recovered", result.recovered), ("resends", result.resends)):
        columns |= {
            # Why the small difference: the sum of many parts may be a hair less than the whole.
            f"{name}_lower": math.floor(one.lower + 1e-3),
            name: None if math.isnan(one.likely) else one.likely,
            f"{name}_upper": math.ceil(one.upper - 1e-3),
        }
    shares = {side: columns[f"recovered{side}"] for side in ("_lower", "", "_upper")}
    return columns | {
        f"share{side}": None if value is None else value / result.messages
        for side, value in shares.items()
    }


def _quantile(by_cell: pd.Series, share: float) -> int | None:
    """Return the end of the cell by which a share of the recoveries has come."""
    total = by_cell.sum()
    if not total > 0:
        return None
    # Why the small difference: the sum of many parts may be a hair less than the whole.
    reached = by_cell.cumsum() >= share * total * (1 - 1e-9)
    return round(float(EDGES_MS[by_cell.index[int(reached.to_numpy().argmax())]]))
