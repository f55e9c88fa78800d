"""`amqsidecar pipeline`: the jobs that turn the history into answers, with Spark."""

from typing import Final

import typer

from amqsidecar.cli.lazy_group import lazy_group

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "causes": ("pipeline.causes_command", "causes"),
    "ingest": ("pipeline.ingest_command", "ingest"),
    "recovery": ("pipeline.recovery_command", "recovery"),
    "whatif": ("pipeline.whatif_command", "whatif"),
}
"""Each job, and the module and function that is its command; imported when it is asked for."""

app = typer.Typer(
    name="pipeline",
    cls=lazy_group(COMMANDS, extra="pipeline"),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def pipeline() -> None:
    """Turn the journals of sidecars into answers, with Spark.

    Needs the extra `amqsidecar[pipeline]` and Java 17. Runs on this machine, or on a cluster by
    `--master` or `spark-submit`.
    """
    import logging  # noqa: PLC0415 - keeps `--help` fast

    from amqsidecar.telemetry.logs import configure_logs  # noqa: PLC0415 - as above

    configure_logs("info", "text")
    # Why: Spark's bridge to Java logs each connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
