"""`amqsidecar pipeline ingest`: the journals of many sidecars in one table."""

from typing import Annotated, Any

import typer

from amqsidecar.cli.options import INT_MAX
from amqsidecar.cli.pipeline.options import DAYS_MAX, SparkJob, spark_job
from amqsidecar.errors import ConfigError, Problem

Table = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="PATH",
        help="The table, created if missing: Parquet, a folder for each UTC day.",
    ),
]


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
