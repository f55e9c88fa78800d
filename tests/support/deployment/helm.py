"""Helm and the schemas of Kubernetes' objects, fetched once per machine; what a chart renders.

`PYTHONPATH=tests python -m support.deployment.helm` fetches them: Go builds Helm from its
module. Schemas come from a Python package, and from Go modules for objects of other makers.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from jsonschema import Draft7Validator
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from support.machine.processes import run_program
from support.maven import FetchError, cached, run_tool

HELM = os.environ.get("TEST_HELM") or "3.22.0"
"""TEST_HELM=4.3.2 runs the tests of the chart with another release."""
ACTIONLINT = "1.7.12"
SCHEMAS = "1.37.0"
"""Version of the package `kubernetes-validate`, which is that of the newest Kubernetes in it."""
KUBERNETES = ("1.29.0", "1.37.0")
"""The oldest that the chart is for, and the newest that there is a schema of."""
WITHOUT_CLUSTER = ("--kube-version", KUBERNETES[-1])
"""For commands that ask none: a Helm that Go has built by itself thinks of Kubernetes 1.20."""
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
MONITORING = ("podmonitors", "servicemonitors", "prometheusrules")
CRDS = (
    (OPERATOR, "example/prometheus-operator-crd", MONITORING),
    ("sigs.k8s.io/gateway-api@v1.5.0", "config/crd/standard", ("httproutes",)),
    ("github.com/argoproj/argo-cd/v3@v3.5.0", "manifests/crds", ("application-crd",)),
    ("github.com/fluxcd/source-controller@v1.8.0", "config/crd/bases", ("gitrepositories",)),
)
"""Go modules that hold schemas of other makers' objects: module, folder, ends of names."""
GO_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin")

CHART = Path(__file__).parents[3] / "helm" / "amqsidecar"

Manifest = dict[str, Any]


class Refused(Exception):
    """Helm renders nothing; the text is its error."""


def helm_program() -> Path:
    """Return the path of `helm`: the one on PATH, else our own."""
    found = shutil.which("helm")
    if found is not None:
        return Path(found)

    def build(folder: Path) -> None:
        go(
            "install", "-trimpath", "-ldflags", "-s -w",
            f"helm.sh/helm/v{HELM[0]}/cmd/helm@v{HELM}",
            environment={"CGO_ENABLED": "0", "GOBIN": str(folder)},
        )  # fmt: skip

    return cached(f"helm-{HELM}", build) / "helm"


def actionlint() -> Path:
    """Return the path of `actionlint`, which checks workflow files."""

    def build(folder: Path) -> None:
        go(
            "install", f"github.com/rhysd/actionlint/cmd/actionlint@v{ACTIONLINT}",
            environment={"CGO_ENABLED": "0", "GOBIN": str(folder)},
        )  # fmt: skip

    return cached(f"actionlint-{ACTIONLINT}", build) / "actionlint"


def schema_folder() -> Path:
    """Return the folder with one folder of strict schemas for each of `KUBERNETES`, and `crd`."""
    versions = "-".join(KUBERNETES)
    digest = hashlib.sha256(repr(CRDS).encode()).hexdigest()[:12]
    return cached(f"kubernetes-schemas-{SCHEMAS}-{versions}-{digest}", _gather_schemas)


def module_folder(module: str) -> Path:
    """Return the folder of a Go module, fetched when missing."""
    return Path(json.loads(go("mod", "download", "-json", module))["Dir"])


