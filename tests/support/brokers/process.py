"""One broker as a process: start, wait until it has started, stop, crash, log."""

import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from amqsidecar.brokers.connection.credentials import fixed_password
from amqsidecar.brokers.connection.endpoint import Endpoint
from support.brokers.broker_xml import PASSWORD, USER
from support.brokers.jvm import Jvm
from support.machine.ports import is_open
from support.machine.processes import freeze, started
from support.tier import at_length
from support.versions import Release
from support.waiting import PATIENCE_S, eventually

# Why: start-up counts in function tests, throughput does not.
QUICK_START = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FULL_SPEED = ("-Xms512m", "-Xmx2g", "-XX:+UseG1GC")

STARTED_BROKERS: "weakref.WeakSet[Broker]" = weakref.WeakSet()

_LOG_SETTINGS = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.follow=true
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{HH:mm:ss.SSS} %-5p [%c{1}] %m%n%throwable{full}
logger.xbean.name=org.apache.xbean
logger.xbean.level=WARN
logger.springframework.name=org.springframework
logger.springframework.level=WARN
logger.audit.name=org.apache.activemq.audit
logger.audit.level=ERROR
"""


class BrokerStartError(RuntimeError):
    """The broker's process ended or stayed silent; the message holds the tail of its log."""


class Broker(ABC):
    """One broker process with its own ports, data and log; a context manager that starts it."""

    starts: ClassVar[int] = 0
    """How many times this process has started a broker."""

    kind: str
    version: str
    release: Release
    user = USER
    password = PASSWORD
    is_launched_as_unpacked: ClassVar[bool] = False
    """Whether a distribution's launcher starts it; otherwise one of ours does, which can start
    another broker after it."""
    traced: Sequence[str] = ()
    """Classes that log at TRACE; to be set before the start."""

    def __init__(
        self, *, jvm_flags: Sequence[str], folder: Path | None, start_timeout_s: float
    ) -> None:
        """Prepare a broker.

        Args:
            jvm_flags: QUICK_START, FULL_SPEED or flags of your own.
            folder: where configuration, data and log are kept; None: a temporary folder that is
                removed with the broker.
            start_timeout_s: maximum seconds until the process reports its start.
        """
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        self._remove_folder = (
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
            if folder is None
            else None
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.log_path = self.folder / "broker.log"
        self.started_in_s = 0.0
        self._jvm_flags = tuple(jvm_flags)
        self._start_timeout_s = start_timeout_s
        self._jvm: Jvm | None = None
        self._is_parkable = False
        self._log_of_removed = ""
        self._lock = threading.RLock()

    @abstractmethod
    def _prepare(self) -> None:
        """Write the configuration; called before the first start."""

    @abstractmethod
    def _java(self) -> list[str]:
        """Return options of the JVM with its class path, and arguments of `Tether`."""

    @abstractmethod
    def _properties(self) -> dict[str, str]:
        """Return system properties of this broker, which its JVM shares with none."""

    @property
    @abstractmethod
    def config_path(self) -> Path:
        """The configuration file that the running broker has read."""

    @property
    @abstractmethod
    def ports(self) -> Mapping[str, int]:
        """The ports by mark."""

    @property
    @abstractmethod
    def _started_line(self) -> str:
        """The log line of a started broker."""

    @property
    @abstractmethod
    def openwire_url(self) -> str:
        """The sidecar's URL for OpenWire; Artemis refuses it."""

    @property
    @abstractmethod
    def stomp_url(self) -> str:
        """The sidecar's URL for STOMP."""

    @property
    @abstractmethod
    def amqp_url(self) -> str:
        """The sidecar's URL for AMQP, on Classic of the stock connector."""

    @abstractmethod
    def jms_url(self, provider: str) -> str:
        """Return the URL for a JMS client: `openwire`, `core` or `qpid`."""

    def start(self) -> Self:
        """Start the broker and return when it has started and listens."""
        with self._lock:
            if self.is_running:
                return self
            if not self.config_path.exists():
                self._prepare()
            settings = _LOG_SETTINGS + "".join(
                f"logger.traced{number}.name={name}\nlogger.traced{number}.level=TRACE\n"
                for number, name in enumerate(self.traced)
            )
            (self.folder / "log4j2.properties").write_text(settings, encoding="utf-8")
            STARTED_BROKERS.add(self)
            Broker.starts += 1
            began = time.monotonic()
            log_offset = self.log_offset()
            properties = {
                **self._properties(),
                "log4j2.configurationFile": f"{self.folder}/log4j2.properties",
            }
            if self._is_unpacked:
                given = (f"-D{name}={value}" for name, value in properties.items())
                self._jvm = Jvm((*self._jvm_flags, *given, *self._java()), self.log_path)
            else:
                self._jvm = Jvm.of((*self._jvm_flags, *self._java()), self.log_path)
                self._jvm.run(f"file:{self.config_path}", self.log_path, properties)
            try:
                eventually(
                    lambda: self._has_started(log_offset),
                    within_s=self._start_timeout_s,
                    what=f"{self} says that it is started",
                )
            except TimeoutError as late:
                self.kill()
                raise BrokerStartError(f"{late}\n{self.log_tail()}") from None
            self.started_in_s = time.monotonic() - began
            # Why not others: flags of their own fit no other broker, or give it a large heap.
            self._is_parkable = self._jvm_flags == QUICK_START and not self._is_unpacked
        return self

    def stop(self, *, within_s: float = 30.0) -> None:
        """Shut the broker down in order; kill it when it takes too long."""
        with self._lock:
            if self._jvm is not None and not self._park(self._jvm):
                self._jvm.stop(within_s)
            self._jvm = None

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash does."""
        with self._lock:
            if self._jvm is not None:
                self._jvm.kill()
                self._jvm = None

    def pause(self) -> None:
        """Freeze the process: it keeps its connections and answers nothing."""
        freeze(self.pid)

    def resume(self) -> None:
        """Resume a paused process."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> Self:
        """Stop the broker when it runs, and start it on the same ports and data."""
        self.stop()
        return self.start()

    def start_anew(self) -> Self:
        """Start the broker without what it holds, on the same ports."""
        self._end()
        shutil.rmtree(self.data, ignore_errors=True)
        return self.start()

    def keep_folder(self) -> None:
        """Leave the temporary folder behind, for a person to look at."""
        if self._remove_folder is not None:
            self._remove_folder.detach()
            self._remove_folder = None

    def close(self) -> None:
        """End the broker, and remove its folder if that is a temporary one."""
        if self._remove_folder is None:
            self.stop()
        else:
            self._end()
            self._log_of_removed = self.log_tail(lines=1_000)
            self._remove_folder()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._jvm is not None and self._jvm.is_running

    @property
    def pid(self) -> int:
        """The id of the broker's process, which runs no other broker after it has been asked."""
        if self._jvm is None or not self._jvm.is_running:
            raise RuntimeError(f"{self} is not running: call start() first")
        self._is_parkable = False
        return self._jvm.process.pid

    def log_offset(self) -> int:
        """Return the length of the log now, to be given to `log_tail` later."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_tail(self, lines: int = 60, since: int = 0) -> str:
        """Return the last lines of the log, of those written after the offset `since`."""
        if not self.log_path.exists():
            return "\n".join(self._log_of_removed.splitlines()[-lines:])
        with self.log_path.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return started(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"{self.kind} {self.version} at {self.folder}"

    def endpoint(self, mark: str, **options: Any) -> Endpoint:
        """Return a connector as links take it, by its mark; our user and patience by default."""
        # Why so idle: no sign of life ends a wait that misses what has arrived.
        known = {"user": self.user, "connect_timeout_s": PATIENCE_S, "idle_timeout_s": 3_600}
        credentials = fixed_password(options.pop("password", self.password))
        return Endpoint(
            "127.0.0.1", self.ports[mark], credentials=credentials, **{**known, **options}
        )

    def _url(self, scheme: str, mark: str) -> str:
        return f"{scheme}://{self.user}:{self.password}@127.0.0.1:{self.ports[mark]}"

    def _filled(self, text: str) -> str:
        for mark, port in self.ports.items():
            text = text.replace(f"@{mark}@", str(port))
        # Why not in function tests: Artemis answers what it has written, which kill -9 leaves.
        syncs = at_length(True, otherwise=self._jvm_flags != QUICK_START)
        return text.replace("@DATA@", str(self.data)).replace("@SYNC@", str(syncs).lower())

    @property
    def _is_unpacked(self) -> bool:
        return self.is_launched_as_unpacked and not self.release.libraries

    def _end(self) -> None:
        """End the broker, whose data is wanted no more."""
        with self._lock:
            if self._jvm is not None and self._park(self._jvm):
                self._jvm = None
            self.kill()

    def _park(self, jvm: Jvm) -> bool:
        """Shut the broker down and leave its JVM to another one; return whether that worked."""
        return self._is_parkable and jvm.is_running and jvm.park(self.log_path)

    def _has_started(self, log_offset: int) -> bool:
        assert self._jvm is not None
        if not self._jvm.is_running:
            code = self._jvm.process.returncode
            self.kill()
            raise BrokerStartError(f"{self}: exit code {code}\n{self.log_tail()}")
        if self._started_line not in self.log_tail(lines=10_000, since=log_offset):
            return False
        text = self.config_path.read_text(encoding="utf-8")
        return all(is_open(port) for port in self.ports.values() if f":{port}" in text)
