"""A small disk for the store, that can be full.

It is a tmpfs that only this program and what it starts can see. An ordinary user may mount one in a
user namespace of his own, where the machine allows those; so the program starts itself anew in
one. There it has a process namespace, too: whatever is left when it ends, the kernel kills.
"""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

SIZE = "24m"
_OWN_NAMESPACES = (
    "unshare",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_IS_INSIDE = "CHAOS_HAS_OWN_NAMESPACES"
NOT_HERE = "no full disks: this machine lets no user mount a disk in a namespace of his own"


def start_anew_in_own_namespaces() -> None:
    """Replace this process by one that may mount; return where it already is, or none can be."""
    if is_own() or shutil.which(_OWN_NAMESPACES[0]) is None:
        return
    tried = subprocess.run(
        [*_OWN_NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/tmp"],
        capture_output=True,
        check=False,
    )
    if tried.returncode == 0:
        environ = {**os.environ, _IS_INSIDE: "1"}
        command = [*_OWN_NAMESPACES, *sys.orig_argv]
        os.execvpe(command[0], command, environ)


def is_own() -> bool:
    """Say whether the store has a disk of its own, which can be full."""
    return _IS_INSIDE in os.environ


class SmallDisk:
    """A folder on a disk of its own where that can be had; a context manager that unmounts it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.can_be_full = is_own()
        self._ballast = folder / "ballast"

    def __enter__(self) -> Self:
        if self.can_be_full:
            mount = ("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.folder))
            subprocess.run(mount, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.can_be_full:
            subprocess.run(("umount", str(self.folder)), check=True)

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink()
