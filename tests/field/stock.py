"""Brokers as a newcomer has them: their own configuration files, only ports and paths replaced."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import maven, versions
from support.brokers.process import QUICK_START
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.machine.ports import free_port
from support.machine.processes import run_program
from support.versions import CLASSIC_5, CLASSIC_6

CLASSIC_PORTS = {
    "OPENWIRE_PORT": 61616,
    "AMQP_PORT": 5672,
    "STOMP_PORT": 61613,
    "MQTT_PORT": 1883,
    "WS_PORT": 61614,
    "HTTP_PORT": 8161,
}
ARTEMIS_PORTS = {
    "PORT": 61616,
    "AMQP_PORT": 5672,
    "STOMP_PORT": 61613,
    "HORNETQ_PORT": 5445,
    "MQTT_PORT": 1883,
    "HTTP_PORT": 8161,
}
# Why: Classic 6 runs here from its modules, since its distribution can't be had by coordinates.
# These are files of its source, tag activemq-6.3.1, folder assembly/src/release/conf, unchanged.
_CLASSIC_6_CONF = Path(__file__).parent / "classic-6.3.1"
_NOT_IN_MODULES = (
    r'<transportConnector name="(mqtt|ws)"[^>]*/>',
    r"<shutdownHooks>.*?</shutdownHooks>",
    r'<import resource="jetty[^"]*.xml"/>',
)


def _marked(text: str, ports: Mapping[str, int]) -> str:
    """Return a file with marks for its ports, listening on loopback only."""
    for mark, port in ports.items():
        text = re.sub(rf"(?<=[:\"]){port}\b", f"@{mark}@", text)
    return text.replace("0.0.0.0", "127.0.0.1")


class StockClassic(ClassicBroker):
    """Classic with the `conf` folder of its distribution."""

    is_launched_as_unpacked = True

    def __init__(self, version: str) -> None:
        is_6 = versions.classic(version).family == "classic_6"
        conf = _CLASSIC_6_CONF if is_6 else maven.classic_5_home() / "conf"
        text = (conf / "activemq.xml").read_text(encoding="utf-8")
        if versions.classic(version).libraries:
            for pattern in _NOT_IN_MODULES:
                text = re.sub(pattern, "", text, flags=re.DOTALL)
            text = text.replace(
                "beans.factory.config.PropertyPlaceholderConfigurer",
                "context.support.PropertySourcesPlaceholderConfigurer",
            )
        # Why not all: the other connectors of Classic 6 stand in comments.
        served = {"OPENWIRE_PORT": 61616} if is_6 else CLASSIC_PORTS
        super().__init__(version, _marked(text, served), start_timeout_s=120)
        self._conf = conf
        self._ports = {mark: free_port() for mark in CLASSIC_PORTS}

    def jms_url(self, provider: str) -> str:
        """Return the URL for a JMS client: `openwire` or `qpid`."""
        scheme, mark = {"openwire": ("tcp", "OPENWIRE_PORT"), "qpid": ("amqp", "AMQP_PORT")}[
            provider
        ]
        return f"{scheme}://127.0.0.1:{self.ports[mark]}"

    def _prepare(self) -> None:
        shutil.copytree(self._conf, self.folder, dirs_exist_ok=True)
        for jetty in self.folder.glob("jetty.xml"):
            jetty.write_text(self._filled(_marked(jetty.read_text(), CLASSIC_PORTS)))
        super()._prepare()


class StockArtemis(ArtemisBroker):
    """Artemis as its own `create` makes it."""

    is_launched_as_unpacked = True

    def __init__(self, *login: str) -> None:
        super().__init__(start_timeout_s=120)
        self._login = login
        self._ports = {mark: free_port() for mark in ARTEMIS_PORTS}

    def _prepare(self) -> None:
        command = str(maven.artemis_home() / "bin" / "artemis")
        names = ("--user", self.user, "--password", self.password)
        run_program(
            [command, "create", str(self.folder), "--force", "--silent", *names, *self._login],
            env={**os.environ, "JAVA_ARGS": " ".join(QUICK_START)},
            code=0,
        )
        for name in ("broker.xml", "bootstrap.xml"):
            path = self.folder / "etc" / name
            path.write_text(self._filled(_marked(path.read_text(), ARTEMIS_PORTS)))

    def _java(self) -> list[str]:
        # Why: producers are blocked for ever on a machine whose disk is full by 90 %.
        return ["-Dbrokerconfig.maxDiskUsage=-1", *super()._java()]


def stock_brokers() -> dict[str, Any]:
    """Return what makes each broker, by the name in the table."""
    return {
        "Classic 5.18.3": lambda: StockClassic(CLASSIC_5),
        "Classic 6.3.1": lambda: StockClassic(CLASSIC_6),
        "Artemis 2.44.0": lambda: StockArtemis("--require-login"),
        "Artemis 2.44.0, `--allow-anonymous`": lambda: StockArtemis("--allow-anonymous"),
    }


def known_ports(broker: Broker) -> dict[str, int]:
    """Return the port in use by the port that the stock configuration names."""
    stock = CLASSIC_PORTS if broker.kind == "classic" else ARTEMIS_PORTS
    return {str(port): broker.ports[mark] for mark, port in stock.items()}


def anonymised(broker: Broker, folder: Path, text: str) -> str:
    """Return a sentence with stock ports and without paths of this run."""
    for stock, port in known_ports(broker).items():
        text = text.replace(f":{port}", f":{stock}")
    return text.replace(str(folder), "FOLDER").replace("127.0.0.1", "localhost")
