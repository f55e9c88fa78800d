"""`amqsidecar pipeline`: the jobs that turn the history into answers, with Spark."""

import logging
from typing import Final

import typer

from amqsidecar.cli.lazy_group import lazy_commands, lazy_group

_SUMMARIES: Final = {
    "pipeline.causes_command:causes": "Report causes of death: the new ones, and those that grow.",
    "pipeline.ingest_command:ingest": "Add the events of journals to a table, each once.",
    "pipeline.recovery_command:recovery": "Compute how many messages recover by which re-send.",
    "pipeline.whatif_command:whatif": "Play policies on the history, and compare their results.",
}
COMMANDS: Final = lazy_commands(_SUMMARIES)
"""Each job, which is imported when it is asked for."""

pipeline = typer.Typer(
    name="pipeline",
    cls=lazy_group(COMMANDS, extra="pipeline"),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@pipeline.callback()
def _pipeline() -> None:
    """Turn the journals of sidecars into answers, with Spark.

    Needs the extra `amqsidecar[pipeline]` and Java 17. Runs on this machine, or on a cluster by
    `--master` or `spark-submit`.
    """
    from amqsidecar.telemetry.logs import configure_logs  # noqa: PLC0415 - keeps `--help` fast

    configure_logs("info", "text")
    # Why: Spark's bridge to Java logs each connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
