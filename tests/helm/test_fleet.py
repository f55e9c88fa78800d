"""The console over many sidecars in the chart: what it reaches, and what it may see."""

from typing import Any

import pytest

from helm.cases import CASES
from support.deployment.helm import Manifest, only, render

pytestmark = pytest.mark.helm

WITH_FLEET = CASES["beside, with a fleet"]


def rendered(values: dict[str, Any] = WITH_FLEET) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for one in render(values):
        if str(one["metadata"]["name"]).endswith("-fleet"):
            found.setdefault(one["kind"], []).append(one)
    return found


def pod(values: dict[str, Any] = WITH_FLEET) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(values)["Deployment"][0]["spec"]["template"]["spec"]
    return spec


def test_its_service_and_ingress_lead_to_its_pod() -> None:
    found = rendered()
    template = found["Deployment"][0]["spec"]["template"]
    [service], [ingress] = found["Service"], found["Ingress"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {one["name"] for one in template["spec"]["containers"][0]["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": service["metadata"]["name"], "port": {"name": "fleet"}}
    command = template["spec"]["containers"][0]["command"]
    assert "http.public_url=https://fleet.example.com" in command


def test_it_has_the_files_of_log_ins_and_no_secret_of_the_broker() -> None:
    secrets = {one["secret"]["secretName"] for one in pod()["volumes"] if "secret" in one}
    assert secrets == {"oidc", "key", "authorities"}


def test_it_may_list_pods_where_it_looks_for_them_and_nothing_else() -> None:
    found = rendered()
    assert [one["metadata"]["namespace"] for one in found["Role"]] == ["pay", "stock"]
    for role in found["Role"]:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    [account] = found["ServiceAccount"]
    for binding in found["RoleBinding"]:
        assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    assert any("projected" in one for one in pod()["volumes"])


def test_without_a_selector_it_has_no_right_and_no_token() -> None:
    options = WITH_FLEET["config"] | {"fleet": {"services": ["sidecars.orders:9465"]}}
    values = WITH_FLEET | {"config": options}
    assert {"Role", "RoleBinding", "ServiceAccount"}.isdisjoint(rendered(values))
    assert not any("projected" in one for one in pod(values)["volumes"])


def test_its_ways_lead_to_sidecars_provider_and_kubernetes_only() -> None:
    [policy] = rendered()["NetworkPolicy"]
    assert policy["spec"]["ingress"] == [
        {"ports": [{"port": "fleet"}], "from": WITH_FLEET["fleet"]["from"]}
    ]
    ports = [{one["port"] for one in rule["ports"]} for rule in policy["spec"]["egress"]]
    assert ports == [{53, 5353}, {443, 9465, 9464}, {443}, {443, 6443}]


def test_the_sidecar_lets_it_in() -> None:
    values = WITH_FLEET | {"networkPolicy": {"from": [{"podSelector": {}}]}}
    policy = only(render(values), "NetworkPolicy", "-amqsidecar")
    labels = rendered()["Deployment"][0]["spec"]["selector"]["matchLabels"]
    assert {"podSelector": {"matchLabels": labels}} in policy["spec"]["ingress"][0]["from"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"config": WITH_FLEET["config"] | {"fleet": {}}}, "config.fleet names no sidecar"),
        ({"access": {"oidcSecret": "oidc"}}, "access.sessionKeySecret is not set"),
    ],
)
def test_what_can_not_work_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        render(WITH_FLEET | change)
