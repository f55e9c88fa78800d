"""The manifests in the guide for Argo CD and Flux are valid, and the chart renders their values.

What Argo CD makes of Helm's hooks is taken from its documentation (`user-guide/helm`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML

from helm.cases import CASES
from support.deployment.helm import CHART, KUBERNETES, Manifest, only, render, schema_errors

pytestmark = pytest.mark.helm

GUIDE = CHART.parents[1] / "deploy" / "guides" / "gitops.md"
PHASES = {
    "pre-install": "PreSync",
    "pre-upgrade": "PreSync",
    "post-install": "PostSync",
    "post-upgrade": "PostSync",
    "pre-delete": "PreDelete",
    "post-delete": "PostDelete",
}
"""Which phase of Argo CD a hook of Helm is; the others are skipped."""
HOOK, WEIGHT = "helm.sh/hook", "helm.sh/hook-weight"


def printed(section: str) -> list[Manifest]:
    """Return the manifests that a section of the guide shows."""
    text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = [one.partition("```")[0] for one in text.split("```yaml\n")[1:]]
    return [one for block in blocks for one in YAML(typ="safe").load_all(block)]


def values_of(manifest: Manifest) -> dict[str, Any]:
    """Return the chart's values in an Application or a HelmRelease."""
    spec = manifest["spec"]
    is_argo = manifest["kind"] == "Application"
    return dict(spec["source"]["helm"]["valuesObject"] if is_argo else spec["values"])


def argo_phases(manifest: Manifest) -> set[str]:
    """Return the phases in which Argo CD applies an object; none: it skips it."""
    hook = manifest["metadata"].get("annotations", {}).get(HOOK)
    return {"Sync"} if hook is None else {PHASES[one] for one in hook.split(",") if one in PHASES}


def wave(manifest: Manifest) -> int:
    return int(manifest["metadata"].get("annotations", {}).get(WEIGHT, 0))


def needed(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield kind and name of what has to be there for a pod to start."""
    for volume in pod["volumes"]:
        for source, kind, key in (
            ("secret", "Secret", "secretName"),
            ("configMap", "ConfigMap", "name"),
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ):
            if source in volume and not volume[source].get("optional"):
                yield kind, volume[source][key]
    if "serviceAccountName" in pod:
        yield "ServiceAccount", pod["serviceAccountName"]


@pytest.mark.parametrize("section", ["Argo CD", "Flux"])
def test_the_manifests_of_the_guide_are_valid(section: str) -> None:
    manifests = printed(section)
    for manifest in manifests:
        # Why not Flux's HelmRelease: no package registry has its schema.
        if manifest["kind"] != "HelmRelease":
            assert list(schema_errors(manifest, KUBERNETES[-1])) == []
    [release] = [one for one in manifests if one["kind"] in ("Application", "HelmRelease")]
    kinds = {one["kind"] for one in render(values_of(release))}
    assert {"StatefulSet", "ConfigMap", "Job"} <= kinds


def test_argo_cd_applies_the_external_secret_with_the_sync() -> None:
    [application] = printed("Argo CD")
    secret = only(render(values_of(application)), "ExternalSecret")
    assert argo_phases(secret) == {"Sync"}


@pytest.mark.parametrize("name", CASES)
def test_in_argo_cd_the_check_needs_nothing_that_comes_later(name: str) -> None:
    """Else the sync would wait for the check, and the check for the sync."""
    manifests = render(CASES[name])
    before = [one for one in manifests if "PreSync" in argo_phases(one)]
    assert {one["kind"] for one in before} == {"ConfigMap", "Job"}
    job = only(before, "Job")
    made = {(one["kind"], one["metadata"]["name"]) for one in before if wave(one) < wave(job)}
    ours = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    ours |= set(needed(pod_of(manifests)))
    pod = job["spec"]["template"]["spec"]
    others = {one["name"] for one in CASES[name].get("extraVolumes", [])}
    own = {"volumes": [one for one in pod["volumes"] if one["name"] not in others]}
    assert set(needed(own)) & ours == made
    assert "serviceAccountName" not in pod


def pod_of(manifests: list[Manifest]) -> Mapping[str, Any]:
    """Return the sidecar's pod, or that of the check, where the chart starts no sidecar."""
    found = {one["kind"]: one for one in manifests}
    workload = found.get("StatefulSet") or found.get("Deployment") or found["Job"]
    spec: Mapping[str, Any] = workload["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", CASES)
def test_no_hook_of_argo_cd_takes_helms_away(name: str) -> None:
    for one in render(CASES[name]):
        assert "argocd.argoproj.io/hook" not in one["metadata"].get("annotations", {})
        if one["kind"] == "Pod":
            assert argo_phases(one) == set()
