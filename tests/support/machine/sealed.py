"""Runs a command in network, process and mount namespaces of its own; needs root.

    PYTHONPATH=tests python -m support.machine.sealed COMMAND ARGUMENT...

However the command ends, or this process, the kernel ends with it what it has started, and takes
back what it has mounted and which addresses it had. There is a loopback interface, and nothing
outside can be reached. Its folder (`sealed_folder`) goes with it as well, and so do control groups
of that name; where this process was killed, the next one removes them.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER_VARIABLE = "SEALED_FOLDER"
# Why setpriv: when this process is killed, the kernel ends `unshare` and all that is inside.
WITH_US = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PREFIX = "sealed-"
LOCK = "owner.lock"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
# Where programs of a node write, whatever their options.
OVERLAID = ("/run", "/var/lib/cni", "/var/log")
INSIDE = "--inside"


def run_sealed(command: Sequence[str]) -> int:
    """Run a command in namespaces of its own, and return its exit code."""
    _leave_interrupts_to_the_command()
    # Why: what this process has made outside of the namespaces is removed on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _remove_leftovers(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX) as folder,
        (Path(folder) / LOCK).open("w", encoding="utf-8") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            done = subprocess.run(
                [
                    *WITH_US,
                    *NAMESPACES,
                    sys.executable,
                    "-m",
                    "support.machine.sealed",
                    INSIDE,
                    *command,
                ],
                env={**os.environ, FOLDER_VARIABLE: folder},
                check=False,
            )
        finally:
            _remove_control_groups(Path(folder).name)
    return done.returncode


def sealed_folder() -> Path | None:
    """Return the folder of the sealed command that this process is of; None: it is of none."""
    return Path(os.environ[FOLDER_VARIABLE]) if FOLDER_VARIABLE in os.environ else None


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders and control groups of sealed commands whose process was killed."""
    for lock_path in parent.glob(f"{PREFIX}*/{LOCK}"):
        with lock_path.open("w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove_control_groups(lock_path.parent.name)
            shutil.rmtree(lock_path.parent, ignore_errors=True)


def _remove_control_groups(name: str) -> None:
    """Remove them in each hierarchy: they are empty, but outlive namespaces.

    Version 1 has a folder for each hierarchy, version 2 is one.
    """
    for top in (CONTROL_GROUPS / name, *CONTROL_GROUPS.glob(f"*/{name}")):
        for path, _, _ in os.walk(top, topdown=False):
            Path(path).rmdir()


def _run_inside(command: Sequence[str]) -> int:
    """Be the first process: prepare, run the command, and reap orphaned processes."""
    _leave_interrupts_to_the_command()
    for place in OVERLAID:
        Path(place).mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    process = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            return os.waitstatus_to_exitcode(status)


def _leave_interrupts_to_the_command() -> None:
    # Why a function: what is ignored would be so in the command, too.
    signal.signal(signal.SIGINT, lambda *_: None)


if __name__ == "__main__":
    if sys.argv[1] == INSIDE:
        sys.exit(_run_inside(sys.argv[2:]))
    if os.geteuid() != 0 or not all(shutil.which(one[0]) for one in (WITH_US, NAMESPACES)):
        sys.exit("only root may have a network and mounts of its own, by `unshare` of util-linux")
    sys.exit(run_sealed(sys.argv[1:]))
