"""One namespace of the cluster, which enforces the Pod Security Standard "restricted"."""

import json
import re
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support.deployment.cluster import Cluster, KubectlError, Manifest
from support.deployment.helm import CHART, helm
from support.waiting import eventually

RELEASE = "redelivery"
NAME = "redelivery-amqsidecar"
"""Of all that the chart makes."""
CONFIG = "/etc/amqsidecar/config/amqsidecar.yaml"
HTTP_PORT = 9464
READY_WITHIN_S = 120.0
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
API = ("kubernetes.default.svc", 443)
"""Which no sidecar needs, and no policy of the chart permits."""


class Namespace:
    """A namespace with a release of the chart; a context manager that makes and removes it."""

    def __init__(self, cluster: Cluster, name: str, release: str = RELEASE) -> None:
        self.cluster = cluster
        self.name = name
        self._sidecars = f"app.kubernetes.io/name=amqsidecar,app.kubernetes.io/instance={release}"

    def __enter__(self) -> Self:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.name, "labels": labels}
        self.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
        return self

    def __exit__(self, *_: object) -> None:
        self.kubectl("delete", "statefulsets,deployments,pods", "--all", "--grace-period=1")
        self.cluster.kubectl("delete", "namespace", self.name)

    # ------------------------------------------------------------------ kubectl and helm

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Return what `kubectl` prints, asked about this namespace."""
        return self.cluster.kubectl(f"--namespace={self.name}", *arguments, given=given)

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get` finds in this namespace, as JSON."""
        return self.cluster.get(f"--namespace={self.name}", *arguments)

    def apply(self, *manifests: Manifest) -> None:
        """Make or change objects in this namespace."""
        self.cluster.apply(manifests, self.name)

    def secret(self, name: str, **texts: str) -> None:
        """Make or change a Secret."""
        metadata = {"name": name}
        self.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts}
        )

    def secret_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Make or change a Secret of files, which may hold any bytes."""
        texts = {key: b64encode(path.read_bytes()).decode() for key, path in files.items()}
        self.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": texts}
        )

    def objects(self) -> set[str]:
        """Return all that is in this namespace, as kind and name, but for events."""
        kinds = self.cluster.kubectl(
            "api-resources", "--namespaced", "--verbs=list", "--output=name"
        ).split()
        chosen = [one for one in kinds if not one.startswith("events")]
        return set(self.kubectl("get", ",".join(chosen), "--output=name").split())

    def config_map(self, name: str, **texts: str) -> None:
        """Make or change a ConfigMap; `__` in a key stands for a dot."""
        data = {key.replace("__", "."): text for key, text in texts.items()}
        self.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        )

    def install(self, values: Manifest, *, chart: Path = CHART, timeout: str = "3m") -> None:
        """Install the chart, or upgrade it to other values, and wait until its pods are ready."""
        wait = ("--wait", f"--timeout={timeout}")
        self.helm("upgrade", "--install", RELEASE, str(chart), *wait, values=values)

    def helm(self, *arguments: str, values: Manifest | None = None) -> str:
        """Return what `helm` prints, asked about this namespace."""
        return helm(*arguments, "--namespace", self.name, values=values)

    # ------------------------------------------------------------------ the sidecars

    def pods(self, *, with_ending: bool = False) -> list[Manifest]:
        """Return the sidecars' pods, as the API server has them.

        Args:
            with_ending: those on their way out, too.
        """
        found = self.get("pods", f"--selector={self._sidecars}")["items"]
        return [one for one in found if with_ending or "deletionTimestamp" not in one["metadata"]]

    def ready_pods(self, count: int = 1) -> list[str]:
        """Wait until exactly this many sidecars are there and ready; return their names."""

        def ready() -> list[str]:
            pods = self.pods()
            names = [one["metadata"]["name"] for one in pods if is_ready(one)]
            return names if len(pods) == len(names) == count else []

        return eventually(
            ready, within_s=READY_WITHIN_S, every_s=0.3, what=f"{count} sidecars are ready"
        )

    def pod(self) -> str:
        """Return the name of the only sidecar."""
        [name] = self.ready_pods()
        return name

    def exec(self, pod: str, *command: str) -> str:
        """Return what a command prints in the sidecar's container."""
        return self.kubectl("exec", pod, "--container=amqsidecar", "--", *command)

    def reaches(self, pod: str, container: str, host: str, port: int) -> bool:
        """Say whether a container with Python can connect."""
        command = ("exec", pod, f"--container={container}", "--", "python3", "-c", CONNECT)
        try:
            self.kubectl(*command, host, str(port))
        except KubectlError as error:
            if not re.search("TimeoutError|ConnectionRefusedError", str(error)):
                raise
            return False
        return True

    def status(self, pod: str) -> Any:
        """Return what `amqsidecar status` says."""
        said = self.exec(pod, "amqsidecar", "status", "--config", CONFIG, "--output", "json")
        return json.loads(said)

    def unsent(self, pod: str) -> int:
        """Return how many messages of a pod's schedule are not exhausted."""
        status = self.status(pod)
        return int(status["total"]) - sum(int(one["count"]) for one in status["exhausted"])

    def readyz(self, pod: str) -> tuple[int, str]:
        """Return status and text of a pod's /readyz; 0: nothing answers."""
        return self._http(pod, "/readyz")

    def metric(self, pod: str, sample: str) -> float:
        """Return one sample of a pod's metrics, by name and labels as they stand there; else 0."""
        lines = [line.rpartition(" ") for line in self._http(pod, "/metrics")[1].splitlines()]
        return sum(float(value) for name, _, value in lines if name == sample)

    def logs(self) -> str:
        """Return what the sidecars' containers have logged, and those before them."""
        names = [one["metadata"]["name"] for one in self.pods()]
        return "".join(
            self._tried("logs", name, f"--previous={previous}")
            for name in names
            for previous in ("true", "false")
        )

    def story(self) -> str:
        """Return what a person would ask for after a failure: pods, events, the ends of logs."""
        told = [self._tried("get", "pods", "--output=wide")]
        told.append(self._tried("get", "events", "--sort-by=.lastTimestamp")[-6000:])
        for name in self._tried("get", "pods", "--output=name").split():
            for when in ("--previous=false", "--previous=true"):
                log = self._tried("logs", name, "--all-containers", "--tail=40", when)
                told.append(f"{name} {when}:\n{log[-6000:]}")
        told.append(self.cluster.log_tails())
        return "\n".join(told)

    def api(self, pod: str, path: str, token: str) -> int:
        """Return the status of an answer of a pod's API; an empty token: as a stranger."""
        return self._http(pod, path, {"Authorization": f"Bearer {token}"} if token else {})[0]

    def uid(self) -> str:
        """Return the id of the only sidecar's pod, which another one would not have."""
        return str(self.get("pod", self.pod())["metadata"]["uid"])

    def _http(
        self, pod: str, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        address = self.get("pod", pod)["status"].get("podIP", "")
        url = f"http://{address}:{HTTP_PORT}{path}"
        try:
            request = urllib.request.Request(url, headers=dict(headers or {}))
            with urllib.request.urlopen(request, timeout=5) as said:
                return said.status, said.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def _tried(self, *arguments: str) -> str:
        try:
            return self.kubectl(*arguments)
        except KubectlError as error:
            return str(error)


def other_release(namespace: Namespace, release: str) -> Namespace:
    """Return the same namespace with the sidecars of another release of the chart."""
    return Namespace(namespace.cluster, namespace.name, release)


def is_ready(pod: Manifest) -> bool:
    """Say whether a pod has the condition Ready."""
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def restarts(pod: Manifest) -> int:
    """Return how often containers of a pod were started again."""
    statuses = pod["status"]
    every = statuses.get("initContainerStatuses", []) + statuses.get("containerStatuses", [])
    return sum(one["restartCount"] for one in every)
