"""The installed command as a process of the demo."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from amqsidecar.demo.waiting import free_ports, wait_or_kill, wait_until_ready

_COMMAND: Final = (sys.executable, "-m", "amqsidecar")
# Why not by the broker's settings: only a line that is written for it discards on either broker.
_DISCARDING: Final = {"rules": {"rules": [{"queue": "demo.noise", "action": "discard"}]}}
_STOP_WITHIN_S: Final = 20.0


class Sidecar:
    """One `amqsidecar run` with its configuration, store and log in a folder."""

    def __init__(
        self,
        folder: Path,
        instance: str,
        broker: Mapping[str, object],
        intake_queue: str,
        policy: Path,
    ) -> None:
        """Write the configuration; nothing runs yet."""
        self.store = folder / "schedule.db"
        self.config = folder / "amqsidecar.yaml"
        self._log = folder / "sidecar.log"
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        self.console = f"http://{listen}/"
        options = {
            "broker": broker,
            "store": {"url": f"sqlite:///{self.store}", "instance": instance},
            "policy": {"source": str(policy), "plugins": [_DISCARDING]},
            "intake": {"queues": [intake_queue]},
            "http": {"listen": listen},
            "cycle": {"max_wait_ms": 100},
        }
        # JSON is YAML.
        self.config.write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        self.config.chmod(0o600)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the process, wait until it reads dead letters; return its process id.

        Raises:
            ProcessFailed: it ended, or did not get ready.
        """
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*_COMMAND, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._process = process
        wait_until_ready(process, "the sidecar", self._is_ready, self._log)
        return process.pid

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.console}readyz", timeout=30):  # noqa: S310 - ours
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None  # noqa: S101 - only what was started is killed
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it with SIGTERM, where it runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        wait_or_kill(self._process, _STOP_WITHIN_S)

    def told(self, *arguments: str) -> str:
        """Return the output of another command with the same configuration."""
        command, *rest = arguments
        done = subprocess.run(
            [*_COMMAND, command, "--config", str(self.config), *rest],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr
