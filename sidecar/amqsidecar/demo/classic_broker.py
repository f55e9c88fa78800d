"""ActiveMQ Classic as a process of the demo, out of an unpacked distribution."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from amqsidecar.demo.applications import StompAddress
from amqsidecar.demo.maven import FetchError, tool
from amqsidecar.demo.waiting import eventually, free_ports, is_open

_START_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 15.0
# Why: a demo wants a quick start, not throughput.
_JVM: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BrokerFailed(Exception):
    """The broker did not start; the text has the end of its log."""


class ClassicBroker:
    """One Classic with its own ports and data; a context manager that starts and ends it.

    It ends with this process, however this process ends.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        """Prepare.

        Args:
            home: the unpacked distribution; nothing is written there.
            folder: gets configuration, data and log.

        Raises:
            FetchError: there is no ActiveMQ Classic in `home`.
        """
        self._jar = home / "bin" / "activemq.jar"
        if not self._jar.is_file():
            raise FetchError(
                f"{home} is no unpacked ActiveMQ Classic: bin/activemq.jar is missing there; give "
                "the folder that the distribution's zip unpacks to"
            )
        self._home = home
        self._folder = folder
        self._log = folder / "broker.log"
        self._openwire, self._stomp = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The sidecar's URL of the OpenWire connector."""
        return f"openwire://127.0.0.1:{self._openwire}"

    @property
    def stomp(self) -> StompAddress:
        """Where it listens for STOMP."""
        return StompAddress("127.0.0.1", self._stomp)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = files("amqsidecar.demo").joinpath("broker.activemq.xml").read_text(encoding="utf-8")
        config = self._folder / "activemq.xml"
        marks = {
            "@OPENWIRE_PORT@": str(self._openwire),
            "@STOMP_PORT@": str(self._stomp),
            "@DATA@": str(self._folder / "data"),
        }
        for mark, value in marks.items():
            text = text.replace(mark, value)
        config.write_text(text, encoding="utf-8")
        java = [
            tool("java"),
            *_JVM,
            "-Djava.awt.headless=true",
            f"-Dactivemq.home={self._home}",
            f"-Dactivemq.base={self._home}",
            f"-Dactivemq.conf={self._folder}",
            f"-Dactivemq.data={self._folder / 'data'}",
            "-jar",
            str(self._jar),
            "start",
            f"xbean:{config.as_uri()}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "amqsidecar.demo.tether", *java],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._is_started, within_s=_START_WITHIN_S, what="the broker listens")
        except TimeoutError as error:
            self.close()
            raise BrokerFailed(f"{error}\n{self._log_tail()}") from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the broker."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # noqa: S101 - it was started so
        process.stdin.close()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _is_started(self) -> bool:
        assert self._process is not None  # noqa: S101 - it was started before
        code = self._process.poll()
        if code is not None:
            raise BrokerFailed(f"the broker ended with exit code {code}\n{self._log_tail()}")
        return is_open(self._openwire) and is_open(self._stomp)

    def _log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-30:])
