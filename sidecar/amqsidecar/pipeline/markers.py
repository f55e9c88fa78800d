"""Markers: events at a time, such as a rollout or an incident, for plots and reports."""

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import altair
import fsspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.event import Marked
from amqsidecar.model.marker import Marker

_NEAR_MS: Final = 3_600_000
"""A marker this long before or after an interval may still explain it."""
_COLUMNS: Final = 2
_MARKERS_MAX: Final = 1_000
_WORDS_PX: Final = 120
_COLOUR: Final = "#d9651f"


def load_markers(path: str) -> tuple[Marker, ...]:
    """Return the markers of a CSV file, in order of time.

    Args:
        path: a file or a URL of an object store; lines of `time,text`. Empty lines and lines that
            begin with `#` are ignored.

    Raises:
        ConfigError: it can't be read, or a line is of another form; names file and line.
    """
    try:
        with fsspec.open(path, "rt", encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.reader(lines))
    except (OSError, ValueError, ImportError, csv.Error) as error:
        raise ConfigError([Problem(path, f"can't be read: {error}")]) from error
    found: list[Marker] = []
    problems: list[Problem] = []
    for number, row in enumerate(rows, 1):
        if not row or row[0].startswith("#"):
            continue
        try:
            found.append(_marker(row))
        except ValueError:
            what = (
                f"expected a time and a text, such as 2026-11-03T10:00:00Z,rollout 4.2; found {row}"
            )
            problems.append(Problem(f"{path}:{number}", what))
    if problems:
        raise ConfigError(problems)
    return tuple(sorted(found, key=lambda one: one.at_ms))


def _marker(row: Sequence[str]) -> Marker:
    if len(row) != _COLUMNS:
        raise ValueError(row)
    moment = datetime.fromisoformat(row[0].strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Marker(at_ms=round(moment.timestamp() * 1000), text=row[1].strip())


def journaled_markers(events: DataFrame, noted: Sequence[Marker]) -> tuple[Marker, ...]:
    """Return given markers and the latest of a history, in order of time."""
    marked = events.where(f.col("type") == f.lit(Marked.__struct_config__.tag))
    chosen = marked.select(f.unix_millis("at"), "reason", "destination").distinct()
    latest = chosen.orderBy(f.desc(f.unix_millis("at"))).limit(_MARKERS_MAX).collect()
    found = [
        Marker(at_ms=at_ms, text=text, destination=destination or "")
        for at_ms, text, destination in latest
    ]
    return tuple(sorted([*found, *noted], key=lambda one: one.at_ms))


def near(
    markers: Sequence[Marker], earliest_ms: int, latest_ms: int, destination: str | None = None
) -> str:
    """Return the possible cause of a change between two times, as the end of a sentence.

    With a destination, canonical text, only markers that concern it are named.
    """
    names = [
        one.text
        for one in markers
        if earliest_ms - _NEAR_MS <= one.at_ms <= latest_ms + _NEAR_MS
        and (destination is None or one.concerns(destination))
    ]
    return f"; at that time: {', '.join(names)}" if names else ""


def marked(
    chart: altair.Chart, markers: Sequence[Marker], first_ms: int, last_ms: int
) -> altair.TopLevelMixin:
    """Return a plot over time with a dashed line for each marker between two times."""
    points = marker_points(markers, first_ms, last_ms)
    data = altair.InlineData(values=points)
    layers = [one.properties(data=data) for one in marker_layers()] if points else []
    return altair.layer(chart, *layers)


def marker_points(markers: Sequence[Marker], first_ms: int, last_ms: int) -> list[dict[str, Any]]:
    """Return the data of `marker_layers`: of markers between two times."""
    middle_ms = (first_ms + last_ms) / 2
    return [
        {"marked": one.at_ms, "marker": one.text, "is_late": one.at_ms > middle_ms}
        for one in markers
        if first_ms <= one.at_ms <= last_ms
    ]


def marker_layers() -> list[altair.Chart]:
    """Return layers of dashed lines, each with its text on the side where more room is."""
    base = altair.Chart().encode(x=altair.X("marked:T", scale=altair.Scale(type="utc")))
    layers = [base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=_COLOUR)]
    sides: tuple[tuple[str, Literal["left", "right"], int], ...] = (
        ("false", "left", 4), ("true", "right", -4),
    )  # fmt: skip
    for is_late, align, dx in sides:
        words = base.mark_text(
            align=align, baseline="top", dx=dx, limit=_WORDS_PX, color=_COLOUR
        ).encode(y=altair.value(0), text="marker:N")
        layers.append(words.transform_filter(f"datum.is_late === {is_late}"))
    return layers
