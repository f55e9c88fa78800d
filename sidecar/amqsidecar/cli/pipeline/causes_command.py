"""`amqsidecar pipeline causes`: the causes of death."""

from typing import Annotated

import typer

from amqsidecar.cli.options import INT_MAX
from amqsidecar.cli.pipeline.options import (
    DAYS_MAX,
    Events,
    Markers,
    OutputFolder,
    SparkJob,
    Until,
    spark_job,
)
from amqsidecar.cli.times import time_ms


@spark_job
def causes(
    events: Events,
    output_folder: OutputFolder,
    until: Until = None,
    new_since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Groups whose first death is at or after this time are new. Default: the last 7 "
            "days, or the latter half of a shorter history.",
        ),
    ] = None,
    days_before: Annotated[
        int,
        typer.Option(
            min=1,
            max=DAYS_MAX,
            metavar="N",
            help="Maximum number of earlier days with which the latest day is compared.",
        ),
    ] = 7,
    examples: Annotated[
        int, typer.Option(min=0, max=INT_MAX, metavar="N", help="Maximum deaths shown per group.")
    ] = 3,
    markers: Markers = None,
) -> SparkJob:
    """Report causes of death: the new ones, and those that grow.

    Per destination and over time. Writes tables and `report.html`; what they mean:
    `deploy/reference/pipeline.md`.
    """
    from amqsidecar.pipeline.causes.causes import CausesOptions, run_causes  # noqa: PLC0415 - an extra
    from amqsidecar.pipeline.markers import load_markers  # noqa: PLC0415 - an extra

    options = CausesOptions(
        events=events,
        output_folder=output_folder.rstrip("/"),
        until_ms=time_ms(until, "--until"),
        new_since_ms=time_ms(new_since, "--new-since"),
        days_before=days_before,
        examples=examples,
        markers=load_markers(markers) if markers else (),
    )
    return f"{options.output_folder}/report.html", lambda spark: run_causes(spark, options)
