"""Containers by Podman, restricted as the chart restricts its pods."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.deployment.image import run, storage
from support.machine.ports import free_port
from support.machine.processes import run_program
from support.waiting import eventually

USER_ID = 10001
MEMORY = "256m"
# Why: crun, the default, wants another version of cgroups than some machines have, and Podman's own
# limits are higher than what every machine's root may set.
_PODMAN = ("--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_RESTRICTED = (
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:size=64m"),
    *("--cap-drop", "all", "--security-opt", "no-new-privileges", "--memory", MEMORY),
)


def podman(*arguments: str) -> list[str]:
    """Return a command line for Podman."""
    return ["podman", *storage(), *_PODMAN, *arguments]


def run_container(
    image: str, *command: str, mounts: Mapping[Path, str] | None = None, entrypoint: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a container until it ends, with any exit code.

    Args:
        image: name.
        command: arguments after the entry point.
        mounts: where folders of this machine are in the container.
        entrypoint: instead of that of the image.
    """
    other = ["--entrypoint", entrypoint] if entrypoint else []
    return run_program(
        podman("run", "--rm", *_options(mounts or {}), *other, image, *command), timeout=60
    )


def _options(mounts: Mapping[Path, str]) -> list[str]:
    volumes = [f"{folder}:{place}" for folder, place in mounts.items()]
    return [
        *_RESTRICTED,
        *_LIMITS,
        # Why: Podman asks by a timer of systemd, which need not be there.
        "--no-healthcheck",
        # Why: a network of Podman's own would change the machine's firewall.
        *("--network", "host"),
        *(part for volume in volumes for part in ("--volume", volume)),
    ]


class SidecarContainer:
    """One container of the sidecar, that serves HTTP on a loopback port; a context manager."""

    def __init__(
        self, image: str, *, config: Path, data: Path, command: Sequence[str] = (), url: str = ""
    ) -> None:
        """Prepare it.

        Args:
            image: name.
            config: folder with `amqsidecar.yaml`, or what the command names.
            data: folder for the schedule; the container's user gets it.
            command: instead of that of the image.
            url: of the broker, instead of that of the configuration.
        """
        self.port = free_port()
        self._environ = {"AMQSIDECAR_HTTP__LISTEN": f"127.0.0.1:{self.port}"}
        if url:
            self._environ["AMQSIDECAR_BROKER__URL"] = url
        self._image = image
        self._command = command
        self._mounts = {config: "/etc/amqsidecar/config", data: "/var/lib/amqsidecar"}
        self._id = ""
        os.chown(data, USER_ID, USER_ID)

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        environ = [f"--env={name}={value}" for name, value in self._environ.items()]
        options = [*_options(self._mounts), *environ]
        self._id = run(podman("run", "--detach", *options, self._image, *self._command)).strip()

    def start(self) -> float:
        """Start it; return after how many seconds it takes and sends messages."""
        began = time.monotonic()
        self.begin()
        try:
            eventually(lambda: self.get("/readyz")[0] == 200, what="the container is ready")
        except TimeoutError as error:
            raise AssertionError(f"{error}; its log:\n{self.log()}") from error
        return time.monotonic() - began

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an HTTP request; status 0 = nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one more command in it."""
        return run_program(podman("exec", self._id, *command), timeout=60)

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL half a minute later; return the exit code."""
        run(podman("stop", "--time", "30", self._id))
        return int(run(podman("wait", self._id)))

    def processor_s(self) -> float:
        """Return the processor time that it has taken."""
        pid = run(podman("inspect", "--format", "{{.State.Pid}}", self._id)).strip()
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """Return what it wrote."""
        done = run_program(podman("logs", self._id), timeout=60)
        return done.stdout + done.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._id:
            run(podman("rm", "--force", "--time", "0", self._id))
