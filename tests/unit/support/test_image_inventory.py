"""The image's bill of materials: every package, and the text of every copyleft licence."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from amqsidecar import __version__
from support.deployment.cyclonedx import cyclonedx_schema
from support.machine.processes import run_program

IMAGE = Path(__file__).parents[3] / "deploy" / "image"
DPKG = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u14
Description: GNU C Library
 shared libraries

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


PACKAGES = ("amqsidecar", "certifi", "psycopg", "psycopg-binary", "uvicorn")
"""Of the image, without what only tests need."""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it on a folder's packages."""
    command = [sys.executable, str(IMAGE / "inventory.py"), str(folder), str(folder / "packages")]
    return run_program(command)


def inventory_of_debian() -> list[dict[str, str]]:
    """Return the components that it makes of `DPKG`."""
    code = (
        "import inventory, json, sys; "
        "print(json.dumps(list(inventory.debian_components(sys.stdin.read()))))"
    )
    done = run_program(
        [sys.executable, "-c", code], input=DPKG, env={"PYTHONPATH": str(IMAGE)}, code=0
    )
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(IMAGE / "licences", tmp_path / "licences")
    (tmp_path / "packages").mkdir()
    for name in PACKAGES:
        tops = {file.parts[0] for file in distribution(name).files or () if file.parts[0] != ".."}
        for top in tops:
            place = Path(str(distribution(name).locate_file(top)))
            (tmp_path / "packages" / top).symlink_to(place)
    return tmp_path


def test_every_package_is_listed_with_its_licence(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stderr
    document = json.loads((folder / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert document["metadata"]["component"]["version"] == __version__
    listed = {one.get("purl"): one for one in document["components"]}
    psycopg = listed[f"pkg:pypi/psycopg@{distribution('psycopg').version}"]
    assert psycopg["licenses"] == [{"license": {"name": "LGPL-3.0-only"}}]
    assert f"pkg:pypi/uvicorn@{distribution('uvicorn').version}" in listed
    libraries = [one["name"] for one in document["components"] if one["type"] == "file"]
    assert [one for one in libraries if one.startswith("libpq")]
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)


def test_the_document_is_what_the_schema_of_cyclonedx_takes(folder: Path) -> None:
    """A component without a type is refused."""
    schema = cyclonedx_schema()

    run(folder)
    document = json.loads((folder / "sbom.cdx.json").read_text(encoding="utf-8"))
    schema.validate(document)
    schema.validate(document | {"components": inventory_of_debian()})
    del document["components"][0]["type"]
    assert not schema.is_valid(document)


def test_two_runs_write_the_same(folder: Path) -> None:
    run(folder)
    first = (folder / "sbom.cdx.json").read_bytes()
    run(folder)
    assert (folder / "sbom.cdx.json").read_bytes() == first


@pytest.mark.parametrize("text", sorted(one.name for one in (IMAGE / "licences").glob("*.txt")))
def test_a_build_without_the_text_of_a_copyleft_licence_fails(text: str, folder: Path) -> None:
    (folder / "licences" / text).unlink()
    done = run(folder)
    assert done.returncode == 1
    assert any(one in done.stderr for one in ("psycopg", "libcrypt", "certifi"))


def test_the_packages_of_debian_are_those_that_are_installed() -> None:
    purls = [one["purl"] for one in inventory_of_debian()]
    assert purls == ["pkg:deb/debian/libc6@2.36-9+deb12u14?arch=amd64"]
