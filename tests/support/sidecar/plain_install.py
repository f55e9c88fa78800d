"""What `pip install amqsidecar` gives: a venv with wheels only, nothing compiled and no AMQP."""

import hashlib
import sys
from pathlib import Path

from support.maven import cached, run_tool

ROOT = Path(__file__).parents[3]
_PINS = ROOT / "deploy" / "requirements"
_PIP = (sys.executable, "-m", "pip")
# Why uncompiled: a test runs little of it.
_QUIET = ("--quiet", "--no-compile")


def plain_wheels() -> Path:
    """Return a folder with the wheels of a plain install, and of what builds our own."""
    files = [_PINS / "runtime-plain.txt", _PINS / "build.txt"]

    def fetch(place: Path) -> None:
        for file in files:
            asked = ["--require-hashes", "--only-binary", ":all:", "-r", str(file)]
            run_tool([*_PIP, "download", "--quiet", "--no-deps", *asked, "-d", str(place)])

    return cached(f"plain-wheels-{_digest(*files)}", fetch)


def plain_install(folder: Path) -> Path:
    """Install the wheel of this working tree; return the folder of the venv's programs."""
    own = folder / "wheel"
    run_tool(
        [*_PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(ROOT), "-w", str(own)]
    )
    venv = folder / "venv"
    run_tool([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    offline = ["--no-index", "--find-links", str(plain_wheels()), *map(str, own.glob("*.whl"))]
    run_tool([*_PIP, "--python", str(venv / "bin" / "python3"), "install", *_QUIET, *offline])
    return venv / "bin"


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
