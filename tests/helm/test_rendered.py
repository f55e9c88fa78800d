"""What the chart renders: an API server would take it, and it does what values.yaml says."""

import json
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from ruamel.yaml import YAML

from amqsidecar.cli import main
from amqsidecar.config.broker_url import DEFAULT_PORTS
from amqsidecar.config.load import load_config
from amqsidecar.wiring.rules import load_gates
from helm.cases import BROKER, CASES, MINIMAL, POSTGRES, SHARED
from support.deployment.helm import (
    CHART,
    KUBERNETES,
    WITHOUT_CLUSTER,
    Manifest,
    Refused,
    documents,
    helm,
    only,
    render,
    schema_errors,
)
from support.deployment.pod_security import violations
from support.machine.processes import run_program
from support.web.answering import answering

pytestmark = pytest.mark.helm

ROOT = Path(__file__).parents[2]
CHART_FILE = YAML(typ="safe").load(CHART / "Chart.yaml")


@lru_cache(maxsize=64)
def _rendered(text: str) -> list[Manifest]:
    return render(json.loads(text))


def rendered(values: Mapping[str, Any]) -> dict[str, Manifest]:
    """Return what is rendered by kind; the ConfigMaps of dashboard and check by their own names."""
    found = {}
    for manifest in _rendered(json.dumps(values)):
        kind, name = manifest["kind"], str(manifest["metadata"]["name"])
        if kind == "ConfigMap" and name.endswith(("-dashboard", "-check")):
            kind = name.rpartition("-")[2]
        if name.endswith(("-listener", "-fleet")):
            space = manifest["metadata"].get("namespace", "")
            kind = f"{kind} of the {name.rpartition('-')[2]}{space and f' in {space}'}"
        assert kind not in found
        found[kind] = manifest
    return found


