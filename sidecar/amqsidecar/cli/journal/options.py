"""The option of the journal of a command."""

import os
from typing import Annotated

import typer

from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.journals.folder import Folder, open_folder

JournalPath = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Folder or URL of the journal; default: `journal.path` of the configuration.",
    ),
]


def open_journal(path: str | None, config: Config) -> Folder:
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
