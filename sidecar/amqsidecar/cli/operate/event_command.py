"""`amqsidecar event`: reports an event outside that messages wait for."""

from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.operate.operations_command import usage_errors
from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.reading import configured
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.operations.markers import report_event
from amqsidecar.operations.words import one_line


@configured
def event(
    name: Annotated[str, typer.Argument(help="Name of the event, such as invoice-4711.")],
    *,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Report an event outside: what waits for it is released.

    It is remembered for an hour, for messages that begin to wait later.

    \b
    JSON: {"name", "at_ms", "author"}
    """  # noqa: D301 - the backspace makes the library keep the lines
    with opened_schedule(config, read_only=False) as store, usage_errors():
        signal = report_event(store, name, cli_actor(), SystemClock().now_ms())
    if output is OutputFormat.JSON:
        print_json(signal)
        return
    print_line(f"event {one_line(signal.name, 200)}: the service releases what waits for it")
