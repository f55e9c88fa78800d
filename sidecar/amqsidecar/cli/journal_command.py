"""`amqsidecar journal`: verify, compact, export."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import INT_MAX, Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import configured
from amqsidecar.cli.times import time_ms
from amqsidecar.cli.user import enter_as_user
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.journals.folder import Folder, open_folder
from amqsidecar.private_files import private_opener
from amqsidecar.telemetry import audit

if TYPE_CHECKING:
    from amqsidecar.journals.verify import JournalFacts

EXIT_FAULTS: Final = 78

OfStore = Annotated[
    bool,
    typer.Option(
        "--store/--no-store",
        help="Also compare with the configured store. Without a configured journal only --path "
        "is checked.",
    ),
]

JournalPath = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Folder or URL of the journal; default: `journal.path` of the configuration.",
    ),
]


class FormatChoice(StrEnum):
    """The format; values of `ExportFormat`."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


journal = typer.Typer(
    name="journal", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)


@journal.callback()
def _journal() -> None:
    """Look after the journal: the history as Parquet files."""


@journal.command()
@configured
def verify(
    config: Config,
    path: JournalPath = None,
    store: OfStore | None = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Check that all events are in the journal, each once.

    Compares them with the store, and reads every file with its checksums. Exit codes: 0 whole; 78
    something is missing, differs, or is damaged: one line names it with its file.

    \b
    JSON: {"streams": [{"stream", "files", "first", "last", "events"}], "faults": [text],
    "remarks": [text], "compared": events that were compared with the store's}
    """  # noqa: D301 - the backspace makes the library keep the lines
    folder = _open_journal(path, config)
    from amqsidecar.journals.verify import verify_against, verify_files  # noqa: PLC0415 - an extra

    if store if store is not None else path is None:
        with opened_schedule(config) as schedule:
            facts = verify_against(folder, schedule, keeps_all=config.journal.keep_days == 0)
    else:
        facts = verify_files(folder)
    if output is OutputFormat.JSON:
        streams = [
            {
                **{name: getattr(one, name) for name in ("stream", "files", "first", "last")},
                "events": sum(one.rows.values()),
            }
            for one in facts.streams
        ]
        print_json({**msgspec.structs.asdict(facts), "streams": streams})
    else:
        _print(facts)
    raise typer.Exit(EXIT_FAULTS if facts.faults else 0)


def _print(facts: "JournalFacts") -> None:
    for stream in facts.streams:
        print_line(
            f"stream {stream.stream}: segments {stream.first} to {stream.last} in {stream.files} "
            f"files, {sum(stream.rows.values())} events"
        )
    if facts.compared:
        print_line(f"{facts.compared} events compared with the store")
    for remark in facts.remarks:
        say(f"note: {remark}")
    for fault in facts.faults:
        say(f"fault: {fault}")
    if facts.faults:
        print_line(f"{len(facts.faults)} faults")
    else:
        print_line("whole" if facts.streams else "nothing to verify there")


@journal.command()
@configured
def compact(
    config: Config,
    path: JournalPath = None,
    max_events: Annotated[
        int,
        typer.Option(metavar="COUNT", min=1, max=INT_MAX, help="Maximum events of a merged file."),
    ] = 1_000_000,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Merge small files of the journal into larger ones.

    Files of ten segments, of a hundred, and so on, as far as the largest size allows. May be killed
    at any moment and run beside the service; each event stays in exactly one file that counts. A
    reader that has listed the old files may miss them: it has to be run again.

    \b
    JSON: {"merged": files that were merged, "into": number of files, "removed": old files}
    """  # noqa: D301 - the backspace makes the library keep the lines
    folder = _open_journal(path, config)
    from amqsidecar.journals.compact import compact as compact_folder  # noqa: PLC0415 - an extra

    done = compact_folder(folder, max_events)
    if output is OutputFormat.JSON:
        print_json(done)
    else:
        print_line(f"{done.merged} files merged into {done.into}, {done.removed} removed")


@journal.command()
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
    folder = _open_journal(path, config)
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


def _open_journal(path: str | None, config: Config) -> Folder:
    """Return the journal that a command is about.

    Raises:
        ConfigError: none is named, or its library is not installed.
    """
    named = path or config.journal.path
    if not named:
        raise ConfigError(
            [Problem("journal.path", "is not set: set the path of the journal, or use --path")]
        )
    return open_folder(named, f"command-{os.getpid()}", lambda: None)
