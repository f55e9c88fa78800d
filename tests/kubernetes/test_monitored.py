"""Prometheus by its operator, with what the chart makes for it, where network policies hold."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import CORE, POD, RESTRICTED_POD
from kubernetes.images import PROMETHEUS, RELOADER
from kubernetes.load import Account, Load
from kubernetes.namespace import API, HTTP_PORT, NAME, Namespace
from kubernetes.values import values
from support.deployment.cluster import Cluster, Manifest
from support.deployment.helm import OPERATOR, module_folder
from support.waiting import eventually

ACCOUNT = "prometheus"
ALERT = "AmqsidecarExhausted"
SERVER = "prometheus-cluster-0"


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> None:
    """The operator, with the definitions of its objects."""
    folder = module_folder(OPERATOR) / "example" / "prometheus-operator-crd"
    # Why on the server: their texts are too long for an annotation.
    cluster.kubectl("apply", "--server-side", "-f", str(folder))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cluster.start_beside("operator", f"--prometheus-config-reloader={RELOADER}")


def server(namespace: Namespace) -> list[Manifest]:
    """Return a Prometheus that takes every monitor and rule of the namespace."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": ACCOUNT},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }
    api, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": api,
        "kind": "RoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace.name}],
    }
    wanted = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "cluster"},
        "spec": {
            "image": PROMETHEUS,
            "imagePullPolicy": "Never",
            "version": "v3.16.0",
            "serviceAccountName": ACCOUNT,
            "securityContext": RESTRICTED_POD,
            "podMonitorSelector": {},
            "ruleSelector": {},
            "evaluationInterval": "5s",
        },
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    return [account, role, binding, wanted]


@pytest.fixture
def load(namespace: Namespace, operator: None) -> Iterator[Load]:
    """A broker, a sidecar and a listener, a Prometheus that alone may ask them, applications."""
    peer = broker_pods.start(namespace, CORE)
    namespace.apply(*server(namespace))
    options = values(CORE, listener={"acceptor": f"stomp://broker:{CORE.port}"})
    marks = {"app.kubernetes.io/name": "prometheus"}
    namespace.install(
        options
        | {
            "listener": {"enabled": True, "replicas": 1},
            "networkPolicy": {"from": [{"podSelector": {"matchLabels": marks}}]},
            "monitoring": {"podMonitor": True, "rules": True, "interval": "2s"},
        }
    )
    with Load(peer, CORE) as load:
        yield load


def ask(namespace: Namespace, path: str) -> Any:
    """Return what Prometheus answers."""
    address = namespace.get("pod", SERVER)["status"]["podIP"]
    with urllib.request.urlopen(f"http://{address}:9090/api/v1/{path}", timeout=5) as answer:
        return json.loads(answer.read())["data"]


def test_an_alert_fires_and_nobody_else_reaches_the_sidecar(
    load: Load, namespace: Namespace, account: Account
) -> None:
    namespace.kubectl("wait", "--for=create", f"pod/{SERVER}", "--timeout=60s")
    namespace.kubectl("wait", "--for=condition=Ready", f"pod/{SERVER}", "--timeout=120s")

    def jobs() -> set[str]:
        targets = ask(namespace, "targets?state=active")["activeTargets"]
        return {one["labels"]["job"] for one in targets if one["health"] == "up"}

    wanted = {f"{namespace.name}/{name}" for name in (NAME, f"{NAME}-listener")}
    eventually(lambda: jobs() == wanted, every_s=1, what="both are scraped", last=lambda _: jobs())
    load.go_on()
    assert not [one for one in alerts(namespace) if one["labels"]["alertname"] == ALERT]
    load.send_hopeless()
    [alert] = eventually(
        lambda: [one for one in alerts(namespace) if one["labels"]["alertname"] == ALERT],
        within_s=60,
        every_s=1,
        what=f"{ALERT} fires",
    )
    assert alert["labels"]["destination"] == f"queue://{load.queue}"
    rules = [rule for group in ask(namespace, "rules")["groups"] for rule in group["rules"]]
    # Why not all ok: a group is evaluated each quarter of an hour only.
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}

    pod = namespace.pod()
    address = namespace.get("pod", pod)["status"]["podIP"]
    assert not namespace.reaches(POD, broker_pods.NAME, address, HTTP_PORT)
    assert not namespace.reaches(pod, "amqsidecar", *API)
    assert namespace.reaches(pod, "amqsidecar", broker_pods.NAME, CORE.port)
    namespace.kubectl("delete", "networkpolicy", NAME)
    eventually(
        lambda: (
            namespace.reaches(POD, broker_pods.NAME, address, HTTP_PORT)
            and namespace.reaches(pod, "amqsidecar", *API)
        ),
        what="it was the policy that held",
    )
    load.go_on()
    account(load.settle(namespace))


def alerts(namespace: Namespace) -> list[Any]:
    """Return the alerts that fire."""
    found = ask(namespace, "alerts")["alerts"]
    return [one for one in found if one["state"] == "firing"]
