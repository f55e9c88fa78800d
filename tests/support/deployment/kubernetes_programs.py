"""Kubernetes' own programs, its name server, and what a cluster has beside, built by Go.

`PYTHONPATH=tests python -m support.deployment.kubernetes_programs` builds them in
minutes, once per machine, into the cache of `support.maven`. A build that was killed continues at
the next start: the cache keeps what Go has compiled.
"""

import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from support.deployment.helm import OPERATOR, go
from support.deployment.prometheus import MODULE_OF_3
from support.maven import cache_root, cached

KUBERNETES = "1.36.3"
# Why not a newer one: whatever this one shares with Kubernetes, Kubernetes has in a newer version,
# so that it adds some packages to the build and changes nothing.
COREDNS = "1.14.1"

PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
MODULE = "example.invalid/cluster"
# Why not CoreDNS' own main: that has two dozen clouds in it.
NAME_SERVER = """\
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
"""


BESIDE = {
    "github.com/cloudnativelabs/kube-router/v2@v2.1.0": ("kube-router",),
    OPERATOR: ("operator", "prometheus-config-reloader"),
    f"github.com/prometheus/prometheus@v{MODULE_OF_3}": ("prometheus",),
}
"""What enforces network policies, and Prometheus with its operator: programs by module."""
# Why: Debian's Prometheus can't ask Kubernetes for pods, and two dozen clouds take minutes.
TAGS = "remove_all_sd,enable_kubernetes_sd"


def kubernetes_programs() -> Path:
    """Return the folder with `PROGRAMS` and `coredns`."""
    name = f"kubernetes-{KUBERNETES}-{COREDNS}"
    return cached(name, lambda folder: _build(folder, cache_root() / f".{name}.objects"))


def programs_beside() -> Path:
    """Return the folder with the programs of `BESIDE`."""
    digest = hashlib.sha256(repr((BESIDE, TAGS)).encode()).hexdigest()[:12]
    return cached(f"kubernetes-beside-{digest}", _build_beside)


def _build_beside(folder: Path) -> None:
    for module, names in BESIDE.items():
        path = module.partition("@")[0]
        with tempfile.TemporaryDirectory(dir=folder) as work:
            place = Path(work)
            go("mod", "init", MODULE, folder=place)
            # Why not `go install`: it takes no module that replaces parts of itself.
            go("mod", "edit", f"-require={module}", folder=place)
            go(
                "build", "-mod=mod", "-tags", TAGS, "-trimpath", "-ldflags", "-s -w",
                "-o", f"{folder}/",
                *(f"{path}/cmd/{name}" for name in names),
                folder=place,
                environment={"CGO_ENABLED": "0"},
            )  # fmt: skip


def _build(folder: Path, objects: Path) -> None:
    """Build all programs into `folder`.

    Args:
        objects: what Go has compiled, gigabytes that nothing but this build has a use for. Kept
            when the build fails or is killed, removed when it is done.
    """
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        place = Path(work)
        go("mod", "init", MODULE, folder=place)
        required = (
            f"-require=k8s.io/kubernetes@v{KUBERNETES}",
            f"-require=github.com/coredns/coredns@v{COREDNS}",
        )
        go("mod", "edit", *required, *_replacements(place), folder=place)
        imports = "\n".join(f'import _ "{package}"' for package in packages)
        text = f"//go:build tools\n\npackage cluster\n\n{imports}\n"
        (place / "tools.go").write_text(text, encoding="utf-8")
        (place / "coredns").mkdir()
        (place / "coredns" / "main.go").write_text(NAME_SERVER, encoding="utf-8")
        go("mod", "tidy", folder=place)
        go(
            "build", "-trimpath", "-ldflags", _flags(), "-o", f"{folder}/",
            *packages, f"{MODULE}/coredns",
            folder=place,
            environment={"CGO_ENABLED": "0", "GOCACHE": str(objects)},
        )  # fmt: skip
    shutil.rmtree(objects)


def _replacements(place: Path) -> list[str]:
    """Return where Kubernetes' parts are: it asks for v0.0.0 of them, which is nowhere."""
    asked = go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}", folder=place)
    text = Path(json.loads(asked)["GoMod"]).read_text(encoding="utf-8")
    parts = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0(?: |$)", text, re.MULTILINE)))
    version = f"v0.{KUBERNETES.removeprefix('1.')}"
    return [f"-replace={part}={part}@{version}" for part in parts]


def _flags() -> str:
    """Return the linker's flags: without a version Helm would take it for v0.0.0, and refuse."""
    major, minor, _ = KUBERNETES.split(".")
    said = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    names = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items()]
    return " ".join(["-s", "-w", *names])


if __name__ == "__main__":
    print(
        f"Kubernetes {KUBERNETES}, CoreDNS {COREDNS}: {kubernetes_programs()}",
        file=sys.stderr,
        flush=True,
    )
    print(f"{', '.join(BESIDE)}: {programs_beside()}", file=sys.stderr, flush=True)