def pods(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the specifications of all pods: the sidecar's, of the check, and of `helm test`."""
    found = rendered(values)
    deployments = ("Deployment", "Deployment of the listener", "Deployment of the fleet")
    kinds = ("StatefulSet", *deployments, "Job")
    workloads = [found[kind] for kind in kinds if kind in found]
    tests = [found["Pod"]["spec"]] if "Pod" in found else []
    return [*(one["spec"]["template"]["spec"] for one in workloads), *tests]


def pod_template(values: Mapping[str, Any]) -> dict[str, Any]:
    found = rendered(values)
    template: dict[str, Any] = (found.get("StatefulSet") or found["Deployment"])["spec"]["template"]
    return template


def container(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sidecar's container."""
    found: dict[str, Any] = pod_template(values)["spec"]["containers"][0]
    return found


def options(values: Mapping[str, Any]) -> str:
    text: str = rendered(values)["ConfigMap"]["data"]["amqsidecar.yaml"]
    return text


@pytest.mark.parametrize("name", CASES)
def test_an_api_server_would_take_it(name: str) -> None:
    for version in KUBERNETES:
        for manifest in rendered(CASES[name]).values():
            assert list(schema_errors(manifest, version)) == []


def test_the_schemas_refuse_what_is_misspelled() -> None:
    statefulset = json.loads(json.dumps(rendered(MINIMAL)["StatefulSet"]))
    statefulset["spec"]["template"]["spec"]["contaners"] = []
    monitor = json.loads(json.dumps(rendered(CASES["inPod"])["PodMonitor"]))
    monitor["spec"]["podMetricEndpoints"] = []
    for manifest in (statefulset, monitor):
        assert list(schema_errors(manifest, KUBERNETES[0]))


@pytest.mark.parametrize("name", CASES)
def test_pods_are_restricted_and_have_no_token(name: str) -> None:
    for pod in pods(CASES[name]):
        assert list(violations(pod)) == []
        assert pod["automountServiceAccountToken"] is False
        for each in pod["containers"]:
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert each["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", CASES)
def test_the_sidecar_understands_its_options(name: str, tmp_path: Path) -> None:
    file = tmp_path / "amqsidecar.yaml"
    file.write_text(options(CASES[name]), encoding="utf-8")
    config = load_config(file, [], {})
    assert config.http.strangers_problem == ""
    found = [pod["containers"][0].get("volumeMounts", []) for pod in pods(CASES[name])]
    mounts = [mount["mountPath"] for each in found for mount in each]
    for path in (config.broker.password_file, config.broker.tls.ca_file, config.policy.source):
        assert path is None or not mounts or str(path.parent) in mounts


@pytest.mark.parametrize("name", CASES)
def test_every_volume_is_there_once_and_nothing_is_mounted_by_a_sub_path(name: str) -> None:
    workload = rendered(CASES[name]).get("StatefulSet", {"spec": {}})["spec"]
    claims = [one["metadata"]["name"] for one in workload.get("volumeClaimTemplates", ())]
    for number, pod in enumerate(pods(CASES[name])):
        volumes = [volume["name"] for volume in pod["volumes"]]
        assert len(set(volumes)) == len(volumes)
        known = {*volumes, *(claims if number == 0 else ())}
        for mount in (m for one in pod["containers"] for m in one.get("volumeMounts", [])):
            assert mount["name"] in known
            assert "subPath" not in mount


@pytest.mark.parametrize("name", ["beside, nothing but the broker", "shared", "inPod"])
def test_lint_has_nothing_to_say(name: str) -> None:
    helm("lint", "--strict", str(CHART), *WITHOUT_CLUSTER, values=CASES[name])


@pytest.mark.parametrize(
    "path", sorted((CHART / "ci").glob("*-values.yaml")), ids=lambda one: one.stem
)
def test_the_values_for_a_chart_s_ci_render(path: Path) -> None:
    given = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert {one["kind"] for one in render(given)} & {"StatefulSet", "Deployment"}
    helm("lint", "--strict", str(CHART), *WITHOUT_CLUSTER, values=given)


def test_the_chart_says_who_made_it_and_shows_an_icon() -> None:
    assert CHART_FILE["maintainers"]
    assert CHART_FILE["icon"].startswith("data:image/svg+xml;base64,")
    assert "icon is recommended" not in helm("lint", str(CHART), *WITHOUT_CLUSTER, values=MINIMAL)


def test_selectors_find_the_pods_and_not_the_test() -> None:
    for values in (MINIMAL, CASES["shared, all"]):
        found = rendered(values)
        labels = pod_template(values)["metadata"]["labels"].items()
        selectors = [found["Service"]["spec"]["selector"]]
        selectors.append(found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
        kinds = found.keys() & {"StatefulSet", "Deployment", "PodDisruptionBudget", "PodMonitor"}
        selectors += [found[kind]["spec"]["selector"]["matchLabels"] for kind in kinds]
        for selector in selectors:
            assert selector.items() <= labels
            assert not selector.items() <= found["Pod"]["metadata"]["labels"].items()


def test_beside_keeps_the_schedule_on_a_volume_and_shared_in_the_database() -> None:
    beside, shared = rendered(MINIMAL), rendered(SHARED)
    workload = beside["StatefulSet"]["spec"]
    assert (workload["replicas"], workload["podManagementPolicy"]) == (1, "Parallel")
    [claim] = workload["volumeClaimTemplates"]
    mounts = container(MINIMAL)["volumeMounts"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/var/lib/amqsidecar"} in mounts
    assert "PodDisruptionBudget" not in beside
    assert "StatefulSet" not in shared
    rolling = shared["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 1, "maxUnavailable": 0}
    assert shared["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert "PodDisruptionBudget" not in rendered(CASES["shared, one"])
    paths = [mount["mountPath"] for mount in container(SHARED)["volumeMounts"]]
    assert "/var/lib/amqsidecar" not in paths


def test_sqlite_sorts_on_the_volume_and_what_else_is_set_stays() -> None:
    for values, count in ((MINIMAL, 0), (CASES["beside, everything of Kubernetes"], 1)):
        [own, *more] = container(values)["env"]
        assert own == {"name": "SQLITE_TMPDIR", "value": "/var/lib/amqsidecar"}
        assert len(more) == count
    assert "env" not in container(CASES["beside, no store"])


def test_an_existing_claim_is_used_and_none_made() -> None:
    values = CASES["beside, an existing claim"]
    assert "volumeClaimTemplates" not in rendered(values)["StatefulSet"]["spec"]
    volumes = {one["name"]: one for one in pod_template(values)["spec"]["volumes"]}
    assert volumes["amqsidecar-data"]["persistentVolumeClaim"] == {"claimName": "mine"}


def test_changed_options_and_rules_roll_the_pods_and_nothing_else_does() -> None:
    def annotations(values: dict[str, Any]) -> Any:
        return pod_template(values)["metadata"]["annotations"]

    changed_option = {"config": {"broker": BROKER, "log": {"level": "debug"}}}
    first = MINIMAL | {"policy": {"content": "<a/>"}}
    second = MINIMAL | {"policy": {"content": "<b/>"}}
    assert annotations(changed_option) != annotations(MINIMAL)
    assert annotations(first) != annotations(second)
    assert annotations(MINIMAL | {"service": {"port": 81}}) == annotations(MINIMAL)


def test_rules_arrive_as_they_are() -> None:
    values = CASES["beside, rules as a file"]
    data = rendered(values)["ConfigMap"]["data"]
    assert data["activemq.xml"] == values["policy"]["content"]


def test_probes_ask_for_life_and_readiness_apart() -> None:
    found = container(MINIMAL)
    [port] = found["ports"]
    for probe, path in (("startup", "healthz"), ("liveness", "healthz"), ("readiness", "readyz")):
        assert found[f"{probe}Probe"]["httpGet"] == {"path": f"/{path}", "port": port["name"]}
    start = found["startupProbe"]
    assert start["failureThreshold"] * start["periodSeconds"] == 600


@pytest.mark.parametrize(("status", "doctor", "code"), [(200, 0, 0), (200, 69, 69), (503, 0, 1)])
def test_helm_test_asks_for_readiness_and_then_doctor(status: int, doctor: int, code: int) -> None:
    # One, for Helm shows the log of no pod that has more.
    [only] = pods(MINIMAL)[-1]["containers"]
    [python, option, script, url, _, *asks] = only["command"]
    assert (python, option, url) == ("python3", "-c", "http://redelivery-amqsidecar:9464/readyz")
    assert asks[:2] == ["amqsidecar", "doctor"]
    says = f"print('a finding'); raise SystemExit({doctor})"
    with answering(lambda *_: (status, "text/plain", b"because")) as address:
        command = [sys.executable, "-c", script, f"http://{address}/readyz", "1"]
        done = run_program([*command, sys.executable, "-c", says])
    assert done.returncode == code
    assert done.stdout == f"{'' if status == 200 else 'not '}ready: because\na finding\n"


def test_only_named_clients_and_the_test_come_in() -> None:
    values = CASES["beside, everything of Kubernetes"]
    found = rendered(values)
    [rule] = found["NetworkPolicy"]["spec"]["ingress"]
    [named, test] = rule["from"]
    assert named == values["networkPolicy"]["from"][0]
    assert test["podSelector"]["matchLabels"] == found["Pod"]["metadata"]["labels"]
    assert "from" not in rendered(MINIMAL)["NetworkPolicy"]["spec"]["ingress"][0]


def test_what_is_new_is_checked_before_an_upgrade_touches_anything() -> None:
    found = rendered(CASES["beside, rules as a file"])
    check, job = found["check"], found["Job"]
    hooks = [one["metadata"]["annotations"] for one in (check, job)]
    assert [one["helm.sh/hook"] for one in hooks] == ["pre-install,pre-upgrade"] * 2
    assert int(hooks[0]["helm.sh/hook-weight"]) < int(hooks[1].get("helm.sh/hook-weight", 0))
    assert check["data"] == found["ConfigMap"]["data"]
    pod = job["spec"]["template"]["spec"]
    names = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
    assert names == [check["metadata"]["name"]] * 2
    run = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["command"]
    of_check = {"--check", "--await-files"}
    assert [word for word in pod["containers"][0]["command"] if word not in of_check] == run


def test_before_an_installation_secrets_may_be_missing_and_before_an_upgrade_not() -> None:
    values = CASES["beside, all secrets"]
    install, upgrade = (only(render(values, is_upgrade=on), "Job") for on in (False, True))
    for job, may_come in ((install, True), (upgrade, False)):
        pod = job["spec"]["template"]["spec"]
        assert ("--await-files" in pod["containers"][0]["command"]) is may_come
        named = [one.get("secret") or one.get("configMap") for one in pod["volumes"]]
        own = f"{job['metadata']['name']}"
        others = [one for one in named if one and own not in one.values()]
        assert len(others) == 7
        assert {one.get("optional", False) for one in others} == {may_come}
    assert "optional" not in json.dumps(rendered(values)["StatefulSet"])


@pytest.mark.parametrize(("install", "upgrade"), [(True, False), (False, True), (False, False)])
def test_each_check_can_be_switched_off(install: bool, upgrade: bool) -> None:
    switches = {"installCheck": {"enabled": install}, "upgradeCheck": {"enabled": upgrade}}
    found = rendered(MINIMAL | switches)
    hooks = [name for name, on in (("pre-install", install), ("pre-upgrade", upgrade)) if on]
    if hooks:
        assert found["Job"]["metadata"]["annotations"]["helm.sh/hook"] == ",".join(hooks)
    assert ("Job" in found) == ("check" in found) == bool(hooks)


def test_the_check_is_what_the_program_has(tmp_path: Path) -> None:
    file = tmp_path / "amqsidecar.yaml"
    file.write_text(options(CASES["beside, gates and a journal"]), encoding="utf-8")
    [check] = pods(CASES["beside, gates and a journal"])[1]["containers"]
    command = [*check["command"][1:-1], str(file)]
    assert main.run_command_line(command) == main.EXIT_DONE
    file.write_text(file.read_text(encoding="utf-8").replace("share: 0.5", "share: x"))
    assert main.run_command_line(command) == main.EXIT_CONFIG


def test_the_example_in_the_readme_is_taken(tmp_path: Path) -> None:
    blocks = (CHART / "README.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    [text] = [block for block in blocks if block.startswith("config:")]
    values = YAML(typ="safe").load(text.partition("```")[0])
    assert {"Ingress", "StatefulSet", "Job"} <= set(rendered(values))
    file = tmp_path / "amqsidecar.yaml"
    file.write_text(options(values), encoding="utf-8")
    assert load_gates(load_config(file, [], {}))


def test_no_pod_but_the_sidecar_takes_a_claim() -> None:
    [sidecar, *others] = pods(CASES["shared, a journal for many writers"])
    assert "journal" in {volume["name"] for volume in sidecar["volumes"]}
    for pod in others:
        assert not any("persistentVolumeClaim" in volume for volume in pod["volumes"])
        assert "authorities" in {volume["name"] for volume in pod["volumes"]}


def test_with_a_journal_the_image_can_write_one() -> None:
    tag = CHART_FILE["appVersion"]
    for values, image in (
        (MINIMAL, f"amqsidecar:{tag}"),
        (CASES["beside, gates and a journal"], f"amqsidecar:{tag}-journal"),
        (CASES["beside, gates and a journal"] | {"image": {"tag": "mine"}}, "amqsidecar:mine"),
    ):
        assert {pod["containers"][0]["image"] for pod in pods(values)} == {image}


def test_browsers_come_by_the_ingress_and_its_name() -> None:
    values = CASES["beside, an ingress"]
    found = rendered(values)
    assert "public_url: https://redelivery.example.com" in options(values)
    spec = found["Ingress"]["spec"]
    assert spec["tls"] == [{"hosts": ["redelivery.example.com"], "secretName": "tls"}]
    backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] == found["Service"]["metadata"]["name"]
    assert backend["port"]["name"] == found["Service"]["spec"]["ports"][0]["name"]
    assert "Ingress" not in rendered(MINIMAL)


def test_alerts_point_to_your_runbooks_or_those_of_the_console() -> None:
    def links(values: Mapping[str, Any]) -> list[str]:
        groups = rendered(values)["PrometheusRule"]["spec"]["groups"]
        alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
        assert alerts
        notes = [rule["annotations"] for rule in alerts]
        return [each["runbook_url"] for each in notes if "runbook_url" in each]

    found = links(CASES["beside, gates and a journal"])
    assert found
    assert all(one.startswith("https://wiki.example.com/runbooks#amqsidecar") for one in found)
    assert links(MINIMAL | {"monitoring": {"rules": True}}) == []
    console = {"consoleUrl": "https://mq.example.com/"}
    found = links(MINIMAL | {"monitoring": {"rules": True, **console}})
    assert found[0] == f"https://mq.example.com/static/runbooks.html#{RISING}"
    browsers = {
        "ingress": {"enabled": True, "host": "mq.example.com"},
        "access": {"tokensSecret": "tokens"},
    }
    assert links(MINIMAL | browsers | {"monitoring": {"rules": True}}) == found


RISING = "amqsidecardeadlettersrising"


def alerts(**monitoring: Any) -> dict[str, Any]:
    found = rendered(MINIMAL | {"monitoring": {"rules": True, **monitoring}})["PrometheusRule"]
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def test_the_rules_of_the_chart_are_those_of_the_plain_file() -> None:
    plain = ROOT / "deploy" / "monitoring" / "rules.yaml"
    runbooks = "https://runbooks.example/amqsidecar/runbooks.md"
    urls = {"runbookUrl": runbooks, "consoleUrl": "https://console.example"}
    found = rendered(MINIMAL | {"monitoring": {"rules": True, **urls}})["PrometheusRule"]["spec"]
    assert found == YAML(typ="safe").load(plain)


def test_an_alert_is_tuned_by_values() -> None:
    before = alerts()
    found = alerts(
        alertLabels={"team": "payments"},
        consoleUrl="https://mq.example.com",
        alerts={
            "AmqsidecarNewCause": {"enabled": False},
            "AmqsidecarOverdue": {
                "for": "10m",
                "keep_firing_for": "15m",
                "severity": "page",
                "labels": {"team": "night"},
                "annotations": {"chat": "#payments"},
                "thresholds": {"seconds": 900},
            },
            "AmqsidecarStoreNearlyFull": {"thresholds": {"share": 0.25}},
        },
    )
    assert before.keys() - found.keys() == {"AmqsidecarNewCause"}
    overdue = found["AmqsidecarOverdue"]
    assert "[3m]) > 900" in overdue["expr"]
    assert (overdue["for"], overdue["keep_firing_for"]) == ("10m", "15m")
    assert overdue["labels"] == {"severity": "page", "team": "night"}
    added = {"chat": "#payments", "summary": "Due messages are not re-sent"}
    assert added.items() <= overdue["annotations"].items()
    full = found["AmqsidecarStoreNearlyFull"]["expr"]
    assert "0.25 * (" in full
    assert "64 * 1024" in full
    assert found["AmqsidecarGone"]["labels"] == {"severity": "critical", "team": "payments"}
    exhausted = found["AmqsidecarExhausted"]["annotations"]
    assert exhausted["console_url"].startswith("https://mq.example.com/groups?destination={{")
    assert "console_url" not in before["AmqsidecarExhausted"]["annotations"]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"AmqsidecarOverdu": {}}, "AmqsidecarOverdu: there is no such alert"),
        ({"AmqsidecarOverdue": {"thresholds": {"minutes": 5}}}, "it has: seconds"),
        ({"AmqsidecarOverdue": {"for": "soon"}}, "for"),
        ({"AmqsidecarOverdue": {"enable": False}}, "enable"),
    ],
)
def test_an_alert_that_is_tuned_by_a_wrong_name_is_refused(
    told: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        alerts(alerts=told)


def test_browsers_come_by_a_gateway() -> None:
    values = CASES["beside, a Gateway"]
    found = rendered(values)
    assert "public_url: https://redelivery.example.com" in options(values)
    spec, service, given = found["HTTPRoute"]["spec"], found["Service"], values["httpRoute"]
    [rule] = spec["rules"]
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert rule["backendRefs"] == [{"name": name, "port": port}]
    assert (spec["parentRefs"], spec["hostnames"]) == (given["parentRefs"], given["hostnames"])
    assert rule["filters"] == given["filters"]


@pytest.mark.parametrize("more", [{}, SHARED], ids=["one", "shared"])
def test_users_come_from_a_secret_whose_changes_need_no_restart(more: dict[str, Any]) -> None:
    access = {"usersSecret": "people", "usersKey": "who", "sessionKeySecret": "key"}
    values = {**MINIMAL, **more, "access": access}
    spec = pod_template(values)["spec"]
    [volume] = [one for one in spec["volumes"] if one["name"].endswith("access-users")]
    assert volume["secret"] == {"secretName": "people", "items": [{"key": "who", "path": "users"}]}
    mounts = container(values)["volumeMounts"]
    [mount] = [one for one in mounts if one["name"] == volume["name"]]
    assert mount["readOnly"]
    # Why: Kubernetes renews no file that is mounted by a `subPath`.
    assert "subPath" not in mount
    assert f"users_file: {mount['mountPath']}/users" in options(values)


def test_a_route_of_several_replicas_leads_to_their_service() -> None:
    route = CASES["beside, a Gateway"]["httpRoute"]
    access = {"usersSecret": "users", "sessionKeySecret": "key"}
    found = rendered({**SHARED, "access": access, "httpRoute": route})
    [rule] = found["HTTPRoute"]["spec"]["rules"]
    [backend] = rule["backendRefs"]
    service = found["Service"]
    assert backend["name"] == service["metadata"]["name"]
    pod = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pod.items()


BROWSED: dict[str, Any] = {
    "access": {"usersSecret": "users", "sessionKeySecret": "key"},
    "ingress": {"enabled": True, "host": "a.example"},
    "httpRoute": {"enabled": True, "hostnames": ["a.example"], "parentRefs": [{"name": "g"}]},
}
"""Every way in for browsers."""


def test_common_labels_and_annotations_are_on_every_object_and_pod_but_the_claim() -> None:
    marks = {"commonLabels": {"team": "mq"}, "commonAnnotations": {"contact": "us"}}
    kinds = set()
    for values, monitor in ((MINIMAL, "serviceMonitor"), (SHARED, "podMonitor")):
        everything = values | BROWSED | marks | {"monitoring": {monitor: True}}
        for kind, one in rendered(everything).items():
            kinds.add(kind)
            template = one.get("spec", {}).get("template")
            for each in [one["metadata"], *([template["metadata"]] if template else [])]:
                assert each["labels"]["team"] == "mq", kind
                assert each["annotations"]["contact"] == "us", kind
            for claim in one.get("spec", {}).get("volumeClaimTemplates", []):
                assert "labels" not in claim["metadata"]
    assert {"Deployment", "HTTPRoute", "Ingress", "Job", "NetworkPolicy", "Pod"} <= kinds
    assert {"PodDisruptionBudget", "PodMonitor", "Service", "ServiceAccount"} <= kinds
    assert {"ServiceMonitor", "StatefulSet", "check"} <= kinds


OWN_MARKS = {
    "workload": "StatefulSet",
    "configMap": "ConfigMap",
    "service": "Service",
    "serviceAccount": "ServiceAccount",
    "networkPolicy": "NetworkPolicy",
    "ingress": "Ingress",
    "httpRoute": "HTTPRoute",
    "podDisruptionBudget": "PodDisruptionBudget",
    "monitoring.monitor": "PodMonitor",
}


@pytest.mark.parametrize("place", OWN_MARKS)
def test_an_object_has_labels_and_annotations_of_its_own_and_the_charts_win(place: str) -> None:
    """What the values say goes before what is common to all, and the chart's own before both."""
    kind, common = OWN_MARKS[place], {"a": "common", "b": "common"}
    marks = {"commonLabels": common, "commonAnnotations": common}
    base = SHARED if kind == "PodDisruptionBudget" else MINIMAL
    values = deepcopy(base | BROWSED | marks | {"monitoring": {"podMonitor": True}})
    section = values
    for name in place.split("."):
        section = section.setdefault(name, {})
    section["labels"] = {"a": "own", "app.kubernetes.io/instance": "other"}
    section["annotations"] = {"a": "own"}
    metadata = rendered(values)[kind]["metadata"]
    assert metadata["annotations"] == {"a": "own", "b": "common"}
    assert (metadata["labels"]["a"], metadata["labels"]["b"]) == ("own", "common")
    assert metadata["labels"]["app.kubernetes.io/instance"] == "redelivery"


def test_what_others_add_arrives() -> None:
    values = CASES["beside, all that others add"]
    found = rendered(values)
    stateful_set = found["StatefulSet"]["spec"]
    [claim] = stateful_set["volumeClaimTemplates"]
    for key in ("labels", "annotations"):
        assert claim["metadata"][key] == values["persistence"][key]
    retention = stateful_set["persistentVolumeClaimRetentionPolicy"]
    assert retention == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    assert stateful_set["revisionHistoryLimit"] == 3
    pod = stateful_set["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["before"]
    assert [one["name"] for one in pod["containers"]] == ["amqsidecar", "proxy"]
    for one in pods(values):
        [ours, *_] = one["containers"]
        assert ours["envFrom"] == values["envFrom"]
    assert found["Secret"]["metadata"]["name"] == "redelivery-amqsidecar-login"
    assert found["CronJob"]["metadata"]["name"] == "redelivery-backup"
    monitor = found["ServiceMonitor"]
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint.pop("port") == "amqsidecar"
    assert endpoint == values["monitoring"]["monitor"]["endpoint"] | {"interval": "30s"}
    assert monitor["spec"]["sampleLimit"] == 5000
    assert monitor["metadata"]["annotations"]["team"] == "mq"


TEXT = "01234567"
"""A number in YAML, where nothing quotes it."""
TYPED = {
    *("shape", "pullPolicy", "whenDeleted", "type", "userNamespaces"),
    *("digest", "key", "runbookUrl", "content"),
}
"""Values that may not be any text, and rules, which are a text of their own."""


def texts() -> list[str]:
    """Return the keys of all values that are text."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def below(node: Any, path: str) -> Iterator[str]:
        for name, one in node.get("properties", {}).items():
            if path == "" and name == "config":
                continue
            if one.get("type") == "string" and name not in TYPED:
                yield path + name
            yield from below(one, f"{path}{name}.")

    return list(below(schema, ""))


@pytest.mark.parametrize("key", texts())
def test_a_text_stays_a_text(key: str) -> None:
    """Whatever it looks like: it is quoted wherever it is rendered."""
    acceptor, fleet = {"acceptor": "stomp+ssl://broker:61614"}, {"one": "http://one:9464"}
    values: dict[str, Any] = deepcopy(BROWSED) | {
        "policy": {"existingConfigMap": "rules"},
        "monitoring": {"podMonitor": True, "rules": True},
        "listener": {"enabled": True},
        "fleet": {"enabled": True},
        "config": {"broker": BROKER, "listener": acceptor, "fleet": {"sidecars": fleet}},
    }
    for part, names in {
        "broker": ("passwordSecret", "caSecret", "certificateSecret"),
        "store": ("passwordSecret", "caSecret"),
        "access": ("tokensSecret", "oidcSecret"),
        "listener": ("certificateSecret", "caSecret", "copyKeysSecret"),
        "fleet": ("host", "tlsSecret", "caSecret"),
    }.items():
        values.setdefault(part, {}).update(dict.fromkeys(names, "a"))
    if key == "broker.caConfigMap":
        del values["broker"]["caSecret"]
    if key == "store.moveFrom":
        values = SHARED | {"store": values["store"]}
    section = values
    *parents, name = key.split(".")
    for parent in parents:
        section = section.setdefault(parent, {})
    section[name] = TEXT
    found = [str(one) for one in leaves(render(values))]
    assert any(TEXT in one for one in found)
    assert [one for one in found if str(int(TEXT, 8)) in one] == []


def leaves(node: Any) -> Iterator[Any]:
    """Yield all keys and values, of options in a ConfigMap as well."""
    if isinstance(node, list):
        for one in node:
            yield from leaves(one)
    elif isinstance(node, dict):
        for name, one in node.items():
            yield name
            yield from leaves(documents(one) if name == "amqsidecar.yaml" else one)
    else:
        yield node


def test_observing_runs_the_observer() -> None:
    assert container(CASES["beside, observing"])["command"][-1] == "--observe"


def test_the_console_is_served_only_where_there_is_a_way_in() -> None:
    assert "console: false" in options(MINIMAL)
    for name in ("beside, all secrets", "beside, behind a proxy", "shared, OpenID"):
        assert "console: true" in options(CASES[name])


def test_no_secret_is_in_what_is_rendered_but_its_name() -> None:
    """The file of options names paths, never a Secret's content; no variable takes one in."""
    env = container(CASES["shared, all"])["env"]
    assert env == [{"name": "PGSSLROOTCERT", "value": "/etc/amqsidecar/store-ca/ca.crt"}]
    assert "password_file: /etc/amqsidecar/store-password/password" in options(CASES["shared, all"])


@pytest.mark.parametrize("scheme", DEFAULT_PORTS)
def test_the_way_to_the_broker_is_open_also_on_its_usual_port(scheme: str) -> None:
    values = {"config": {"broker": {"url": f"{scheme}://broker"}}}
    assert egress_ports(values) == {DEFAULT_PORTS[scheme]}


def test_the_way_to_database_and_provider_is_open() -> None:
    config = {
        "broker": {"url": ["amqps://a@one:1000", "amqps://[::1]:2000"]},
        "store": POSTGRES,
        "http": CASES["shared, OpenID"]["config"]["http"],
    }
    values = CASES["shared, OpenID"] | {"config": config}
    assert egress_ports(values) == {1000, 2000, 5432, 5433, 443}


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("postgresql://a@db/r?port=6000", {6000}),
        ("postgresql://a@db:5433/r?sslmode=require&port=6000", {6000}),
        ("postgresql:///r?host=db1,db2&port=6000,6001", {6000, 6001}),
        ("postgresql:///r?host=db1,db2&port=6000%2C6001", {6000, 6001}),
        ("postgresql://a@db/r?application_name=port", {5432}),
    ],
)
def test_the_way_to_a_database_is_open_where_a_parameter_names_the_port(
    url: str, ports: set[int]
) -> None:
    config = {"broker": {"url": "amqps://broker"}, "store": {"url": url}}
    assert egress_ports({"shape": "shared", "config": config}) == {5671, *ports}


PEERS = {
    name: [{"podSelector": {"matchLabels": {"app": name}}}]
    for name in ("broker", "database", "openid", "telemetry", "objectStore", "dns")
}


def test_each_way_out_leads_to_its_peers_only() -> None:
    config = {
        "broker": {"url": "amqps://a@broker"},
        "store": POSTGRES,
        "http": CASES["shared, OpenID"]["config"]["http"],
        "journal": {"path": "s3://bucket/journal"},
        "listener": {"acceptor": "stomp+ssl://broker"},
        "otel": {"endpoint": "http://collector:4318"},
    }
    values = CASES["shared, OpenID"] | {"config": config, "networkPolicy": {"to": PEERS}}
    rules = rendered(values)["NetworkPolicy"]["spec"]["egress"]
    found = [(sorted({port["port"] for port in rule["ports"]}), rule["to"]) for rule in rules]
    assert found == [
        ([53, 5353], PEERS["dns"]),
        ([5671], PEERS["broker"]),
        ([5432, 5433], PEERS["database"]),
        ([443], PEERS["openid"]),
        ([4318], PEERS["telemetry"]),
        ([443], PEERS["objectStore"]),
    ]
    config["fleet"] = {"sidecars": {"one": "http://one:9464"}}
    fleet = {"enabled": True, "host": "fleet.example.com"}
    helped = rendered(values | {"listener": {"enabled": True}, "fleet": fleet})
    for name, peers in (
        ("listener", [PEERS["dns"], PEERS["broker"]]),
        ("fleet", [PEERS["dns"], None, PEERS["openid"], PEERS["telemetry"]]),
    ):
        rules = helped[f"NetworkPolicy of the {name}"]["spec"]["egress"]
        assert [rule.get("to") for rule in rules] == peers


@pytest.mark.parametrize(
    ("given", "version", "host_users"),
    [
        ("auto", "1.36.0", False),
        ("auto", "1.35.9", None),
        ("always", "1.33.0", False),
        ("never", "1.37.0", None),
    ],
)
def test_pods_have_users_of_their_own_where_the_version_has_them(
    given: str, version: str, host_users: bool | None
) -> None:
    values = MINIMAL | {"userNamespaces": given}
    pods = [
        one["spec"]["template"]["spec"] if "template" in one["spec"] else one["spec"]
        for one in render(values, kubernetes=version)
        if one["kind"] in ("StatefulSet", "Job", "Pod")
    ]
    assert [pod.get("hostUsers") for pod in pods] == [host_users] * 3


@pytest.mark.parametrize("name", ["inPod", "shared"])
def test_an_apparmor_profile_comes_to_every_pod_beside_its_seccomp_profile(name: str) -> None:
    profile = {"type": "RuntimeDefault"}
    context = CASES[name].get("podSecurityContext", {}) | {"appArmorProfile": profile}
    for pod in pods(CASES[name] | {"podSecurityContext": context}):
        assert pod["securityContext"]["appArmorProfile"] == profile
        assert pod["securityContext"]["seccompProfile"] == profile


def test_a_pod_has_a_limit_of_the_nodes_disk() -> None:
    [tmp] = [v for v in pod_template(MINIMAL)["spec"]["volumes"] if v["name"] == "amqsidecar-tmp"]
    assert container(MINIMAL)["resources"]["limits"]["ephemeral-storage"] == "2Gi"
    assert tmp["emptyDir"]["sizeLimit"] == "1Gi"


def egress_ports(values: Mapping[str, Any]) -> set[int]:
    rules = rendered(values)["NetworkPolicy"]["spec"]["egress"]
    ports = [port["port"] for rule in rules for port in rule["ports"]]
    return set(ports) - {53, 5353}


def test_a_brokers_chart_takes_the_container_into_its_pod(tmp_path: Path) -> None:
    [values, pod, statefulset] = in_broker_pod(tmp_path, {})
    [sidecar] = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert not {"startupProbe", "readinessProbe"} & set(sidecar)
    assert list(violations(pod)) == []
    assert list(schema_errors(statefulset, KUBERNETES[0])) == []
    [claim] = statefulset["spec"]["volumeClaimTemplates"]
    known = {claim["metadata"]["name"], *(volume["name"] for volume in pod["volumes"])}
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == known
    kinds = {one["kind"]: one for one in values if "annotations" not in one["metadata"]}
    assert set(kinds) == {"StatefulSet", "ConfigMap", "PodMonitor"}
    assert {one["kind"] for one in values} == {*kinds, "Job"}
    [config] = [v for v in pod["volumes"] if v["name"] == "amqsidecar-config"]
    assert config["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    labels = statefulset["spec"]["template"]["metadata"]["labels"]
    assert kinds["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_in_the_brokers_pod_changed_options_roll_it(tmp_path: Path) -> None:
    [_, _, before] = in_broker_pod(tmp_path / "a", {})
    [_, _, after] = in_broker_pod(tmp_path / "b", {"log": {"level": "debug"}})
    key = "annotations"
    assert before["spec"]["template"]["metadata"][key] != after["spec"]["template"]["metadata"][key]


def in_broker_pod(
    folder: Path, more_options: dict[str, Any]
) -> tuple[list[Manifest], dict[str, Any], Manifest]:
    """Render a broker's chart that uses the lines out of `_in_pod.tpl`."""
    copytree(Path(__file__).parent / "broker", folder / "broker")
    copytree(CHART, folder / "broker" / "charts" / "amqsidecar")
    options = {"broker": {"url": "amqp://amqsidecar@localhost:5672"}, **more_options}
    sidecar = CASES["inPod"] | {"config": options, "broker": {"passwordSecret": "login"}}
    manifests = render({"amqsidecar": sidecar}, chart=folder / "broker", release="mq")
    statefulset = only(manifests, "StatefulSet")
    return manifests, statefulset["spec"]["template"]["spec"], statefulset


def test_rules_and_dashboard_come_from_files(tmp_path: Path) -> None:
    chart = copytree(CHART, tmp_path / "amqsidecar")
    alert = {"alert": "A", "expr": "up == 0", "annotations": {"summary": "{{ $labels.job }}"}}
    rules = {"groups": [{"name": "g", "rules": [alert]}]}
    dashboard = {"title": "T", "panels": [{"legendFormat": "{{destination}}"}], "links": []}
    files = chart / "files"
    (files / "rules.yaml").write_text("# Why.\n" + json.dumps(rules), encoding="utf-8")
    (files / "dashboard.json").write_text(json.dumps(dashboard, indent=2), encoding="utf-8")
    monitoring = {"rules": True, "dashboard": True, "labels": {"release": "p"}}
    made = render(MINIMAL | {"monitoring": monitoring}, chart=chart)
    found = only(made, "PrometheusRule")
    assert found["spec"] == rules
    assert found["metadata"]["labels"]["release"] == "p"
    assert list(schema_errors(found, KUBERNETES[0])) == []
    board = only(made, "ConfigMap", "-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert [json.loads(text) for text in board["data"].values()] == [dashboard]


@pytest.mark.parametrize(
    ("address", "count"), [("https://mq.example.com/", 3), ("", 1)], ids=["known", "unknown"]
)
def test_the_dashboard_links_to_the_console_where_its_address_is_known(
    address: str, count: int
) -> None:
    found = rendered(MINIMAL | {"monitoring": {"dashboard": True, "consoleUrl": address}})
    [board] = [json.loads(text) for text in found["dashboard"]["data"].values()]
    own = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    assert {**board, "links": []} == {**own, "links": []}
    assert [one["url"] for one in board["links"]] == [
        "/alerting/list?search=Amqsidecar",
        "https://mq.example.com",
        "https://mq.example.com/static/runbooks.html",
    ][:count]


def notes(folder: Path, values: Mapping[str, Any]) -> str:
    """Return what people read after an installation; without a cluster Helm does not show it."""
    chart = copytree(CHART, folder / "amqsidecar", dirs_exist_ok=True)
    text = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: "
    (chart / "templates" / "notes.yaml").write_text(
        f'{{{{ define "notes" }}}}{text}{{{{ end }}}}{head}{{{{ include "notes" . | toJson }}}}\n',
        encoding="utf-8",
    )
    [found] = [one for one in render(values, chart=chart) if one["metadata"]["name"] == "notes"]
    told: str = found["data"]["text"]
    return told


def test_notes_say_what_to_do_next(tmp_path: Path) -> None:
    first = notes(tmp_path, MINIMAL)
    assert "helm -n mq test redelivery --logs" in first
    assert "No rules are configured" in first
    assert "--set access.usersSecret=redelivery-amqsidecar-users" in first
    assert "amqsidecar-data-redelivery-amqsidecar-0" in first
    gated = notes(tmp_path, CASES["beside, gates and a journal"] | {"policy": {"content": "<a/>"}})
    assert "No rules are configured" not in gated
    assert "referenced by a tag, which can change" in first
    by_digest = notes(tmp_path, CASES["beside, everything of Kubernetes"])
    assert "referenced by a tag" not in by_digest
    browsed = notes(tmp_path, CASES["beside, an ingress"])
    assert "The console is at https://redelivery.example.com/" in browsed
    shared = notes(tmp_path, CASES["shared, all"])
    assert "logs deploy/resend" in shared
    assert "Every pod of the cluster may connect" in shared
    assert "Every pod of the cluster may connect" not in by_digest
    plain = MINIMAL | {"listener": {"enabled": True}}
    plain["config"] = plain["config"] | {"listener": {"acceptor": "stomp://broker"}}
    unencrypted = "The listener has no certificate"
    assert unencrypted in notes(tmp_path, plain)
    plain["listener"] = {"enabled": True, "certificateSecret": "tls"}
    assert unencrypted not in notes(tmp_path, plain)
    assert "port-forward service/resend 9464:9464" in shared
    for text in (first, gated, browsed, shared, notes(tmp_path, CASES["inPod"])):
        assert "no value" not in text
