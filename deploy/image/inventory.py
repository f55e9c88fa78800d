"""Writes what is in the image: `inventory.py FOLDER [PACKAGES...]`, in the last stage of the build.

PACKAGES are folders with Python packages; without, where this interpreter looks for them.

Into FOLDER: `sbom.cdx.json` (CycloneDX 1.5) with the Python packages, the shared libraries that
their wheels bring, and the packages of Debian's base. The texts of copyleft licences lie beside it,
in `licences`: the build fails where one is missing. No times and no random ids are in it, so that
two builds of the same packages write the same.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

TEXTS = {
    "LGPL-3.0": ("LGPL-3.0.txt", "GPL-3.0.txt"),
    "LGPL-2.1": ("LGPL-2.1.txt",),
    "MPL-2.0": ("MPL-2.0.txt",),
}
"""The files with the texts of a copyleft licence; version 3 of the LGPL builds on the GPL's."""

BUNDLED = {"libcrypt": "LGPL-2.1-or-later", "libkeyutils": "LGPL-2.1-or-later"}
"""Copyleft among the shared libraries that wheels bring, by the start of the file's name."""

COPYLEFT = re.compile(r"\b(?:[AL]?GPL|MPL|EPL|EUPL)\b|General Public", re.IGNORECASE)
LIBRARY = re.compile(r"\.libs/(?P<name>lib[A-Za-z0-9_+]+)[^/]*\.so[^/]*$")
DPKG = Path("/var/lib/dpkg/status")

Component = dict[str, Any]


def licence(found: Distribution) -> str:
    """Return what a package says of its licence; empty: nothing."""
    metadata = found.metadata
    stated = metadata.get("License-Expression") or metadata.get("License") or ""
    classifiers = (one for one in metadata.get_all("Classifier") or () if "License ::" in one)
    return stated.partition("\n")[0] or ", ".join(one.rpartition(" :: ")[2] for one in classifiers)


def python_components(found: Distribution) -> Iterator[Component]:
    """Yield a Python package and the shared libraries in its wheel."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{found.version}"
    said = licence(found)
    yield {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found.version,
        "purl": purl,
        **({"licenses": [{"license": {"name": said}}]} if said else {}),
    }
    for file in sorted(found.files or (), key=str):
        if library := LIBRARY.search(str(file)):
            path = Path(str(found.locate_file(file)))
            sum_of_it = hashlib.sha256(path.read_bytes()).hexdigest()
            said = BUNDLED.get(library["name"], "")
            yield {
                "type": "file",
                "bom-ref": f"{purl}#{file}",
                "name": path.name,
                "hashes": [{"alg": "SHA-256", "content": sum_of_it}],
                **({"licenses": [{"license": {"name": said}}]} if said else {}),
            }


def debian_components(status: str) -> Iterator[Component]:
    """Yield the packages of the base, as dpkg has written them down."""
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{version}?arch={fields['Architecture']}"
            yield {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
            }


def missing_texts(components: Iterable[Component], folder: Path) -> list[str]:
    """Return what has a copyleft licence whose text is not in the folder, one sentence each."""
    problems = []
    for one in components:
        for said in (each["license"]["name"] for each in one.get("licenses", ())):
            if not COPYLEFT.search(said):
                continue
            texts = [files for name, files in TEXTS.items() if name in said]
            files = [file for each in texts for file in each]
            if not files or not all((folder / file).exists() for file in files):
                problems.append(f"{one['name']}: the text of {said} is not in {folder}")
    return problems


def sbom(own: str, components: list[Component]) -> Component:
    """Return the CycloneDX document of an image with a version of ours."""
    purl = f"pkg:oci/amqsidecar@{own}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": purl,
                "name": "amqsidecar",
                "version": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
    }


def main(folder: Path, packages: list[str], status: Path) -> int:
    """Write the document; return the exit code.

    Args:
        folder: where `licences` is, and the document goes.
        packages: folders with Python packages.
        status: dpkg's file; a base without it has no packages of Debian.
    """
    found = sorted(distributions(path=packages), key=lambda one: str(one.metadata["Name"]).lower())
    python = [component for one in found for component in python_components(one)]
    debian = list(debian_components(status.read_text("utf-8"))) if status.exists() else []
    problems = missing_texts(python, folder / "licences")
    for problem in problems:
        print(problem, file=sys.stderr)
    [own] = [one.version for one in found if one.metadata["Name"] == "amqsidecar"]
    document = json.dumps(sbom(own, [*python, *debian]), indent=1, sort_keys=True)
    (folder / "sbom.cdx.json").write_text(document + "\n", encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or sys.path, DPKG))
