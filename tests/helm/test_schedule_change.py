"""An upgrade that would leave the schedule alone is refused, by what runs in the cluster.

The cluster is an HTTP server that answers Helm's questions with what the chart itself rendered.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helm.cases import BROKER, MINIMAL, POSTGRES, SHARED
from support.deployment.helm import (
    CHART,
    WITHOUT_CLUSTER,
    Manifest,
    Refused,
    documents,
    helm,
    only,
    render,
)
from support.web.answering import answering

pytestmark = pytest.mark.helm

RESOURCES = {
    "v1": [
        *(("configmaps", "ConfigMap"), ("services", "Service")),
        *(("serviceaccounts", "ServiceAccount"), ("pods", "Pod")),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ],
    "apps/v1": [("statefulsets", "StatefulSet"), ("deployments", "Deployment")],
    "batch/v1": [("jobs", "Job")],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy")],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget")],
}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "shape": (MINIMAL, SHARED, "shape was beside and becomes shared"),
    "shape, back": (SHARED, MINIMAL, "shape was shared and becomes beside"),
    "name": (
        MINIMAL,
        MINIMAL | {"fullnameOverride": "other"},
        "the name was redelivery-amqsidecar",
    ),
    "claim": (
        MINIMAL,
        MINIMAL | {"persistence": {"existingClaim": "mine"}},
        'persistence.existingClaim was "" and becomes "mine"',
    ),
    "store": (
        SHARED,
        SHARED | {"config": {"broker": BROKER, "store": {"url": "postgresql://db3/other"}}},
        f"config.store.url was {POSTGRES['url']} and becomes postgresql://db3/other",
    ),
}


def answers(running: Sequence[Manifest]) -> Iterator[tuple[str, Any]]:
    """Yield what an API server says, by path."""
    yield "/version", {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
    yield "/api", {"kind": "APIVersions", "versions": ["v1"]}
    groups = []
    for name in RESOURCES:
        version = {"groupVersion": name, "version": "v1"}
        group = {"name": name.partition("/")[0], "versions": [version]}
        groups += [group | {"preferredVersion": version}] if name != "v1" else []
    yield "/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for place, kinds in RESOURCES.items():
        root = f"/api/{place}" if place == "v1" else f"/apis/{place}"
        resources = [
            {"name": name, "kind": kind, "namespaced": True, "verbs": ["get", "list"]}
            for name, kind in kinds
        ]
        yield root, {"kind": "APIResourceList", "groupVersion": place, "resources": resources}
        for name, kind in kinds:
            found = [one for one in running if one["kind"] == kind]
            folder = f"{root}/namespaces/mq/{name}"
            yield folder, {"kind": f"{kind}List", "apiVersion": place, "items": found}
            for one in found:
                yield f"{folder}/{one['metadata']['name']}", one


@contextmanager
def cluster(running: Sequence[Manifest], folder: Path) -> Iterator[Path]:
    """Give the file by which Helm finds a cluster in which this runs."""
    said = dict(answers(running))

    def respond(path: str, _: object) -> tuple[int, str, bytes]:
        place = path.partition("?")[0]
        body = said.get(place, {"kind": "Status", "reason": "NotFound", "code": 404})
        return 200 if place in said else 404, "application/json", json.dumps(body).encode()

    with answering(respond) as address:
        config = {
            "clusters": [{"name": "one", "cluster": {"server": f"http://{address}"}}],
            "users": [{"name": "one", "user": {}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        file = folder / "kubeconfig"
        file.write_text(json.dumps(config), encoding="utf-8")
        yield file


def upgraded(before: Mapping[str, Any], after: Mapping[str, Any], folder: Path) -> str:
    """Return what Helm would send to a cluster in which the release runs with other values."""
    running = [one for one in render(before) if "annotations" not in one["metadata"]]
    with cluster(running, folder) as file:
        return helm(
            *("template", "redelivery", str(CHART), "--namespace", "mq", "--is-upgrade"),
            *("--dry-run=server", "--disable-openapi-validation"),
            *("--kubeconfig", str(file), *WITHOUT_CLUSTER),
            values=after,
        )


@pytest.mark.parametrize("name", CHANGES)
def test_what_leaves_the_schedule_alone_is_refused(name: str, tmp_path: Path) -> None:
    before, after, sentence = CHANGES[name]
    with pytest.raises(Refused) as refused:
        upgraded(before, after, tmp_path)
    assert sentence in str(refused.value)
    assert "upgradeCheck.acceptNewSchedule" in str(refused.value)
    accepted = after | {"upgradeCheck": {"acceptNewSchedule": True}}
    assert "kind: ConfigMap" in upgraded(before, accepted, tmp_path)


@pytest.mark.parametrize("values", [MINIMAL, SHARED], ids=["beside", "shared"])
def test_an_upgrade_of_anything_else_goes_on(values: dict[str, Any], tmp_path: Path) -> None:
    config = values["config"] | {"log": {"level": "debug"}}
    assert "level: debug" in upgraded(values, values | {"config": config}, tmp_path)


def test_the_schedule_of_a_claim_moves_before_the_new_sidecars_start(tmp_path: Path) -> None:
    after = SHARED | {"store": {"moveFrom": "amqsidecar-data-redelivery-0", "passwordSecret": "db"}}
    job = only(documents(upgraded(MINIMAL, after, tmp_path)), "Job", "-move")
    pod = job["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command[:3] == ["amqsidecar", "schedule", "move"]
    assert command[command.index("--to") + 1] == SHARED["config"]["store"]["url"]
    key = "persistentVolumeClaim"
    claims = [one[key] for one in pod["volumes"] if key in one]
    assert claims == [{"claimName": "amqsidecar-data-redelivery-0"}]
    password = command[command.index("--password-file") + 1]
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert password == f"{mounts['amqsidecar-store-password']}/password"
    with pytest.raises(Refused, match=r"store\.moveFrom"):
        render(MINIMAL | {"store": {"moveFrom": "claim"}})
