"""What goes into the cache: a build that was killed leaves nothing for good, or is gone on with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
DIES = """
import os, signal
from support.maven import cached
def build(folder):
    (folder / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
cached("thing", build)
"""
WORKS = """
from support.maven import cached
cached("thing", lambda folder: (folder / "whole").touch())
"""
GO = """#!/bin/sh
[ "$1 $2" = "mod download" ] && echo "{\\"GoMod\\": \\"$0\\"}"
[ "$1" = build ] || exit 0
mkdir -p "$GOCACHE"
[ -e "$GOCACHE/half" ] || { touch "$GOCACHE/half"; kill -9 $PPID; exit 1; }
while [ "$1" != -o ]; do shift; done
touch "$2/resumed"
"""


def python(folder: Path, *arguments: str) -> int:
    """Run Python with a cache of its own; return its exit code."""
    found = {
        "PYTHONPATH": str(TESTS),
        "XDG_CACHE_HOME": str(folder),
        "GOCACHE": str(folder),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | found, check=False
    ).returncode


def names(folder: Path) -> set[str]:
    found = (one.name for one in (folder / "amqsidecar").iterdir())
    return {one for one in found if not one.endswith(".lock")}


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    assert python(tmp_path, "-c", DIES) == -signal.SIGKILL
    assert names(tmp_path) == {".thing.partial"}
    assert python(tmp_path, "-c", WORKS) == 0
    assert names(tmp_path) == {"thing"}
    assert [one.name for one in (tmp_path / "amqsidecar" / "thing").iterdir()] == ["whole"]


def test_the_build_of_kubernetes_goes_on_with_what_was_compiled(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text(GO, encoding="utf-8")
    go.chmod(0o755)
    # Why: only the first build has a cache of its own.
    (tmp_path / "half").touch()
    build = ("-m", "support.deployment.kubernetes_programs")
    assert python(tmp_path, *build) == -signal.SIGKILL
    assert any(one.endswith(".objects") for one in names(tmp_path))
    assert python(tmp_path, *build) == 0
    # Why folders: a file of reserved ports lies there, too.
    places = [one for one in (tmp_path / "amqsidecar").iterdir() if one.is_dir()]
    assert [[one.name for one in place.iterdir()] for place in places] == [["resumed"]] * 2
