"""`amqsidecar journal`: verify, compact, export."""

from typing import Final

import typer

from amqsidecar.cli.lazy_group import lazy_group

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "verify": ("journal.verify_command", "verify"),
    "compact": ("journal.compact_command", "compact"),
    "export": ("journal.export_command", "export"),
}
"""Each command, and the module and function that it is; imported when it is asked for."""

app = typer.Typer(
    name="journal",
    cls=lazy_group(COMMANDS),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def journal() -> None:
    """Look after the journal: the history as Parquet files."""
