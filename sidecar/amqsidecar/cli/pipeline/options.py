"""Options of jobs, and the command that is made of each; imports nothing heavy."""

import inspect
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Final

import typer

from amqsidecar.cli.options import Output, OutputFormat
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
        name, (path, job) = function.__name__, function(**values)
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
