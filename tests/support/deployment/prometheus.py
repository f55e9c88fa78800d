"""A real Prometheus and its promtool: from PATH, or fetched once per machine as Debian's package.

`PYTHONPATH=tests python -m support.deployment.prometheus` fetches them. The package is unpacked
into the cache of `support/maven.py`; nothing is installed, so no privilege is needed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from support.deployment.helm import go
from support.machine.ports import free_port
from support.maven import FetchError, cached, run_tool
from support.waiting import eventually

PACKAGE = "prometheus"
MODULE_OF_3 = "0.316.0"
"""Of Go: Prometheus 3.16. Its ranges are open at the left."""


def program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`."""
    found = shutil.which(name)
    return Path(found) if found else cached("prometheus", _unpack) / "usr" / "bin" / name


def promtool_3() -> Path:
    """Return the path of the promtool of Prometheus 3, built once per machine without clouds."""

    def build(folder: Path) -> None:
        go(
            "install", "-tags", "remove_all_sd", "-trimpath", "-ldflags", "-s -w",
            f"github.com/prometheus/prometheus/cmd/promtool@v{MODULE_OF_3}",
            environment={"CGO_ENABLED": "0", "GOBIN": str(folder)},
        )  # fmt: skip

    return cached(f"promtool-{MODULE_OF_3}", build) / "promtool"


def _unpack(folder: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FetchError(
                f"prometheus and promtool are not on PATH, and {tool} isn't, either: install them"
            )
    with tempfile.TemporaryDirectory(dir=folder) as download:
        try:
            _apt_get("download", PACKAGE, folder=download)
        except FetchError:
            # Why: a machine that has installed nothing yet may have no list of packages.
            _apt_get("update", folder=download)
            _apt_get("download", PACKAGE, folder=download)
        [archive] = Path(download).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(folder)], check=True)


def _apt_get(*arguments: str, folder: str) -> None:
    run_tool(["apt-get", "-q", *arguments], folder=Path(folder))


class Prometheus:
    """One Prometheus on a loopback port that scrapes once a second; a context manager."""

    def __init__(
        self, folder: Path, targets: str | Mapping[str, Sequence[str]], rules: Path
    ) -> None:
        """Prepare one.

        Args:
            folder: for its configuration and data.
            targets: host and port of what it scrapes, by job; one alone has the job "amqsidecar".
            rules: the file with its rules, evaluated once a second.
        """
        self._folder = folder
        self._url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        jobs = {"amqsidecar": [targets]} if isinstance(targets, str) else targets
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(found)}]}
                for job, found in jobs.items()
            ],
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")

    def __enter__(self) -> Self:
        address = self._url.removeprefix("http://")
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(program("prometheus")),
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._is_ready, what="Prometheus is ready")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples that an expression gives now.

        Raises:
            AssertionError: Prometheus refuses the expression.
        """
        answer = self._get("/api/v1/query", query=expression)
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with their health and their last error."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def processor_s(self) -> float:
        """Return the processor time that it has used, in seconds."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metadata(self) -> dict[str, list[dict[str, str]]]:
        """Return type and help of each metric, as it was scraped."""
        found: dict[str, list[dict[str, str]]] = self._get("/api/v1/metadata")["data"]
        return found

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **arguments: str) -> dict[str, Any]:
        url = f"{self._url}{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
        found: dict[str, Any] = json.loads(text)
        return found


if __name__ == "__main__":
    print(program("promtool"), file=sys.stderr)
