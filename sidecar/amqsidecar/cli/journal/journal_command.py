"""`amqsidecar journal`: verify, compact, export."""

from typing import Final

import typer

from amqsidecar.cli.lazy_group import lazy_commands, lazy_group

_SUMMARIES: Final = {
    "journal.verify_command:verify": "Check that all events are in the journal, each once.",
    "journal.compact_command:compact": "Merge small files of the journal into larger ones.",
    "journal.export_command:export": "Write events as JSON lines, CSV or one Parquet file.",
}
COMMANDS: Final = lazy_commands(_SUMMARIES)
"""Each command, which is imported when it is asked for."""

journal = typer.Typer(
    name="journal",
    cls=lazy_group(COMMANDS),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@journal.callback()
def _journal() -> None:
    """Look after the journal: the history as Parquet files."""
