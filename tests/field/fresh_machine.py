"""`make demo` as an unprivileged user on a fresh machine: an empty cache, and no tools but Java's.

    PYTHONPATH=tests python -m field.fresh_machine          # make fresh-machine

Runs it twice, with an empty cache and with a warm one, and prints how long each step took. The
programs that a demo must not need are not on the path. Downloads 70 MB by pip and Maven.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY = 65534
# What the demo must do without, by the beginning of a program's name.
FORBIDDEN = (
    *("apt", "dpkg", "gcc", "cc", "c99", "c89", "g++", "cpp", "clang", "x86_64-linux-gnu", "go"),
    *(
        "podman",
        "buildah",
        "docker",
        "runc",
        "psql",
        "postgres",
        "initdb",
        "chromium",
        "sudo",
        "su",
    ),
    *("helm", "kubectl", "javac"),
)
ALLOWED_AT_HOME = {".cache", ".m2", ".java"}


def checkout(folder: Path) -> Path:
    """Copy what is under version control, as a fresh clone has it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return folder / "checkout"


def programs(folder: Path) -> Path:
    """Link the machine's programs but the forbidden ones into a folder."""
    place = folder / "bin"
    place.mkdir()
    for source in (Path("/usr/bin"), Path("/bin")):
        for program in source.iterdir():
            if program.name.startswith(FORBIDDEN) or (place / program.name).is_symlink():
                continue
            (place / program.name).symlink_to(program)
    return place


def lines_of(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def make_demo(folder: Path, home: Path, words: str) -> int:
    """Run it, and print each line with its second; return the exit code."""
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    began_s = time.monotonic()
    process = subprocess.Popen(
        [*(as_nobody if os.geteuid() == 0 else []), shutil.which("make") or "make", "demo"],
        cwd=folder / "checkout",
        env={
            "PATH": str(folder / "bin"),
            "HOME": str(home),
            "TMPDIR": str(folder / "tmp"),
            # Java takes it from the user's entry in /etc/passwd, and nobody has none there.
            "MAVEN_OPTS": f"-Duser.home={home}",
        }
        | {name: os.environ[name] for name in ("LANG", "PIP_CERT") if name in os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in lines_of(process):
        print(f"{words} {time.monotonic() - began_s:6.1f} s  {line}", end="", flush=True)
    print(f"{words} {time.monotonic() - began_s:6.1f} s  exit code {process.wait()}")
    return process.returncode


def main() -> int:
    """Run both; return 1 where something failed, or was left outside of the caches."""
    with tempfile.TemporaryDirectory(prefix="fresh-") as name:
        folder = Path(name)
        home = folder / "home"
        for one in (home, folder / "tmp"):
            one.mkdir()
        checkout(folder)
        programs(folder)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
        codes = [make_demo(folder, home, "empty"), make_demo(folder, home, "warm ")]
        strange = {one.name for one in home.iterdir()} - ALLOWED_AT_HOME
        left = [one.name for one in (folder / "tmp").iterdir() if one.name.startswith("amqsidecar")]
        if strange or left:
            print(f"left behind: {sorted(strange)} at home, {left} among temporary files")
        return 1 if any(codes) or strange or left else 0


if __name__ == "__main__":
    sys.exit(main())
