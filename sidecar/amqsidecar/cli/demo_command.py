"""`amqsidecar demo`: messages die on a real broker, wait, and come back."""

from pathlib import Path
from typing import Annotated, Final

import typer

from amqsidecar.broker import BrokerKind
from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url
from amqsidecar.config.secrets import secret_in
from amqsidecar.demo.maven import FetchError
from amqsidecar.demo.play import kind_in, play
from amqsidecar.demo.running_broker import RunningBroker
from amqsidecar.demo.story import FAILED
from amqsidecar.errors import ConfigError, DemoFailed, Problem

_KINDS: Final = {
    "artemis": BrokerKind.ARTEMIS,
    "core": BrokerKind.ARTEMIS,
    "openwire": BrokerKind.CLASSIC,
}

Keep = Annotated[
    bool,
    typer.Option(
        "--keep", help="Keep running until Ctrl-C, with failures to retry in the console."
    ),
]


def demo(
    kind: Annotated[
        BrokerKind | None,
        typer.Option(
            help="The broker product; default: that of --broker or --broker-home, else Artemis."
        ),
    ] = None,
    broker_home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Start the Artemis or Classic unpacked in this folder; default: download one by "
            "Maven, once.",
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Use a running broker, such as artemis://user@localhost:61616 or "
            "openwire://user@localhost:61616. Its dead-letter queue must be empty and unused by "
            "others. The demo removes everything that it created.",
        ),
    ] = None,
    stomp_port: Annotated[
        int,
        typer.Option(min=1, max=65535, help="With --broker openwire://: its address for STOMP."),
    ] = 61613,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --broker: file with the user's password."),
    ] = None,
    keep: Keep = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer messages, half the time.")] = False,
) -> None:
    """Watch real messages die, wait and come back.

    The sidecar is killed meanwhile (`kill -9`), and every message is counted at the end. Needs a
    Java runtime, and Maven for the first time. Takes 45 seconds. Exit codes: 0 nothing was lost or
    doubled; 1 something was, or the demo failed; 78 something is missing.
    """
    running, found = None, None
    if broker is not None:
        if broker_home is not None:
            raise typer.BadParameter("give --broker or --broker-home, not both")
        password = None
        if password_file is not None:
            password = secret_in(password_file, "--password-file").reveal()
        url = _url(broker)
        found = _KINDS[url.scheme]
        running = RunningBroker(url, stomp_port, password_file, password)
    elif password_file is not None:
        raise typer.BadParameter("belongs to --broker URL", param_hint="--password-file")
    elif broker_home is not None:
        found = kind_in(broker_home)
    if found is not None and kind not in (None, found):
        raise typer.BadParameter(f"it is {found}", param_hint="--kind")
    chosen = found or kind or BrokerKind.ARTEMIS
    try:
        code = play(chosen, running, broker_home, keeps=keep, is_quick=quick)
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
    if url.scheme not in _KINDS:
        what = f"give a URL that begins with one of: {', '.join(f'{one}://' for one in _KINDS)}"
        raise typer.BadParameter(what, param_hint="--broker")
    if url.password is not None:
        what = "other users can see a password on a command line: use --password-file"
        raise typer.BadParameter(what, param_hint="--broker")
    return url
