"""Real brokers as processes: each release of ActiveMQ Classic and Artemis in `versions.py`.

    with ClassicBroker("6.3.1", plugins="<redeliveryPlugin/>", scheduler_support=True) as broker:
        broker.openwire_url   # openwire://admin:admin@127.0.0.1:PORT

Usable without pytest. A broker dies with the process that started it, however that ends.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import SkipTest

from support import maven, versions
from support.brokers.broker_xml import (
    ARTEMIS_LOGIN_CONFIG,
    CLASSIC_CONNECTORS,
    artemis_xml,
    classic_xml,
)
from support.brokers.process import (
    FULL_SPEED,
    QUICK_START,
    STARTED_BROKERS,
    Broker,
    BrokerStartError,
)
from support.machine.ports import free_port
from support.versions import Release
from support.waiting import PATIENCE_S

__all__ = [
    "FULL_SPEED",
    "QUICK_START",
    "STARTED_BROKERS",
    "ArtemisBroker",
    "Broker",
    "BrokerStartError",
    "ClassicBroker",
]


def spoken(chosen: Release, wire: str) -> str:
    """Return the wire; a test that asks for one whose module can't be had is skipped."""
    if wire not in chosen.wires:
        raise SkipTest(f"{chosen} runs without {wire}: its module can't be had")
    return wire


