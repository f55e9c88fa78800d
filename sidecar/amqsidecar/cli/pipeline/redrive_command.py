"""`amqsidecar pipeline redrive`: plans bulk redelivery."""

from typing import Annotated
from uuid import uuid4

import typer

from amqsidecar.cli.options import INT_MAX
from amqsidecar.cli.pipeline.options import (
    Events,
    Master,
    OutputFolder,
    Since,
    SparkConf,
    Until,
)
from amqsidecar.cli.times import time_ms

Destinations = Annotated[
    list[str] | None,
    typer.Option(
        "--destination",
        metavar="NAME",
        help="Only messages that died there, such as queue://orders; a plain name is a queue. May "
        "be repeated.",
        show_default=False,
    ),
]
CauseGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--cause-group",
        metavar="TEXT",
        help="Only messages whose last cause is of this group, as `pipeline causes` prints it. "
        "May be repeated.",
        show_default=False,
    ),
]
MinRedeliveries = Annotated[
    int | None,
    typer.Option(
        min=0, max=INT_MAX, help="Minimum number of redeliveries.", show_default=False, metavar="N"
    ),
]
MaxRedeliveries = Annotated[
    int | None,
    typer.Option(
        min=0, max=INT_MAX, help="Maximum number of redeliveries.", show_default=False, metavar="N"
    ),
]
WithCancelled = Annotated[
    bool, typer.Option("--with-cancelled", help="Include messages that a person cancelled.")
]
OnePerMessageId = Annotated[
    bool,
    typer.Option(
        "--one-per-message-id",
        help="Of messages with the same id include only the one that died first.",
    ),
]
RedrivePerSecond = Annotated[
    float,
    typer.Option(min=0.001, metavar="NUMBER", help="Messages per second to each destination."),
]
RampSeconds = Annotated[
    float,
    typer.Option(
        min=0.0, metavar="SECONDS", help="Time in which the pace grows from zero to its full value."
    ),
]


def redrive(
    events: Events,
    output_folder: OutputFolder,
    destination: Destinations = None,
    cause_group: CauseGroups = None,
    since: Since = None,
    until: Until = None,
    min_redeliveries: MinRedeliveries = None,
    max_redeliveries: MaxRedeliveries = None,
    with_cancelled: WithCancelled = False,
    one_per_message_id: OnePerMessageId = False,
    per_second: RedrivePerSecond = 50.0,
    ramp_seconds: RampSeconds = 60.0,
    master: Master = None,
    conf: SparkConf = None,
) -> None:
    """Plan the redelivery of exhausted, parked and held messages.

    Writes the tables `redrive_plan` and `redrive_summary`, and `report.html`; `amqsidecar redrive`
    executes the plan.
    """
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.model.destination import parse_destination  # noqa: PLC0415 - as above
    from amqsidecar.pipeline.redrive.redrive import RedriveOptions, run_redrive  # noqa: PLC0415 - as above
    from amqsidecar.pipeline.session import open_session  # noqa: PLC0415 - as above

    try:
        destinations = tuple(str(parse_destination(one)) for one in destination or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--destination") from error
    options = RedriveOptions(
        events=events,
        output_folder=output_folder,
        plan_id=uuid4().hex,
        destinations=destinations,
        cause_groups=tuple(cause_group or ()),
        since_ms=time_ms(since, "--since"),
        until_ms=time_ms(until, "--until"),
        min_redeliveries=min_redeliveries,
        max_redeliveries=max_redeliveries,
        now_ms=SystemClock().now_ms(),
        with_cancelled=with_cancelled,
        one_per_message_id=one_per_message_id,
        per_second=per_second,
        ramp_s=ramp_seconds,
    )
    run_redrive(open_session("redrive", master, conf or ()), options)
