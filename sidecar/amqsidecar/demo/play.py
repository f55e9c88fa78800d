"""The broker of `amqsidecar demo`: one that it starts, or one that runs already."""

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from rich.console import Console

from amqsidecar.broker import BrokerKind
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.demo.applications import Applications, endpoint_at
from amqsidecar.demo.broker_process import BrokerProcess, write_filled
from amqsidecar.demo.core_applications import CoreApplications
from amqsidecar.demo.maven import ReportLine, artemis_home, classic_home, tool
from amqsidecar.demo.running_broker import (
    Guest,
    RunningBroker,
    guest_of_artemis,
    guest_of_classic,
)
from amqsidecar.demo.sidecar import Sidecar
from amqsidecar.demo.stage import LEFT, Stage
from amqsidecar.demo.stomp_applications import StompApplications
from amqsidecar.demo.story import FULL, QUICK, Script, perform
from amqsidecar.demo.waiting import free_ports
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


class ClassicBroker(BrokerProcess):
    """One Classic; see `BrokerProcess`."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home, folder, _CLASSIC_JAR, "ActiveMQ Classic")
        self._openwire, self._stomp = free_ports(2)

    @property
    def url(self) -> str:
        """The sidecar's URL of the OpenWire connector."""
        return f"openwire://127.0.0.1:{self._openwire}"

    @property
    def stomp(self) -> Endpoint:
        """Where it listens for STOMP."""
        return endpoint_at("127.0.0.1", self._stomp)

    @property
    def _ports(self) -> Sequence[int]:
        return (self._openwire, self._stomp)

    def _prepare(self) -> Sequence[str]:
        config = self._folder / "activemq.xml"
        data = self._folder / "data"
        marks = {"@OPENWIRE_PORT@": self._openwire, "@STOMP_PORT@": self._stomp, "@DATA@": data}
        write_filled("broker.activemq.xml", config, marks)
        return (
            f"-Dactivemq.home={self._home}",
            f"-Dactivemq.base={self._home}",
            f"-Dactivemq.conf={self._folder}",
            f"-Dactivemq.data={data}",
            "-jar",
            str(self._jar),
            "start",
            f"xbean:{config.as_uri()}",
        )


_ARTEMIS_JAR: Final = "lib/artemis-boot.jar"
_CLASSIC_JAR: Final = "bin/activemq.jar"


