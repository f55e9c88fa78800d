"""Options that every job has, and the line with which each ends; imports nothing heavy."""

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import typer

from amqsidecar.cli.options import OutputFormat
from amqsidecar.cli.printing import print_json, print_line

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


def run_job(
    name: str, path: str, output: OutputFormat, job: Callable[[], Mapping[str, object] | None]
) -> None:
    """Run a job, and print one line: where its results are, what it found, how long it took.

    Args:
        name: of the job.
        path: where its results are.
        output: as text, or as JSON with all that `summary.json` has.
        job: returns what it found, lists by heading; None = nothing is new.
    """
    begun = time.monotonic()
    found = job()
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
