"""Recovery over time: by day or week, and when it became another one."""

from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import pandas

from amqsidecar.pipeline.changes import ShareSeries, find_changes
from amqsidecar.pipeline.recovery.judge import OUTCOMES

HOURS_OF_A_DAY: Final = 24
_FIRST_MONDAY: Final = 4
"""Day 0 of the epoch is a Thursday."""
_RECOVERED: Final = OUTCOMES.index(("hourly", "recovered"))
LEAST_RESENDS: Final = 20
"""Of a group, for change points."""


class Periods(NamedTuple):
    """How re-sends are divided by time.

    Attributes:
        days: of one period: 1, or 7 for weeks that begin on Monday.
        end_hour: the hour in which the last re-sends were observed for a horizon, from the epoch.
    """

    days: int
    end_hour: int


def hourly_resends(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return `group`, `hour` (from the epoch), `resends` and `recovered`, in order."""
    counted = rows.assign(
        resends=rows["messages"], recovered=rows["messages"].where(rows["outcome"] == _RECOVERED, 0)
    )
    return counted.groupby(["group", "hour"])[["resends", "recovered"]].sum().reset_index()


def over_time(hourly: pandas.DataFrame, days: int, confidence: float) -> pandas.DataFrame:
    """Return `RECOVERY_OVER_TIME` of `hourly_resends`, with Wilson's bounds."""
    day = hourly["hour"] // HOURS_OF_A_DAY
    offset = _FIRST_MONDAY if days > 1 else 0
    begins = (day - offset) // days * days + offset
    found = hourly.groupby(["group", begins.rename("day")])[["resends", "recovered"]].sum()
    found = found.reset_index()
    return with_bounds(found, confidence).assign(begins_at=_time(found["day"] * HOURS_OF_A_DAY))


def with_bounds(found: pandas.DataFrame, confidence: float) -> pandas.DataFrame:
    """Return a table with `resends` and `recovered`, its share and Wilson's bounds."""
    n, share = found["resends"], found["recovered"] / found["resends"]
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    width = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return found.assign(
        share_recovered=share,
        low=(middle - width).clip(lower=0.0),
        high=(middle + width).clip(upper=1.0),
    )


def changes(hourly: pandas.DataFrame, end_hour: int) -> pandas.DataFrame:
    """Return `RECOVERY_CHANGES` of groups of at least `LEAST_RESENDS` re-sends."""
    rows = []
    for group, part in hourly.groupby("group"):
        if part["resends"].sum() < LEAST_RESENDS:
            continue
        first = int(part["hour"].iloc[0])
        count = max(end_hour, int(part["hour"].iloc[-1])) - first + 1
        place = (part["hour"] - first).to_numpy()
        resends, recovered = (
            np.bincount(place, part[name], count).astype(int) for name in ("resends", "recovered")
        )
        for one in find_changes(recovered, resends, ShareSeries()):
            times = [one.begins, one.earliest, one.latest, one.ends]
            hours = [None if at is None else first + at for at in times]
            levels = [one.before, one.level, one.level - one.before, one.low, one.high]
            rows.append((group, *hours, *levels))
    names = ("begins_at", "earliest_at", "latest_at", "ends_at")
    shares = ("share_before", "share_recovered", "jump", "jump_low", "jump_high")
    found = pandas.DataFrame(rows, columns=["group", *names, *shares])
    return found.assign(**{name: _time(found[name]) for name in names})


def _time(hours: pandas.Series) -> pandas.Series:
    return pandas.to_datetime(hours.astype("Int64") * 3_600, unit="s", utc=True).dt.as_unit("us")
