"""What `pip install amqsidecar` gives: a venv with wheels only, nothing compiled and no AMQP."""

import hashlib
import sys
from pathlib import Path

from support.maven import cached, run_tool

ROOT = Path(__file__).parents[2]
_REQUIREMENTS = ROOT / "deploy" / "requirements" / "runtime-plain.txt"


def plain_install(folder: Path) -> Path:
    """Install the wheel of this working tree; return the folder of the venv's programs.

    The dependencies' wheels are fetched into the cache once.
    """
    pip = [sys.executable, "-m", "pip"]
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]

    def fetch(place: Path) -> None:
        asked = ["--require-hashes", "--only-binary", ":all:", "-r", str(_REQUIREMENTS)]
        run_tool([*pip, "download", "--quiet", "--no-deps", *asked, "-d", str(place)])

    wheels = cached(f"plain-wheels-{digest}", fetch)
    own = folder / "wheel"
    run_tool(
        [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(ROOT), "-w", str(own)]
    )
    venv = folder / "venv"
    run_tool([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    offline = ["--no-index", "--no-deps", *map(str, [*own.glob("*.whl"), *wheels.glob("*.whl")])]
    run_tool([*pip, "--python", str(venv / "bin" / "python3"), "install", "--quiet", *offline])
    return venv / "bin"
