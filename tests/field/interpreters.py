"""The plain install and the demo on each interpreter of Python that this machine has.

    PYTHONPATH=tests python -m field.interpreters          # make interpreters

pip may take wheels only, with the sums that are pinned. Prints a table; fetches by pip what is
missing, and by Maven the demo's broker.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
PINS: Final = ("runtime-plain.txt", "build.txt")


def interpreters() -> Iterator[tuple[str, Path | None]]:
    """Yield each version that we support, and its program; None = this machine has none."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for version in VERSIONS:
        kept = sorted(pyenv.glob(f"{version}.*/bin/python3"))
        found = kept[-1] if kept else shutil.which(f"python{version}")
        yield version, Path(found) if found else None


def try_out(program: Path) -> str:
    """Install and play the demo; return the cells of a row.

    Raises:
        subprocess.CalledProcessError: a step failed; its output is printed.
    """
    with tempfile.TemporaryDirectory(prefix="interpreter-") as name:
        python = Path(name) / "bin" / "python3"
        began_s = time.monotonic()
        _run(program, "-m", "venv", name)
        asked = [part for one in PINS for part in ("-r", str(ROOT / "deploy/requirements" / one))]
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(python, *pip, "--require-hashes", "--only-binary", ":all:", *asked)
        _run(python, *pip, "--no-deps", "--no-build-isolation", str(ROOT))
        installed_s = time.monotonic() - began_s
        _run(python.with_name("amqsidecar"), "demo", "--quick")
        version = _run(python, "-c", "import platform; print(platform.python_version())").strip()
        return f"{version} | {installed_s:.0f} s | nothing lost, nothing doubled"


def _run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(program), *arguments],
        # Why: the checkout's own packages are not to be found.
        cwd=Path(tempfile.gettempdir()),
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    done.check_returncode()
    return done.stdout


def main() -> int:
    """Try each and print the table; return 1 if any failed."""
    print("| Python | tried | installed in | `amqsidecar demo --quick` |\n|---|---|---|---|")
    failed = False
    for version, program in interpreters():
        if program is None:
            print(f"| {version} | not on this machine | | |")
            continue
        try:
            print(f"| {version} | {try_out(program)} |", flush=True)
        except subprocess.CalledProcessError as error:
            failed = True
            print(f"| {version} | {error} | | |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
