"""`amqsidecar journal compact`: few large files instead of many small ones."""

from typing import Annotated

import typer

from amqsidecar.cli.journal.options import JournalPath, open_journal
from amqsidecar.cli.options import INT_MAX, Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config


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
    folder = open_journal(path, config)
    from amqsidecar.journals.compact import compact as compact_folder  # noqa: PLC0415 - an extra

    done = compact_folder(folder, max_events)
    if output is OutputFormat.JSON:
        print_json(done)
    else:
        print_line(f"{done.merged} files merged into {done.into}, {done.removed} removed")
