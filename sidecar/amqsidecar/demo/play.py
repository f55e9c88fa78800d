"""The broker of `amqsidecar demo`: one that it starts, or one that runs already."""

import secrets
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, Self

from rich.console import Console

from amqsidecar.broker import BrokerKind
from amqsidecar.demo.applications import WireApplications, endpoint_at
from amqsidecar.demo.core_applications import CoreApplications
from amqsidecar.demo.maven import ARTEMIS, CLASSIC, FetchError, distribution, tool
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
from amqsidecar.demo.waiting import free_ports, is_open, wait_or_kill, wait_until_ready
from amqsidecar.model.sidecar_names import FINAL_SUFFIX

_STOP_WITHIN_S: Final = 15.0
# Why: a demo wants a quick start, not throughput.
_JVM: Final = (
    *("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.awt.headless=true",
)


class BrokerProcess(ABC):
    """A broker with its own ports and data; a context manager that starts and ends it.

    It ends with this process, however this process ends.

    Attributes:
        applications: that speak with it.
        options: of a sidecar on it, below `broker`.
        ports: on which it listens once it has started.
    """

    applications: WireApplications
    options: Mapping[str, object]
    ports: Sequence[int]

    def __init__(self, home: Path, folder: Path, jar: str, product: str) -> None:
        """Prepare.

        Raises:
            FetchError: it is not in `home`.
        """
        self._jar = home / jar
        if not self._jar.is_file():
            raise FetchError(
                f"{home} is not an unpacked {product}: {jar} is missing; give the folder that the "
                "distribution's zip unpacks to"
            )
        self._home = home
        self._folder = folder
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Write the configuration; return the arguments of `java`."""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        java = [tool("java"), *_JVM, *self._prepare()]
        with self._log.open("wb") as log:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "amqsidecar.demo.tether", *java],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until_ready(
                process, "the broker", lambda: all(map(is_open, self.ports)), self._log
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the broker."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101 - it was started so
        process.stdin.close()
        wait_or_kill(process, _STOP_WITHIN_S)


def _write_filled(template: str, target: Path, marks: Mapping[str, object]) -> None:
    """Write a file of this package with values in place of its marks."""
    text = files("amqsidecar.demo").joinpath(template).read_text(encoding="utf-8")
    for mark, value in marks.items():
        text = text.replace(mark, str(value))
    target.write_text(text, encoding="utf-8")


class ClassicBroker(BrokerProcess):
    """One Classic; see `BrokerProcess`."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home, folder, _CLASSIC_JAR, "ActiveMQ Classic")
        openwire, stomp = self.ports = free_ports(2)
        self.options = {"url": f"openwire://127.0.0.1:{openwire}"}
        self.applications = StompApplications(endpoint_at("127.0.0.1", stomp))

    def _prepare(self) -> Sequence[str]:
        config = self._folder / "activemq.xml"
        data = self._folder / "data"
        ports = dict(zip(("@OPENWIRE_PORT@", "@STOMP_PORT@"), self.ports, strict=True))
        _write_filled("broker.activemq.xml", config, {**ports, "@DATA@": data})
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
        [self._port] = self.ports = free_ports(1)
        self.options = {"url": f"core://127.0.0.1:{self._port}"}
        self.applications = CoreApplications(endpoint_at("127.0.0.1", self._port))

    def _prepare(self) -> Sequence[str]:
        folder = self._folder
        etc, data, temporary = (folder / name for name in ("etc", "data", "tmp"))
        for one in (etc, temporary):
            one.mkdir()
        marks = {"@PORT@": self._port, "@DATA@": data, "@CONFIG@": (etc / "broker.xml").as_uri()}
        for name in ("broker", "bootstrap", "management"):
            _write_filled(f"{name}.artemis.xml", etc / f"{name}.xml", marks)
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
class Product:
    """The differences between the brokers of the demo.

    Attributes:
        broker: starts one out of a distribution, in a folder.
        guest: plays on a running one as this instance, with these queues.
    """

    name: str
    folder: str
    jar: str
    rules: str
    dead_letters: str
    version: str
    broker: Callable[[Path, Path], BrokerProcess]
    guest: Callable[[RunningBroker, str, Sequence[str]], Guest]


PRODUCTS: Final[Mapping[BrokerKind, Product]] = {
    BrokerKind.ARTEMIS: Product(
        "Artemis",
        "apache-artemis",
        _ARTEMIS_JAR,
        "rules.broker.xml",
        "DLQ",
        ARTEMIS,
        ArtemisBroker,
        guest_of_artemis,
    ),
    BrokerKind.CLASSIC: Product(
        "Classic",
        "apache-activemq",
        _CLASSIC_JAR,
        "rules.activemq.xml",
        "ActiveMQ.DLQ",
        CLASSIC,
        ClassicBroker,
        guest_of_classic,
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
        broker: Guest | BrokerProcess
        if running is not None:
            broker = product.guest(running, instance, _queues_of(script, product.dead_letters))
            title = f"{product.name} at {running.url.host}:{running.url.port}"
        else:
            assert broker_home is not None  # noqa: S101 - fetched above
            broker = product.broker(broker_home, folder / "broker")
            title = broker_home.name.replace(f"{product.folder}-", f"{product.name} ")
        stage = Stage(
            title=title,
            broker=broker,
            applications=broker.applications,
            sidecar=Sidecar(folder, instance, broker.options, product.dead_letters, policy),
            rules=product.rules,
            dead_letter_queue=product.dead_letters,
            groups=script.groups(),
        )
        code = perform(console, stage, script, keeps=keeps)
    if isinstance(broker, Guest):
        for line in broker.leftovers:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return code


def _queues_of(script: Script, dead_letters: str) -> tuple[str, ...]:
    final = f"{dead_letters}{FINAL_SUFFIX}"
    return (*(one.queue for one in script.groups()), LEFT, dead_letters, final)


def _fetched(product: Product, console: Console) -> Path:
    """Return the distribution out of the cache; show how far its download is."""
    fetched = partial(distribution, product.folder, product.version)
    if not console.is_terminal:
        return fetched(partial(console.print, soft_wrap=True, highlight=False))
    with console.status(product.name) as status:
        return fetched(status.update)
