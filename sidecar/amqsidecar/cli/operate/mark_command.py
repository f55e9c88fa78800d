"""`amqsidecar mark`: markers, such as deployments."""

from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.operate.operations_command import usage_errors
from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import configured
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.operations.markers import MARKERS_MAX, set_marker
from amqsidecar.operations.words import clock_time, one_line


@configured
def mark(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help='What happened, such as "orders 4.2"; without it the command only reads.',
        ),
    ] = None,
    *,
    destination: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="What it concerns, such as 'orders.>' or topic://news.*. Default: all "
            "destinations.",
        ),
    ] = "",
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Mark this moment, such as a deployment, and print the markers.

    Charts, new groups and reports show them. The latest is first.

    \b
    JSON: [{"at_ms", "text", "destination", "author"}]
    """  # noqa: D301 - the backspace makes the library keep the lines
    if text is None and destination:
        raise typer.BadParameter("give the text of the marker")
    with opened_schedule(config, read_only=text is None) as store, usage_errors():
        if text is not None:
            set_marker(store, text, destination, cli_actor(), SystemClock().now_ms())
        markers = store.markers(0, MARKERS_MAX)
    if output is OutputFormat.JSON:
        print_json(markers)
        return
    if not markers:
        say("no markers")
    for one in markers:
        place = one_line(one.destination) or "all destinations"
        words = f"{one_line(one.text, 200)} ({place}), marked by {one_line(one.author)}"
        print_line(f"{clock_time(one.at_ms)}  {words}")