def _gather_schemas(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as download:
        options = ("--quiet", "--no-deps", "--dest", download)
        package = f"kubernetes-validate=={SCHEMAS}"
        run_tool([sys.executable, "-m", "pip", "download", *options, package])
        [wheel] = Path(download).glob("*.whl")
        with zipfile.ZipFile(wheel) as unpacked:
            for name in unpacked.namelist():
                for version in KUBERNETES:
                    if f"/v{version}-local-strict/" in name:
                        target = folder / version / Path(name).name
                        target.parent.mkdir(exist_ok=True)
                        target.write_bytes(unpacked.read(name))
    (folder / "crd").mkdir()
    for module, place, names in CRDS:
        where = module_folder(module) / place
        for name in names:
            [source] = where.glob(f"*{name}.yaml")
            crd = msgspec.yaml.decode(source.read_bytes())
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            _close(schema)
            schema["properties"]["metadata"] = {"type": "object"}
            kind = crd["spec"]["names"]["kind"].lower()
            (folder / "crd" / f"{kind}.json").write_text(json.dumps(schema), encoding="utf-8")


def _close(schema: Any) -> None:
    """Refuse keys that a schema does not know, as an API server would drop them."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)


@lru_cache(maxsize=64)
def _validator(kind: str, api_version: str, kubernetes: str) -> Validator:
    group, _, version = api_version.rpartition("/")
    folder = schema_folder()
    crd = folder / "crd" / f"{kind.lower()}.json"
    if crd.exists():
        return Draft7Validator(json.loads(crd.read_text(encoding="utf-8")))
    parts = [kind.lower(), *([group.partition(".")[0]] if group else []), version]
    definitions = _definitions(kubernetes)
    schema = json.loads((folder / kubernetes / f"{'-'.join(parts)}.json").read_text())
    return Draft7Validator(schema, registry=definitions)


@lru_cache(maxsize=4)
def _definitions(kubernetes: str) -> Registry[Any]:
    text = (schema_folder() / kubernetes / "_definitions.json").read_text(encoding="utf-8")
    resource = DRAFT7.create_resource(json.loads(text))
    registry: Registry[Any] = Registry().with_resource("/api/_definitions.json", resource)
    return registry


def schema_errors(manifest: Manifest, kubernetes: str) -> Iterator[str]:
    """Yield what an API server of that version would refuse, or drop, for it knows it not."""
    validator = _validator(manifest["kind"], manifest["apiVersion"], kubernetes)
    for error in validator.iter_errors(manifest):
        yield f"{manifest['kind']} {'/'.join(map(str, error.absolute_path))}: {error.message}"


def render(
    values: Mapping[str, Any],
    *,
    chart: Path = CHART,
    release: str = "redelivery",
    is_upgrade: bool = False,
    kubernetes: str = KUBERNETES[-1],
) -> list[Manifest]:
    """Return the objects that `helm template` renders from these values.

    Args:
        values: of the chart, as `helm` takes them.
        is_upgrade: what an upgrade would send, not an installation.
        kubernetes: version of the cluster.

    Raises:
        Refused: Helm rejects the values.
    """
    how = ("--kube-version", kubernetes, *(["--is-upgrade"] if is_upgrade else []))
    answer = helm("template", release, str(chart), "--namespace", "mq", *how, values=values)
    return documents(answer)


def only(manifests: Iterable[Manifest], kind: str, end: str = "") -> Manifest:
    """Return the only object of a kind whose name ends so."""
    [found] = [
        one
        for one in manifests
        if one["kind"] == kind and str(one["metadata"]["name"]).endswith(end)
    ]
    return found


def documents(text: str) -> list[Any]:
    """Return what the documents of a text in YAML hold, but for empty ones."""
    # Why not by ruamel.yaml: it needs ten times as long, and tests render hundreds of charts.
    parts = re.split(r"^---$", text, flags=re.MULTILINE)
    return [one for part in parts if (one := msgspec.yaml.decode(part)) is not None]


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """Return the output of Helm.

    Args:
        arguments: the command and its arguments.
        values: of the chart; None = none. Without `image` they name the image of the tests.

    Raises:
        Refused: it ends with an error.
    """
    if values is not None:
        values = {**values, "image": {"repository": "amqsidecar", **values.get("image", {})}}
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(values, file)
        file.flush()
        given = [] if values is None else ["--values", file.name]
        command = [str(helm_program()), *arguments, *given]
        # Why: it ends before collecting garbage pays.
        environment = {**os.environ, "GOGC": "off"}
        done = run_program(command, env=environment)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def go(
    *arguments: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Return what Go prints, in its standard output.

    Raises:
        FetchError: there is no Go, or it ends with an error.
    """
    places = os.pathsep.join([os.environ.get("PATH", ""), *GO_PLACES])
    program = shutil.which("go", path=places)
    if program is None:
        raise FetchError(
            "Helm, Kubernetes, and the schemas of Prometheus' operator, come by Go: "
            "there is no `go` on PATH"
        )
    return run_tool([program, *arguments], environment, folder)


def fetch_everything(report: Callable[[str], None]) -> None:
    """Fetch all, saying where it is."""
    report(f"Helm {HELM}: {helm_program()}")
    report(f"schemas of Kubernetes {', '.join(KUBERNETES)}: {schema_folder()}")


if __name__ == "__main__":
    try:
        fetch_everything(lambda line: print(line, file=sys.stderr, flush=True))
    except FetchError as error:
        print(f"tests that are marked helm can't run: {error}", file=sys.stderr)
