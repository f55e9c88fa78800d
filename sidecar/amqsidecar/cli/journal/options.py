"""The option of the journal of a command; imports nothing heavy."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from amqsidecar.config.schema import Config
    from amqsidecar.journals.folder import Folder

JournalPath = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Folder or URL of the journal; default: `journal.path` of the configuration.",
        show_default=False,
    ),
]


def open_journal(path: str | None, config: "Config") -> "Folder":
    """Return the journal that a command is about.

    Raises:
        ConfigError: none is named, or what reads it is not installed.
    """
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - keeps `--help` fast

    named = path or config.journal.path
    if not named:
        raise ConfigError(
            [Problem("journal.path", "is not set: set the path of the journal, or use --path")]
        )
    from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - as above

    return open_folder(named, f"command-{os.getpid()}", lambda: None)
