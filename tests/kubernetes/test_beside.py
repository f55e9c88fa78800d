"""Shape `beside`: one sidecar with SQLite on a volume, beside a broker in a pod."""

from collections.abc import Iterator

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import KINDS
from kubernetes.disruptions import DISRUPTIONS
from kubernetes.load import Account, Load
from kubernetes.namespace import RELEASE, Namespace, restarts
from kubernetes.values import values
from support.deployment.cluster import KubectlError

ROUNDS = 2


@pytest.fixture(params=KINDS)
def load(request: pytest.FixtureRequest, namespace: Namespace) -> Iterator[Load]:
    """A broker, a sidecar beside it, and applications."""
    kind = KINDS[request.param]
    peer = broker_pods.start(namespace, kind)
    namespace.install(values(kind))
    with Load(peer, kind) as load:
        yield load


def test_poison_messages_recover(load: Load, namespace: Namespace, account: Account) -> None:
    """The release installs under "restricted", `helm test` passes, and what dies comes back."""
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        namespace.kubectl("run", "lax", "--image=localhost/pause:1")
    said = namespace.helm("test", RELEASE, "--timeout=2m", "--logs")
    assert "Phase:          Succeeded" in said
    load.send_hopeless()
    load.go_on()
    account(load.settle(namespace))
    assert restarts(namespace.get("pod", namespace.pod())) == 0


def test_pods_and_processes_are_killed_under_load(
    load: Load, namespace: Namespace, account: Account
) -> None:
    """Whatever ends a pod, its container or the node's processes: none is lost, none twice."""
    load.send_hopeless()
    load.go_on()
    for number in range(ROUNDS):
        for disrupt in DISRUPTIONS:
            pod = namespace.pod()
            disrupt(namespace, pod)
            namespace.ready_pods()
            load.go_on()
            print(f"round {number}: {disrupt.__name__}")
        load.send_hopeless()
    account(load.settle(namespace))
