"""The Pod Security Standard "restricted", as far as a pod's specification can break it."""

from collections.abc import Iterator
from typing import Any

Spec = dict[str, Any]

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
    "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def violations(pod: Spec) -> Iterator[str]:
    """Yield what "restricted" forbids, or asks for, and this pod does not keep to."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield name
    for volume in pod.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            yield f"volume {volume['name']}: {kinds}"
    shared = pod.get("securityContext", {})
    if shared.get("sysctls"):
        yield "sysctls"
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        for what in _container_violations(container, shared):
            yield f"container {container['name']}: {what}"


def _container_violations(container: Spec, shared: Spec) -> Iterator[str]:
    own = container.get("securityContext", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if own.get("runAsNonRoot", shared.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if own.get("runAsUser", shared.get("runAsUser")) == 0:
        yield "runs as root"
    seccomp = own.get("seccompProfile", shared.get("seccompProfile", {}))
    if seccomp.get("type") not in ("RuntimeDefault", "Localhost"):
        yield "no seccomp profile"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "hostPort"
