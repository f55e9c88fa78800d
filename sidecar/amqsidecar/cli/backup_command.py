"""`amqsidecar backup`: a copy of the schedule's file while the service runs."""

from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.reading import configured
from amqsidecar.cli.user import enter_as_user
from amqsidecar.config.schema import Config
from amqsidecar.operations.words import size
from amqsidecar.stores.sqlite.backup import copy_schedule
from amqsidecar.stores.sqlite.store import path_of_url
from amqsidecar.telemetry import audit


@configured
def backup(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of the copy; it must not exist yet.")
    ],
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Copy the schedule into a file, also while the service runs.

    The copy is of one moment. Messages taken or sent later are not in it: read
    deploy/guides/backup.md before you restore it.

    \b
    JSON: {"file", "size_bytes"}
    """  # noqa: D301 - the backspace makes the library keep the lines
    if not config.store.url.startswith("sqlite:"):
        raise typer.BadParameter(
            "only a schedule in SQLite is a file; this one is in "
            f"{config.store.url.split(':')[0]}: back it up with the database's tools, such as "
            "pg_dump"
        )
    enter_as_user(config, is_needed=True)
    audit.write("backup", audit.ActKind.READ, after={"file": str(target)})
    copy_schedule(path_of_url(config.store.url), target)
    size_bytes = target.stat().st_size
    if output is OutputFormat.JSON:
        print_json({"file": str(target), "size_bytes": size_bytes})
        return
    print_line(f"{target}: {size(size_bytes)}")
