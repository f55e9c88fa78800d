"""ActiveMQ Classic as a process of the demo, out of an unpacked distribution."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqsidecar.demo.broker_process import BrokerProcess, write_filled
from amqsidecar.demo.stomp_applications import StompAddress
from amqsidecar.demo.waiting import free_ports

JAR: Final = "bin/activemq.jar"
"""A file that each distribution has."""


class ClassicBroker(BrokerProcess):
    """One Classic; see `BrokerProcess`."""

    def __init__(self, home: Path, folder: Path) -> None:
        """Prepare; see `BrokerProcess`."""
        super().__init__(home, folder, JAR, "ActiveMQ Classic")
        self._openwire, self._stomp = free_ports(2)

    @property
    def url(self) -> str:
        """The sidecar's URL of the OpenWire connector."""
        return f"openwire://127.0.0.1:{self._openwire}"

    @property
    def stomp(self) -> StompAddress:
        """Where it listens for STOMP."""
        return StompAddress("127.0.0.1", self._stomp)

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
