"""The listener in the chart: its clients, its targets, and what rolls its pods."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from helm.cases import CASES
from support.deployment.helm import Manifest, only, render

pytestmark = pytest.mark.helm

WITH_LISTENER = CASES["beside, with a listener"]


def rendered(kind: str, **config: Any) -> Manifest:
    """Return an object of the listener; `config` takes the place of options."""
    values: Mapping[str, Any] = WITH_LISTENER | {"config": WITH_LISTENER["config"] | config}
    return only(render(values), kind, "-listener")


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
    files = [one["data"] for one in made if one["kind"] == "ConfigMap"]
    for file in (one["amqsidecar.yaml"] for one in files if "amqsidecar.yaml" in one):
        assert "copy_key_file: /etc/amqsidecar/copy-keys/keys" in file
    for workload in (only(made, "Deployment"), only(made, "StatefulSet")):
        pod = workload["spec"]["template"]["spec"]
        secrets = {one["name"]: one.get("secret", {}).get("secretName") for one in pod["volumes"]}
        [volume] = [name for name, secret in secrets.items() if secret == "seals"]
        mounts = pod["containers"][0]["volumeMounts"]
        [path] = [one["mountPath"] for one in mounts if one["name"] == volume]
        assert path.startswith("/etc/amqsidecar/copy-keys")


@pytest.mark.parametrize(("spool_mib", "limit"), [(1024, "1152Mi"), (4096, "4224Mi")])
def test_its_disk_is_limited_to_what_its_files_may_take(spool_mib: int, limit: str) -> None:
    options = WITH_LISTENER["config"]["listener"] | {"spool_mib": spool_mib}
    pod = rendered("Deployment", listener=options)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "384Mi", "ephemeral-storage": limit}
    [size] = [one["emptyDir"]["sizeLimit"] for one in pod["volumes"] if "emptyDir" in one]
    assert size == f"{spool_mib + 64}Mi"


@pytest.mark.parametrize("name", CASES)
def test_no_budget_holds_up_a_drain_while_the_broker_is_away(name: str) -> None:
    for one in render(CASES[name]):
        if one["kind"] == "PodDisruptionBudget":
            assert one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_its_monitor_finds_it_alone_and_that_of_the_sidecar_does_not(kind: str) -> None:
    name = kind[0].lower() + kind[1:]
    made = render(WITH_LISTENER | {"monitoring": {name: True}})
    monitors = [one for one in made if one["kind"] == kind]
    assert len(monitors) == 2
    for one in monitors:
        monitor = one["spec"]
        wanted = monitor["selector"]["matchLabels"].items()
        [endpoint] = monitor.get("endpoints") or monitor["podMetricsEndpoints"]
        [target] = [
            target
            for target, labels, ports in _targets(made, of_services=kind == "ServiceMonitor")
            if wanted <= labels.items() and endpoint["port"] in ports
        ]
        assert ("listener" in target) == one["metadata"]["name"].endswith("-listener")


def _targets(
    made: list[Manifest], *, of_services: bool
) -> Iterator[tuple[str, Mapping[str, str], set[str]]]:
    """Yield name, labels and ports of the Services, or of the pods."""
    for one in made:
        marks, spec = one["metadata"], one.get("spec", {})
        if of_services and one["kind"] == "Service":
            yield marks["name"], marks["labels"], {port["name"] for port in spec["ports"]}
        elif not of_services and one["kind"] in ("Deployment", "StatefulSet"):
            [container] = spec["template"]["spec"]["containers"]
            labels = spec["template"]["metadata"]["labels"]
            yield marks["name"], labels, {port["name"] for port in container["ports"]}
