"""Apache Artemis as a process of the demo, out of an unpacked distribution."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.demo.broker_process import BrokerProcess, write_filled
from amqsidecar.demo.endpoints import endpoint_at
from amqsidecar.demo.waiting import free_ports

JAR: Final = "lib/artemis-boot.jar"
"""A file that each distribution has."""


class ArtemisBroker(BrokerProcess):
    """One Artemis; see `BrokerProcess`."""

    def __init__(self, home: Path, folder: Path) -> None:
        """Prepare; see `BrokerProcess`."""
        super().__init__(home, folder, JAR, "Apache Artemis")
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
