"""The wheelhouse's SBOM names every pinned dependency, and its checksums are those of the files."""

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from support.deployment.cyclonedx import cyclonedx_schema

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheels", DEPLOY / "wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sbom_has_each_pin_with_its_sums(wheels: ModuleType) -> None:
    pins = (DEPLOY / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    found = wheels.sbom("1.2.3", pins)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/amqsidecar@1.2.3"
    by_name = {one["name"]: one for one in found["components"]}
    assert len(by_name) == sum("==" in line for line in pins.splitlines() if line[:1].isalnum())
    assert {"python-qpid-proton", "stomp-py", "psycopg", "authlib"} <= by_name.keys()
    assert all(one["properties"] for one in by_name.values())
    sums = [item["value"] for one in by_name.values() for item in one["properties"]]
    assert len(sums) == pins.count("--hash=sha256:")


def test_the_sbom_is_what_the_schema_of_cyclonedx_takes(wheels: ModuleType) -> None:
    pins = (DEPLOY / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    document = wheels.sbom("1.2.3", pins)
    schema = cyclonedx_schema()
    assert not list(schema.iter_errors(document))
    del document["components"][0]["type"]
    assert list(schema.iter_errors(document))


def test_the_checksums_are_those_of_the_files(wheels: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "SHA256SUMS").write_text("old", encoding="utf-8")
    assert wheels.checksums(tmp_path) == f"{hashlib.sha256(b'b').hexdigest()}  b.whl\n"