class ArtemisBroker(BrokerProcess):
    """One Artemis; see `BrokerProcess`."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home, folder, _ARTEMIS_JAR, "Apache Artemis")
        [self._port] = free_ports(1)

    @property
    def url(self) -> str:
        """The sidecar's URL of the acceptor for Core."""
        return f"core://127.0.0.1:{self._port}"

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens for Core."""
        return endpoint_at("127.0.0.1", self._port)

    @property
    def _ports(self) -> Sequence[int]:
        return (self._port,)

    def _prepare(self) -> Sequence[str]:
        folder = self._folder
        etc, data, temporary = (folder / name for name in ("etc", "data", "tmp"))
        for one in (etc, temporary):
            one.mkdir()
        marks = {"@PORT@": self._port, "@DATA@": data, "@CONFIG@": (etc / "broker.xml").as_uri()}
        for name in ("broker", "bootstrap", "management"):
            write_filled(f"{name}.artemis.xml", etc / f"{name}.xml", marks)
        return (
            f"-Dartemis.home={self._home}",
            f"-Dartemis.instance={folder}",
            f"-Dartemis.instance.etc={etc}",
            f"-Ddata.dir={data}",
            f"-Djava.io.tmpdir={temporary}",
            "-Dlog4j2.disableJmx=true",
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-cp",
            str(self._jar),
            "org.apache.activemq.artemis.boot.Artemis",
            "run",
        )


@dataclass(frozen=True)
class Cast:
    """A broker that is not started yet, and the applications on it."""

    broker: AbstractContextManager[object]
    applications: Applications
    options: Mapping[str, object]


@dataclass(frozen=True)
class Product:
    """The differences between the brokers of the demo."""

    name: str
    folder: str
    jar: str
    rules: str
    dead_letters: str
    home: Callable[[ReportLine], Path]
    started: Callable[[Path, Path], Cast]
    guest: Callable[[RunningBroker, str, Sequence[str]], Cast]


def _started_artemis(home: Path, folder: Path) -> Cast:
    broker = ArtemisBroker(home, folder)
    return Cast(broker, CoreApplications(broker.endpoint), {"url": broker.url})


def _started_classic(home: Path, folder: Path) -> Cast:
    broker = ClassicBroker(home, folder)
    return Cast(broker, StompApplications(broker.stomp), {"url": broker.url})


def _on_artemis(running: RunningBroker, instance: str, queues: Sequence[str]) -> Cast:
    applications = CoreApplications(running.endpoint)
    guest = guest_of_artemis(running, applications, instance, queues)
    return Cast(guest, applications, _options_of(running))


def _on_classic(running: RunningBroker, instance: str, queues: Sequence[str]) -> Cast:
    applications = StompApplications(running.stomp)
    guest = guest_of_classic(running, applications, instance, queues)
    return Cast(guest, applications, _options_of(running))


PRODUCTS: Final[Mapping[BrokerKind, Product]] = {
    BrokerKind.ARTEMIS: Product(
        "Artemis",
        "apache-artemis-",
        _ARTEMIS_JAR,
        "rules.broker.xml",
        "DLQ",
        artemis_home,
        _started_artemis,
        _on_artemis,
    ),
    BrokerKind.CLASSIC: Product(
        "Classic",
        "apache-activemq-",
        _CLASSIC_JAR,
        "rules.activemq.xml",
        "ActiveMQ.DLQ",
        classic_home,
        _started_classic,
        _on_classic,
    ),
}


def kind_in(home: Path) -> BrokerKind | None:
    """Return which broker is unpacked in a folder; None = neither."""
    return next((kind for kind, one in PRODUCTS.items() if (home / one.jar).is_file()), None)


def play(
    kind: BrokerKind,
    running: RunningBroker | None,
    broker_home: Path | None,
    *,
    keeps: bool,
    is_quick: bool,
) -> int:
    """Play the demo; return the exit code.

    Args:
        kind: of the broker.
        running: play on this broker; None = start one.
        broker_home: start it out of this distribution; None = out of the cache, where it is
            fetched by Maven once.
        keeps: stay until Ctrl-C afterwards.
        is_quick: fewer messages, half the time.

    Raises:
        FetchError: Java or Maven is missing, the download fails, or the distribution is of another
            product.
    """
    console = Console()
    product = PRODUCTS[kind]
    if running is None:
        tool("java")
        broker_home = broker_home or _fetched(product, console)
    script = QUICK if is_quick else FULL
    # Why chance: its token queue is the demo's alone, so that it may be removed.
    instance = f"demo-{secrets.token_hex(6)}"
    rules = files("amqsidecar.demo").joinpath(product.rules)
    with tempfile.TemporaryDirectory(prefix="amqsidecar-demo-") as name, as_file(rules) as policy:
        folder = Path(name)
        if running is not None:
            cast = product.guest(running, instance, _queues_of(script, product.dead_letters))
            title = f"{product.name} at {running.url.host}:{running.url.port}"
        else:
            assert broker_home is not None  # noqa: S101 - fetched above
            cast = product.started(broker_home, folder / "broker")
            title = broker_home.name.replace(product.folder, f"{product.name} ")
        stage = Stage(
            title=title,
            broker=cast.broker,
            applications=cast.applications,
            sidecar=Sidecar(folder, instance, cast.options, product.dead_letters, policy),
            rules=product.rules,
            dead_letter_queue=product.dead_letters,
            groups=script.groups(),
        )
        code = perform(console, [stage], script, keeps=keeps)
    if isinstance(cast.broker, Guest):
        for line in cast.broker.leftovers:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return code


def _queues_of(script: Script, dead_letters: str) -> tuple[str, ...]:
    final = f"{dead_letters}{FINAL_SUFFIX}"
    return (*(one.queue for one in script.groups()), LEFT, dead_letters, final)


def _options_of(running: RunningBroker) -> Mapping[str, object]:
    options: dict[str, object] = {"url": str(running.url)}
    if running.password_file is not None:
        options["password_file"] = str(running.password_file.absolute())
    return options


def _fetched(product: Product, console: Console) -> Path:
    """Return the distribution out of the cache; show how far its download is."""
    if not console.is_terminal:
        return product.home(lambda line: console.print(line, soft_wrap=True, highlight=False))
    with console.status(product.name) as status:
        return product.home(status.update)
