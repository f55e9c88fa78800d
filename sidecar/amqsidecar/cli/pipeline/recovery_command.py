"""`amqsidecar pipeline recovery`: which re-send helps, and how soon."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from amqsidecar.cli.options import INT_MAX, duration_ms
from amqsidecar.cli.pipeline.options import (
    Events,
    Horizon,
    Markers,
    OutputFolder,
    Since,
    SparkJob,
    Until,
    spark_job,
)
from amqsidecar.cli.times import time_ms


class PeriodChoice(StrEnum):
    """The values of `--by`."""

    DAY = "day"
    WEEK = "week"


_DAYS: Final = {PeriodChoice.DAY: 1, PeriodChoice.WEEK: 7}


@spark_job
def recovery(
    events: Events,
    output_folder: OutputFolder,
    since: Since = None,
    until: Until = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Folder of what is kept for the next run, which reads only what is new.",
        ),
    ] = None,
    horizon: Horizon = "1h",
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Confidence of the bounds, two-sided.")
    ] = 0.95,
    min_messages: Annotated[
        int,
        typer.Option(
            min=1,
            max=INT_MAX,
            help="Groups with fewer messages have no plots; the tables have all groups.",
        ),
    ] = 20,
    by: Annotated[
        PeriodChoice, typer.Option(help="Length of the periods of `recovery_over_time`.")
    ] = PeriodChoice.DAY,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Output of `amqsidecar groups --output json`, for the owners of groups.",
        ),
    ] = None,
    markers: Markers = None,
) -> SparkJob:
    """Compute how many messages recover by which re-send.

    Per destination and cause, with bounds. A message that does not return after a re-send has
    recovered; one that was re-sent a short while ago is not counted as a success. Tables and what
    they mean: `deploy/reference/pipeline.md`.
    """
    from amqsidecar.pipeline.markers import load_markers  # noqa: PLC0415 - an extra
    from amqsidecar.pipeline.places import load_owners  # noqa: PLC0415 - an extra
    from amqsidecar.pipeline.recovery.recovery import RecoveryOptions, run_recovery  # noqa: PLC0415 - an extra

    options = RecoveryOptions(
        events=events,
        output_folder=output_folder.rstrip("/"),
        state=state.rstrip("/") if state else None,
        since_ms=time_ms(since, "--since"),
        until_ms=time_ms(until, "--until"),
        horizon_ms=duration_ms(horizon, "--horizon", least_ms=1),
        confidence=confidence,
        min_messages=min_messages,
        period_days=_DAYS[by],
        owners=load_owners(groups) if groups else {},
        markers=load_markers(markers) if markers else (),
    )
    return f"{options.output_folder}/report.html", lambda spark: run_recovery(spark, options)
