"""A broker as a process of the demo, which starts it and ends it."""

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

from amqsidecar.demo.applications import WireApplications
from amqsidecar.demo.maven import FetchError, tool
from amqsidecar.demo.waiting import eventually, is_open, wait_or_kill

_START_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 15.0
# Why: a demo wants a quick start, not throughput.
_JVM: Final = (
    *("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.awt.headless=true",
)


class BrokerFailed(Exception):
    """The broker did not start; the text has the end of its log."""


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

    def _is_started(self) -> bool:
        assert self._process is not None  # noqa: S101 - it was started before
        code = self._process.poll()
        if code is not None:
            raise BrokerFailed(f"the broker ended with exit code {code}\n{self._log_tail()}")
        return all(map(is_open, self.ports))

    def _log_tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-30:])


def write_filled(template: str, target: Path, marks: Mapping[str, object]) -> None:
    """Write a file of this package with values in place of its marks."""
    text = files("amqsidecar.demo").joinpath(template).read_text(encoding="utf-8")
    for mark, value in marks.items():
        text = text.replace(mark, str(value))
    target.write_text(text, encoding="utf-8")
