"""Shape `inPod`: a native sidecar container in the broker's own pod."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS, NAME, POD
from kubernetes.disruptions import kill_container
from kubernetes.load import Account, Load
from kubernetes.namespace import Namespace
from kubernetes.values import values
from support.deployment.helm import CHART, Manifest

KIND = ARTEMIS
BROKER_CHART = Path(__file__).parents[1] / "helm" / "broker"


def chart(folder: Path) -> Path:
    """Return the broker's chart, with that of the sidecar as its dependency."""
    copytree(BROKER_CHART, folder / "broker")
    copytree(CHART, folder / "broker" / "charts" / "amqsidecar")
    return folder / "broker"


def broker_values() -> Manifest:
    """Return values of the broker's chart; the sidecar finds the broker by loopback."""
    sidecar = values(KIND)
    sidecar["config"]["broker"]["url"] = KIND.url.replace(f"@{NAME}:", "@localhost:")
    return {
        "amqsidecar": sidecar | {"shape": "inPod"},
        "securityContext": broker_pods.RESTRICTED_POD,
        "container": broker_pods.container(KIND),
        "volumes": broker_pods.volumes(),
        "claims": [broker_pods.claim()],
    }


@pytest.fixture
def load(namespace: Namespace, tmp_path: Path) -> Iterator[Load]:
    """A broker with a sidecar in its pod, and applications."""
    broker_pods.secrets(namespace)
    namespace.apply(broker_pods.config_map(KIND), broker_pods.service(KIND))
    namespace.helm("install", NAME, str(chart(tmp_path)), "--wait", values=broker_values())
    with Load(broker_pods.peer(namespace, KIND), KIND) as load:
        yield load


def test_the_sidecar_goes_and_comes_with_its_broker(
    load: Load, namespace: Namespace, account: Account
) -> None:
    """The pod is deleted, and the sidecar alone is killed: none is lost, none twice."""
    load.send_hopeless()
    load.go_on()

    kill_container(namespace, POD)
    load.go_on()

    for how in ((), broker_pods.BY_FORCE):
        broker_pods.restart(namespace, *how)
        load.go_on()
    account(load.settle(namespace, POD))
