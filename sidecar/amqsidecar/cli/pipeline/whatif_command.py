"""`amqsidecar pipeline whatif`: effects of other policies, and settings to try."""

from typing import Annotated

import typer

from amqsidecar.cli.options import INT_MAX, duration_ms
from amqsidecar.cli.pipeline.options import (
    Events,
    Horizon,
    OutputFolder,
    Since,
    SparkJob,
    Until,
    spark_job,
)
from amqsidecar.cli.times import time_ms


@spark_job
def whatif(
    events: Events,
    output_folder: OutputFolder,
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]FILE",
            help="A policy to play: activemq.xml, broker.xml or YAML. May be repeated; the "
            "proposal changes the first policy, so give the policy of today first.",
        ),
    ],
    since: Since = None,
    until: Until = None,
    horizon: Horizon = "1h",
    most_attempts: Annotated[
        int,
        typer.Option(
            min=1,
            max=100_000,
            help="Maximum simulated re-sends of one message; the tables show where a policy would "
            "have gone on.",
        ),
    ] = 1000,
    least_messages: Annotated[
        int,
        typer.Option(
            min=1,
            max=INT_MAX,
            help="Destinations with fewer messages get no proposal; smaller cause groups are "
            "combined.",
        ),
    ] = 30,
    search: Annotated[
        bool, typer.Option("--search/--no-search", help="Look for better settings.")
    ] = True,
    share_tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            max=100,
            help="Search: percentage points of recovered messages that a setting may lose "
            "against the best one to save re-sends.",
        ),
    ] = 1.0,
    slowdown: Annotated[
        float,
        typer.Option(
            min=1,
            help="Search: maximum mean recovery time as a multiple of the time with a re-send at "
            "the first possible moment.",
        ),
    ] = 2.0,
) -> SparkJob:
    """Play policies on the history, and compare their results.

    Recoveries, re-sends and time to recovery, with bounds. Decides by the same code as the
    sidecar. Writes the policies' results, and a proposal: proposal/policy.yaml, and
    proposal/values.yaml for Helm. Tables and what they mean: `deploy/reference/pipeline.md`.
    """
    from amqsidecar.pipeline.whatif.search import Rule  # noqa: PLC0415 - an extra
    from amqsidecar.pipeline.whatif.whatif import WhatifOptions, run_whatif  # noqa: PLC0415 - an extra

    options = WhatifOptions(
        events=events,
        output_folder=output_folder.rstrip("/"),
        policies=policy,
        since_ms=time_ms(since, "--since"),
        until_ms=time_ms(until, "--until"),
        horizon_ms=duration_ms(horizon, "--horizon", least_ms=1),
        most_attempts=most_attempts,
        least_messages=least_messages,
        search=Rule(share_tolerance / 100, slowdown) if search else None,
    )
    return f"{options.output_folder}/report.html", lambda spark: run_whatif(spark, options)
