"""`amqsidecar journal export`: the events of a time, for people without Spark."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.journal.options import JournalPath, open_journal
from amqsidecar.cli.printing import say
from amqsidecar.cli.reading import configured
from amqsidecar.cli.times import time_ms
from amqsidecar.cli.user import enter_as_user
from amqsidecar.config.schema import Config
from amqsidecar.private_files import private_opener
from amqsidecar.telemetry import audit


class FormatChoice(StrEnum):
    """The format; values of `ExportFormat`."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@configured
def export(
    config: Config,
    path: JournalPath = None,
    form: Annotated[
        FormatChoice,
        typer.Option(
            "--format",
            help="`json` = one JSON object per line; `csv`; `parquet` = one file, which needs "
            "--output-file.",
        ),
    ] = FormatChoice.JSON,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only events at or after this time, such as 2026-11-01 or 2026-11-01T08:00:00Z "
            "(UTC where no zone is given).",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events before this time.")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; standard output otherwise.")
    ] = None,
) -> None:
    """Write events as JSON lines, CSV or one Parquet file.

    Columns are the journal's. Times are UTC, such as 2026-11-01T08:00:00.123Z. JSON omits fields
    that an event doesn't have; CSV leaves them empty, and `properties` are JSON.
    """
    if form is FormatChoice.PARQUET and output_file is None:
        raise typer.BadParameter("a Parquet file needs --output-file", param_hint="--format")
    span = (time_ms(since, "--since"), time_ms(until, "--until"))
    folder = open_journal(path, config)
    from amqsidecar.journals.export import ExportFormat  # noqa: PLC0415 - an extra
    from amqsidecar.journals.export import export as export_events  # noqa: PLC0415 - an extra

    enter_as_user(config, is_needed=True)
    span_given = {"since": since or "", "until": until or ""}
    audit.write("export", audit.ActKind.READ, list="journal", selection=span_given)
    if output_file is None:
        export_events(folder, ExportFormat(form.value), sys.stdout.buffer, *span)
        return
    try:
        opened = open(output_file, "wb", opener=private_opener)  # noqa: SIM115 - closed below
    except OSError as error:
        what = f"{output_file} can't be written: {error.strerror}"
        raise typer.BadParameter(what, param_hint="--output-file") from error
    with opened as sink:
        count = export_events(folder, ExportFormat(form.value), sink, *span)
    say(f"{count} events written to {output_file}")
