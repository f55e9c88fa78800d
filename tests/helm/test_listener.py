"""The listener in the chart: its clients, its targets, and what rolls its pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from helm.cases import CASES
from support.deployment.helm import Manifest, render

pytestmark = pytest.mark.helm

WITH_LISTENER = CASES["beside, with a listener"]


def rendered(kind: str, **config: Any) -> Manifest:
    """Return an object of the listener; `config` takes the place of options."""
    values: Mapping[str, Any] = WITH_LISTENER | {"config": WITH_LISTENER["config"] | config}
    [found] = [
        one
        for one in render(values)
        if one["kind"] == kind and str(one["metadata"]["name"]).endswith("-listener")
    ]
    return found


def test_its_service_leads_to_its_pods_and_only_named_clients_come_in() -> None:
    deployment, service = rendered("Deployment")["spec"], rendered("Service")["spec"]
    pod = deployment["template"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    ports = {one["name"]: one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]}
    assert service["ports"][0]["port"] == ports[service["ports"][0]["targetPort"]] == 61613
    clients, scrapers = rendered("NetworkPolicy")["spec"]["ingress"]
    assert clients == {"ports": [{"port": "stomp"}], "from": WITH_LISTENER["listener"]["from"]}
    assert scrapers["ports"] == [{"port": "metrics"}]


def test_its_probes_ask_for_life_and_for_the_acceptor() -> None:
    [container] = rendered("Deployment")["spec"]["template"]["spec"]["containers"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}


@pytest.mark.parametrize(
    ("acceptor", "port"),
    [
        *(("stomp://broker", 61613), ("stomp+ssl://broker", 61614)),
        *(("amqp://broker", 5672), ("amqps://broker", 5671), ("amqps://broker:1000", 1000)),
    ],
)
def test_the_way_to_the_acceptor_is_open(acceptor: str, port: int) -> None:
    policy = rendered("NetworkPolicy", listener={"acceptor": acceptor})
    ports = {one["port"] for rule in policy["spec"]["egress"] for one in rule["ports"]}
    assert ports - {53, 5353} == {port}


def test_changes_of_how_it_saves_roll_its_pods_and_those_of_policies_do_not() -> None:
    def annotations(**config: Any) -> Any:
        pod = rendered("Deployment", **config)["spec"]["template"]
        return pod["metadata"]["annotations"]

    acceptor = WITH_LISTENER["config"]["listener"]
    changes: list[dict[str, Any]] = [
        {"listener": acceptor | {"drain_s": 11}},
        {"intake": {"cause_notes": "amqsidecar.causes"}},
        {"policy": {"verdicts": "obey"}},
    ]
    for change in changes:
        assert annotations(**change) != annotations(), change
    assert annotations(broker={"url": "artemis+ssl://another@broker:61617"}) == annotations()


def test_listener_and_sidecar_read_the_same_keys_of_copies() -> None:
    made = render(WITH_LISTENER)
    options = [
        str(one["data"]["amqsidecar.yaml"])
        for one in made
        if one["kind"] == "ConfigMap" and "amqsidecar.yaml" in one["data"]
    ]
    assert all("copy_key_file: /etc/amqsidecar/copy-keys/keys" in one for one in options)
    pods = [
        one["spec"]["template"]["spec"]
        for one in made
        if one["kind"] in ("Deployment", "StatefulSet")
    ]
    assert len(pods) == 2
    for pod in pods:
        [volume] = [one for one in pod["volumes"] if _secret_of(one) == "seals"]
        mounts = pod["containers"][0]["volumeMounts"]
        [path] = [one["mountPath"] for one in mounts if one["name"] == volume["name"]]
        assert path.startswith("/etc/amqsidecar/copy-keys")


def _secret_of(volume: Mapping[str, Any]) -> str:
    return str(volume.get("secret", {}).get("secretName", ""))
