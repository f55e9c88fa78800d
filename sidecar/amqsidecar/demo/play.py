"""What `amqsidecar demo` plays on: a Classic that it starts, or one that runs already."""

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from rich.console import Console

from amqsidecar.config.broker_url import BrokerUrl
from amqsidecar.demo.applications import StompAddress, StompApplications
from amqsidecar.demo.classic_broker import ClassicBroker
from amqsidecar.demo.maven import CLASSIC, classic_home, tool
from amqsidecar.demo.sidecar import Sidecar
from amqsidecar.demo.stage import Stage
from amqsidecar.demo.story import FULL, QUICK, perform

RULES: Final = "rules.activemq.xml"
_DEAD_LETTERS: Final = "ActiveMQ.DLQ"


@dataclass(frozen=True)
class RunningBroker:
    """A Classic that runs already, and that nobody else uses.

    Attributes:
        openwire: where it listens for OpenWire, with the user.
        stomp_port: where it listens for STOMP, on the same host.
        password_file: holds the password; None = no password.
        password: what is in it; None = no password.
    """

    openwire: BrokerUrl
    stomp_port: int
    password_file: Path | None
    password: str | None


def play(
    running: RunningBroker | None, broker_home: Path | None, *, keeps: bool, is_quick: bool
) -> int:
    """Play the demo; return the exit code.

    Args:
        running: play on this broker; None = start one.
        broker_home: start it out of this distribution; None = out of the cache, where it is
            fetched by Maven once.
        keeps: stay until Ctrl-C afterwards.
        is_quick: fewer messages, half the time.

    Raises:
        FetchError: Java or Maven is missing, the download fails, or the distribution is no Classic.
    """
    console = Console()
    if running is None:
        tool("java")
        broker_home = broker_home or _fetched(console)
    rules = files("amqsidecar.demo").joinpath(RULES)
    with tempfile.TemporaryDirectory(prefix="amqsidecar-demo-") as name, as_file(rules) as policy:
        folder = Path(name)
        broker: AbstractContextManager[object]
        options: Mapping[str, object]
        if running is not None:
            broker, stomp = nullcontext(), _stomp_of(running)
            options = _options_of(running)
            title = f"Classic at {running.openwire.host}:{running.openwire.port}"
        else:
            assert broker_home is not None  # noqa: S101 - fetched above
            classic = ClassicBroker(broker_home, folder / "broker")
            broker, stomp, options = classic, classic.stomp, {"url": classic.url}
            title = broker_home.name.replace("apache-activemq-", "Classic ")
        stage = Stage(
            title=title,
            broker=broker,
            applications=StompApplications(stomp),
            sidecar=Sidecar(folder, options, _DEAD_LETTERS, policy),
            rules=RULES,
            dead_letter_queue=_DEAD_LETTERS,
            groups=(QUICK if is_quick else FULL).groups(),
        )
        return perform(console, [stage], QUICK if is_quick else FULL, keeps=keeps)


def _stomp_of(running: RunningBroker) -> StompAddress:
    url = running.openwire
    return StompAddress(url.host, running.stomp_port, url.user, running.password)


def _options_of(running: RunningBroker) -> Mapping[str, object]:
    options: dict[str, object] = {"url": str(running.openwire)}
    if running.password_file is not None:
        options["password_file"] = str(running.password_file.absolute())
    return options


def _fetched(console: Console) -> Path:
    """Return the distribution out of the cache; show how far its download is."""
    if not console.is_terminal:
        return classic_home(lambda line: console.print(line, soft_wrap=True, highlight=False))
    with console.status(f"ActiveMQ Classic {CLASSIC}") as status:
        return classic_home(status.update)
