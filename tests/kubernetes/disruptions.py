"""What ends a pod, its container, or the processes that look after them."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from kubernetes import broker_pods
from kubernetes.namespace import NAME, Namespace, restarts
from support.deployment.cluster import NODE
from support.waiting import eventually

BACK_WITHIN_S = 120.0
STATEFUL_SET = f"statefulset/{NAME}"
CLAIM = f"amqsidecar-data-{NAME}-0"


def delete(namespace: Namespace, pod: str) -> None:
    """Delete the pod, and wait until it has come to its end."""
    namespace.kubectl("delete", "pod", pod)


def delete_by_force(namespace: Namespace, pod: str) -> None:
    """Forget the pod: its heir may start while its containers are still there."""
    namespace.kubectl("delete", "pod", pod, "--force", "--grace-period=0")


def kill_container(namespace: Namespace, pod: str) -> None:
    """Kill the process, and wait until the kubelet has started another."""
    before = restarts(namespace.get("pod", pod))
    os.kill(namespace.cluster.container_pid(namespace.name, pod, "amqsidecar"), signal.SIGKILL)
    eventually(
        lambda: restarts(namespace.get("pod", pod)) > before,
        within_s=BACK_WITHIN_S,
        every_s=0.3,
        what="the kubelet starts the container again",
    )


def kill_kubelet(namespace: Namespace, _: str) -> None:
    """Kill the kubelet, and start it again."""
    namespace.cluster.restart("kubelet")


def kill_containerd(namespace: Namespace, _: str) -> None:
    """Kill the runtime of containers, and start it again."""
    namespace.cluster.restart("containerd")


def kill_the_node(namespace: Namespace, pod: str) -> None:
    """Kill the container while no controller would notice."""
    pid = namespace.cluster.container_pid(namespace.name, pod, "amqsidecar")
    namespace.cluster.kill("kubelet")
    namespace.cluster.kill("containerd")
    os.kill(pid, signal.SIGKILL)
    namespace.cluster.restart("containerd")
    namespace.cluster.restart("kubelet")


DISRUPTIONS: tuple[Callable[[Namespace, str], None], ...] = (
    delete,
    delete_by_force,
    kill_container,
    kill_kubelet,
    kill_containerd,
    kill_the_node,
)


def scale(namespace: Namespace, workload: str, count: int) -> None:
    """Scale sidecars, and wait until so many are there and ready."""
    namespace.kubectl("scale", workload, f"--replicas={count}")
    if count:
        namespace.ready_pods(count)
    else:
        eventually(
            lambda: not namespace.pods(with_ending=True), every_s=0.3, what="no sidecar is there"
        )


def scale_through_0(namespace: Namespace) -> None:
    """Have no sidecar for a while, and then one again."""
    scale(namespace, STATEFUL_SET, 0)
    scale(namespace, STATEFUL_SET, 1)


def move_the_volume(namespace: Namespace) -> None:
    """Copy the schedule to another volume, and give that to a claim of the same name."""
    scale(namespace, STATEFUL_SET, 0)
    claim = namespace.get("persistentvolumeclaim", CLAIM)
    volume = namespace.cluster.get("persistentvolume", claim["spec"]["volumeName"])
    source = Path(volume["spec"]["local"]["path"])
    target = source.with_name(f"{source.name}-moved")
    subprocess.run(["cp", "--archive", str(source), str(target)], check=True)
    namespace.cluster.offer(target, target.name)
    namespace.kubectl("delete", "persistentvolumeclaim", CLAIM)
    spec = {
        **{key: claim["spec"][key] for key in ("accessModes", "resources")},
        "storageClassName": target.name,
    }
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": spec,
        }
    )
    scale(namespace, STATEFUL_SET, 1)


def lose_the_broker(namespace: Namespace) -> None:
    """Forget the broker's pod: its heir starts while its container may still be there."""
    broker_pods.restart(namespace, *broker_pods.BY_FORCE)


def drain_the_node(namespace: Namespace) -> None:
    """Evict all pods, broker, sidecars and listeners, and let them come back."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
    namespace.cluster.kubectl("drain", NODE, *options)
    namespace.cluster.kubectl("uncordon", NODE)
    broker_pods.wait_ready(namespace)