class ClassicBroker(Broker):
    """ActiveMQ Classic with an activemq.xml of your own or one from options of `classic_xml`."""

    kind = "classic"

    def __init__(
        self,
        version: str = versions.CLASSIC_6,
        activemq_xml: str | None = None,
        *,
        jvm_flags: Sequence[str] = QUICK_START,
        folder: Path | None = None,
        start_timeout_s: float = PATIENCE_S,
        **options: Any,
    ) -> None:
        """Prepare a Classic broker.

        Args:
            version: one of `versions.RELEASES`.
            activemq_xml: a whole file, in which marks such as `@OPENWIRE_PORT@` and `@DATA@` are
                replaced; None: rendered by `classic_xml` from the options.
            options: what `classic_xml` takes.
        """
        self.release = versions.classic(version)
        if activemq_xml is not None and options:
            raise ValueError(f"give activemq_xml or options, not both: {', '.join(options)}")
        self.version = version
        super().__init__(jvm_flags=jvm_flags, folder=folder, start_timeout_s=start_timeout_s)
        if activemq_xml is None:
            options["connectors"] = self._spoken(options.get("connectors", CLASSIC_CONNECTORS))
            activemq_xml = classic_xml(**options)
        self.activemq_xml = activemq_xml
        marks = ("OPENWIRE_PORT", "STOMP_PORT", "AMQP_PORT", "AMQP_JMS_PORT")
        self._ports = {mark: free_port() for mark in marks}

    def _spoken(self, connectors: Mapping[str, str]) -> Mapping[str, str]:
        """Return the connectors whose wire the release speaks."""
        unspoken = tuple({"stomp", "amqp"} - {*self.release.wires})
        return {name: uri for name, uri in connectors.items() if not uri.startswith(unspoken)}

    @property
    def openwire_url(self) -> str:
        """The sidecar's URL of the OpenWire connector."""
        return self._url("openwire", "OPENWIRE_PORT")

    @property
    def stomp_url(self) -> str:
        """The sidecar's URL of the STOMP connector."""
        return self._url(spoken(self.release, "stomp"), "STOMP_PORT")

    @property
    def amqp_url(self) -> str:
        """The sidecar's URL of the stock AMQP connector."""
        return self._url("amqp", "AMQP_PORT")

    @property
    def amqp_jms_url(self) -> str:
        """The sidecar's URL of the AMQP connector with `transport.transformer=jms`."""
        return self._url("amqp", "AMQP_JMS_PORT")

    def jms_url(self, provider: str) -> str:
        """Return the URL for a JMS client: `openwire` or `qpid` (stock connector), or `qpid-jms`.

        `qpid-jms` is the connector with `transport.transformer=jms`.
        """
        return {
            "openwire": f"tcp://127.0.0.1:{self.ports['OPENWIRE_PORT']}",
            "qpid": f"amqp://127.0.0.1:{self.ports['AMQP_PORT']}",
            "qpid-jms": f"amqp://127.0.0.1:{self.ports['AMQP_JMS_PORT']}",
        }[provider]

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports by mark."""
        return self._ports

    @property
    def config_path(self) -> Path:
        """The activemq.xml that the running broker has read."""
        return self.folder / "activemq.xml"

    @property
    def _started_line(self) -> str:
        return f"Apache ActiveMQ {self.version} ("

    def _has_started(self, log_offset: int) -> bool:
        # Why: the same words begin the lines "is starting", "started" and "is shutting down".
        lines = self.log_tail(lines=10_000, since=log_offset).splitlines()
        is_said = any(self._started_line in line and line.endswith(" started") for line in lines)
        return super()._has_started(log_offset) and is_said

    def _prepare(self) -> None:
        for wire in ("stomp", "amqp"):
            if f"{wire}://" in self.activemq_xml:
                spoken(self.release, wire)
        self.config_path.write_text(self._filled(self.activemq_xml), encoding="utf-8")

    def _java(self) -> list[str]:
        tether = maven.compiled("Tether.java")
        if self._is_unpacked:
            class_path = f"{maven.classic_5_home()}/bin/activemq.jar:{tether}"
            main = ["org.apache.activemq.console.Main", "start", f"xbean:file:{self.config_path}"]
        else:
            jars = maven.broker_class_path(self.release)
            class_path = f"{maven.launcher(self.release)}:{tether}:{jars}"
            main = ["ClassicLauncher"]
        return ["-Djava.awt.headless=true", "-cp", class_path, "Tether", *main]

    def _properties(self) -> dict[str, str]:
        properties = {"activemq.data": f"{self.data}", "activemq.conf": f"{self.folder}"}
        if not self.release.libraries:
            home = f"{maven.classic_5_home()}"
            properties |= {"activemq.home": home, "activemq.base": home}
        return properties


class ArtemisBroker(Broker):
    """Artemis with a broker.xml of your own or one from options of `artemis_xml`."""

    kind = "artemis"

    def __init__(
        self,
        broker_xml: str | None = None,
        *,
        version: str = versions.ARTEMIS,
        jvm_flags: Sequence[str] = QUICK_START,
        folder: Path | None = None,
        start_timeout_s: float = PATIENCE_S,
        **options: Any,
    ) -> None:
        """Prepare an Artemis broker.

        Args:
            broker_xml: a whole file, in which `@PORT@` and `@DATA@` are replaced; None: rendered by
                `artemis_xml` from the options.
            version: one of `versions.RELEASES`.
            options: what `artemis_xml` takes.
        """
        self.release = versions.release("artemis", version)
        self.version = version
        if broker_xml is not None and options:
            raise ValueError(f"give broker_xml or options, not both: {', '.join(options)}")
        super().__init__(jvm_flags=jvm_flags, folder=folder, start_timeout_s=start_timeout_s)
        self.broker_xml = artemis_xml(**options) if broker_xml is None else broker_xml
        self._ports = {"PORT": free_port()}

    @property
    def jms_providers(self) -> tuple[str, ...]:
        """The JMS clients that it serves."""
        wire_of = {"core": "core", "qpid": "amqp", "openwire": "openwire"}
        return tuple(client for client, wire in wire_of.items() if wire in self.release.wires)

    @property
    def amqp_url(self) -> str:
        """The sidecar's URL for AMQP."""
        return self._url(spoken(self.release, "amqp"), "PORT")

    @property
    def core_url(self) -> str:
        """The sidecar's URL for Core."""
        return self._url("core", "PORT")

    @property
    def stomp_url(self) -> str:
        """The sidecar's URL for STOMP."""
        return self._url(spoken(self.release, "stomp"), "PORT")

    @property
    def pair_url(self) -> str:
        """The sidecar's URL for Core and, where the release speaks it, AMQP."""
        return self._url("artemis", "PORT")

    @property
    def openwire_url(self) -> str:
        """The sidecar's URL for OpenWire, which it refuses on Artemis."""
        return self._url(spoken(self.release, "openwire"), "PORT")

    def jms_url(self, provider: str) -> str:
        """Return the URL for a JMS client: `core`, `qpid` or `openwire`."""
        scheme = {"core": "tcp", "qpid": "amqp", "openwire": "tcp"}[provider]
        spoken(self.release, "amqp" if provider == "qpid" else provider)
        return f"{scheme}://127.0.0.1:{self.ports['PORT']}"

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports by mark."""
        return self._ports

    @property
    def config_path(self) -> Path:
        """The broker.xml that the running broker has read."""
        return self.folder / "etc" / "broker.xml"

    @property
    def _started_line(self) -> str:
        return "AMQ221007"

    def _prepare(self) -> None:
        etc = self.config_path.parent
        etc.mkdir()
        files = {
            "broker.xml": self._filled(self.broker_xml),
            "login.config": ARTEMIS_LOGIN_CONFIG,
            "artemis-users.properties": f"{self.user} = {self.password}\n",
            "artemis-roles.properties": f"amq = {self.user}\n",
        }
        for name, text in files.items():
            (etc / name).write_text(text, encoding="utf-8")

    def _java(self) -> list[str]:
        tether = maven.compiled("Tether.java")
        if self._is_unpacked:
            class_path = f"{maven.artemis_home()}/lib/artemis-boot.jar:{tether}"
            main = ["org.apache.activemq.artemis.boot.Artemis", "run"]
        else:
            jars = maven.broker_class_path(self.release)
            class_path = f"{maven.launcher(self.release)}:{tether}:{jars}"
            main = ["ArtemisLauncher"]
        opened = ("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED")
        return ["-Dlog4j2.disableJmx=true", *opened, "-cp", class_path, "Tether", *main]

    def _properties(self) -> dict[str, str]:
        etc = self.config_path.parent
        properties = {
            "artemis.instance": f"{self.folder}",
            "artemis.instance.etc": f"{etc}",
            "data.dir": f"{self.data}",
            "java.security.auth.login.config": f"{etc}/login.config",
        }
        if self._is_unpacked:
            properties["artemis.home"] = f"{maven.artemis_home()}"
        return properties
