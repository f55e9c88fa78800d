"""Builds a wheelhouse to publish: our wheel, python-qpid-proton's, checksums and an SBOM.

`make wheels` runs it. In `dist/wheels`: the wheels, `SHA256SUMS`, and `sbom.cdx.json` (CycloneDX
1.5) with everything that `amqsidecar[amqp,postgres,oidc]` installs, as pinned.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINS = ROOT / "deploy" / "requirements" / "runtime.txt"
PLACE = ROOT / "dist" / "wheels"
PROTON = "python-qpid-proton"
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pins(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, version and SHA-256 sums of each pin of a requirements file."""
    for found in _PIN.finditer(text):
        yield found["name"], found["version"], _HASH.findall(found["rest"])


def sbom(version: str, requirements: str) -> dict[str, Any]:
    """Return the CycloneDX document of a version of ours with its pinned dependencies.

    An index serves several files for each version, any of which may be installed: their sums are
    properties, not the component's hashes.
    """
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{pinned}",
            "name": name,
            "version": pinned,
            "purl": f"pkg:pypi/{name}@{pinned}",
            "properties": [{"name": "amqsidecar:file-sha256", "value": one} for one in sums],
        }
        for name, pinned, sums in pins(requirements)
    ]
    own = f"pkg:pypi/amqsidecar@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "amqsidecar",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
    }


def checksums(folder: Path) -> str:
    """Return the lines of SHA256SUMS for the files of a folder, as `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def main() -> int:
    """Build everything; return the exit code."""
    shutil.rmtree(PLACE, ignore_errors=True)
    raw = PLACE / "raw"
    raw.mkdir(parents=True)
    pinned = {name: (version, sums) for name, version, sums in pins(PINS.read_text("utf-8"))}
    version, sums = pinned[PROTON]
    asked = raw / "requirements.txt"
    hashes = " ".join(f"--hash=sha256:{one}" for one in sums)
    asked.write_text(f"{PROTON}=={version} {hashes}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, str(ROOT), "-w", str(PLACE)], check=True)
    # Why -g0: debug symbols would hold the names of temporary folders.
    build = [*pip, "--require-hashes", "--no-binary", PROTON, "-r", str(asked), "-w", str(raw)]
    subprocess.run(["env", "CFLAGS=-g0", *build], check=True)
    [compiled] = raw.glob("*.whl")
    repair = [sys.executable, "-m", "auditwheel", "repair", str(compiled), "-w", str(PLACE)]
    if subprocess.run(repair, check=False).returncode != 0:
        print(f"{compiled.name} stays as it is: auditwheel can't make it a manylinux wheel here")
        shutil.copy(compiled, PLACE)
    shutil.rmtree(raw)
    [own] = PLACE.glob("amqsidecar-*.whl")
    document = json.dumps(sbom(own.name.split("-")[1], PINS.read_text("utf-8")), indent=2)
    (PLACE / "sbom.cdx.json").write_text(document + "\n", encoding="utf-8")
    (PLACE / "SHA256SUMS").write_text(checksums(PLACE), encoding="utf-8")
    for path in sorted(PLACE.iterdir()):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
