"""`amqsidecar demo`: messages die on a real broker, wait, and come back."""

from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url

BrokerHome = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Start the ActiveMQ Classic that is unpacked here; default: fetch one by Maven, once.",
        show_default=False,
    ),
]
RunningUrl = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help="Use a Classic that runs already, such as openwire://user@localhost:61616. Its "
        "dead-letter queue must be empty and unused by others during the demo.",
        show_default=False,
    ),
]
StompPort = Annotated[
    int, typer.Option(min=1, max=65535, help="With --broker: where it listens for STOMP.")
]
BrokerPasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="With --broker: holds the user's password.", show_default=False
    ),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Stay until Ctrl-C, with failures to retry on the console.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer messages, half the time.")]


def demo(
    broker_home: BrokerHome = None,
    broker: RunningUrl = None,
    stomp_port: StompPort = 61613,
    password_file: BrokerPasswordFile = None,
    keep: Keep = False,
    quick: Quick = False,
) -> None:
    """Watch real messages die, wait and come back, through a kill -9; counts them at the end.

    Needs a Java runtime, and Maven for the first time. Takes 45 seconds. Exit codes: 0 nothing was
    lost or doubled; 1 something was, or the demo failed; 78 something is missing.
    """
    from amqsidecar.config.secrets import secret_in  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.demo.maven import FetchError  # noqa: PLC0415 - as above
    from amqsidecar.demo.play import RunningBroker, play  # noqa: PLC0415 - as above
    from amqsidecar.demo.story import FAILED  # noqa: PLC0415 - as above
    from amqsidecar.errors import ConfigError, DemoFailed, Problem  # noqa: PLC0415 - as above

    running = None
    if broker is not None:
        if broker_home is not None:
            raise typer.BadParameter("give --broker or --broker-home, not both")
        password = None
        if password_file is not None:
            password = secret_in(password_file, "--password-file").reveal()
        running = RunningBroker(_url(broker), stomp_port, password_file, password)
    elif password_file is not None:
        raise typer.BadParameter("belongs to --broker URL", param_hint="--password-file")
    try:
        code = play(running, broker_home, keeps=keep, is_quick=quick)
    except FetchError as error:
        raise ConfigError([Problem("demo", str(error))]) from error
    if code == FAILED:
        # Why not Exit: code 1 means there that the reader of our output left early.
        raise DemoFailed("the demo failed")
    raise typer.Exit(code)


def _url(text: str) -> BrokerUrl:
    try:
        url = parse_broker_url(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--broker") from error
    if url.scheme != "openwire":
        what = "the demo runs on ActiveMQ Classic: give its openwire:// URL"
        raise typer.BadParameter(what, param_hint="--broker")
    if url.password is not None:
        what = "a password on a command line can be seen by others: use --password-file"
        raise typer.BadParameter(what, param_hint="--broker")
    return url
