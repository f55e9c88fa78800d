"""`amqsidecar pipeline`: the jobs that turn the history into answers, with Spark."""

import inspect
import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, Final

import typer

from amqsidecar.cli.loading import needing
from amqsidecar.cli.options import INT_MAX, Output, OutputFormat, duration_ms
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.times import time_ms
from amqsidecar.errors import ConfigError, Problem

DAYS_MAX: Final = 36_500
"""A century."""

Events = Annotated[
    str,
    typer.Option(
        "--events",
        metavar="PATH",
        help="The history: a table that `ingest` has made, or a journal itself.",
    ),
]
OutputFolder = Annotated[
    str,
    typer.Option(
        "--output-folder",
        metavar="PATH",
        help="Folder for tables and `report.html`; results of an earlier run are replaced.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master, such as spark://host:7077; otherwise that of spark-submit, else "
        "all processors of this machine.",
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. May be repeated."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only messages that were first taken at or after this time, such as "
        "2026-11-01 or 2026-11-01T08:00:00Z (UTC where no zone is given).",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="The end of the observation: events at or after this time don't count. Default: the "
        "latest event of the history.",
    ),
]
Horizon = Annotated[
    str,
    typer.Option(
        "--horizon",
        metavar="TIME",
        help="A message that has not returned for this time after a re-send is recovered, "
        "such as 90s, 15m, 2h or 3d. Longer than it takes to be consumed and to die "
        "again.",
    ),
]
Markers = Annotated[
    str | None,
    typer.Option(
        "--markers",
        metavar="PATH",
        help="CSV file of more markers than `amqsidecar mark` has set, lines of `time,text` such "
        "as `2026-11-03T10:00:00Z,rollout 4.2`.",
    ),
]
Table = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="PATH",
        help="The table, created if missing: Parquet, a folder for each UTC day.",
    ),
]


class PeriodChoice(StrEnum):
    """The values of `--by`."""

    DAY = "day"
    WEEK = "week"


_DAYS: Final = {PeriodChoice.DAY: 1, PeriodChoice.WEEK: 7}


SparkJob = tuple[str, Callable[[Any], Mapping[str, object] | None]]
"""The place of the results, and the job to run with a Spark session.

The job returns its findings as lists by heading; None = nothing is new.
"""


def spark_job(function: Callable[..., SparkJob]) -> Callable[..., None]:
    """Make a command of a job, with the options of all jobs besides its own.

    At its end it prints one line: the place of the results, the findings, and the time it took.
    """

    @wraps(function)
    def command(master: Any, conf: Any, output: OutputFormat, **values: Any) -> None:
        name = function.__name__
        with needing("pipeline", "amqsidecar pipeline"):
            path, job = function(**values)
            from amqsidecar.pipeline.session import open_session  # noqa: PLC0415 - an extra

            begun = time.monotonic()
            found = job(open_session(name, master, conf or ()))
            seconds = round(time.monotonic() - begun, 1)
        if output is OutputFormat.JSON:
            print_json(
                {"job": name, "path": path, "seconds": seconds, "is_new": found is not None}
                | dict(found or {})
            )
            return
        counts = [
            f"{heading.replace('_', ' ')}: {len(lines)}"
            for heading, lines in (found or {}).items()
            if isinstance(lines, list)
        ]
        result = ", ".join(counts) or ("done" if found is not None else "nothing is new")
        print_line(f"{name}: {result}; {path}; {seconds} s")

    own = inspect.signature(function).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(one.replace(kind=keyword) for one in own),
        inspect.Parameter("master", keyword, default=None, annotation=Master),
        inspect.Parameter("conf", keyword, default=None, annotation=SparkConf),
        inspect.Parameter("output", keyword, default=OutputFormat.TEXT, annotation=Output),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


pipeline = typer.Typer(
    name="pipeline", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)


@pipeline.callback()
def _pipeline() -> None:
    """Turn the journals of sidecars into answers, with Spark.

    Needs the extra `amqsidecar[pipeline]` and Java 17. Runs on this machine, or on a cluster by
    `--master` or `spark-submit`.
    """
    from amqsidecar.telemetry.logs import configure_logs  # noqa: PLC0415 - keeps `--help` fast

    configure_logs("info", "text")
    # Why: Spark's bridge to Java logs each connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)


@pipeline.command()
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


@pipeline.command()
@spark_job
def ingest(
    journal: Annotated[
        list[str],
        typer.Option(
            metavar="PATH",
            help="A journal: folder, or URL of an object store. May be repeated; a stream in "
            "several of them is read once.",
        ),
    ],
    table: Table,
    checkpoint: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Folder of the read positions; belongs to the table permanently."
        ),
    ],
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous", help="Run until SIGTERM; otherwise end when everything is read."
        ),
    ] = False,
    interval_s: Annotated[
        int,
        typer.Option(
            min=1, max=INT_MAX, help="With --continuous: seconds between checks for new segments."
        ),
    ] = 60,
    max_segments: Annotated[
        int,
        typer.Option(min=1, max=INT_MAX, help="Segments of each stream that are written at once."),
    ] = 10_000,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="Skip segments that were removed before they were read; otherwise they are an "
            "error.",
        ),
    ] = False,
    keep_days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=DAYS_MAX,
            help="Files written longer ago are dropped from the table and may be removed.",
            show_default="for ever",
        ),
    ] = None,
) -> SparkJob:
    """Add the events of journals to a table, each once.

    May be killed at any time and is simply run again.
    """
    from pyspark import __version__ as version  # noqa: PLC0415 - an extra
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - an extra

    if version.startswith(("4.0.", "4.1.")):
        what = f"is {version}; its streams in Python know no read limits: ingest needs 4.2 or later"
        raise ConfigError([Problem("pyspark", what)])
    from amqsidecar.pipeline.sources.ingest import IngestOptions, run_ingest  # noqa: PLC0415 - an extra

    options = IngestOptions(
        journals=tuple(journal),
        table=table,
        checkpoint=checkpoint,
        continuous=continuous,
        interval_s=interval_s,
        max_segments=max_segments,
        skip_lost=skip_lost,
        keep_days=keep_days,
    )

    def job(spark: Any) -> dict[str, object]:
        # Why: Spark logs a hundred lines for each failure, and every failure reaches us as an
        # error.
        if not is_remote():
            spark.sparkContext.setLogLevel("FATAL")
        run_ingest(spark, options)
        return {}

    return table, job


@pipeline.command()
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


@pipeline.command()
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
