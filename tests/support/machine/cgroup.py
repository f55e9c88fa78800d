"""A control group with a limit of memory, for a process that a test begins."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A control group, of version 1 or 2."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pid: int) -> None:
        """Put a process into it."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def command(self, program: Sequence[str]) -> list[str]:
        """Return a command that runs a program in it from its first byte on."""
        procs = str(self._folder / "cgroup.procs")
        return ["sh", "-c", 'echo $$ > "$0"; exec "$@"', procs, *program]

    @property
    def peak_bytes(self) -> int:
        """The most that it had."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if (self._folder / name).exists():
                return int((self._folder / name).read_text(encoding="ascii"))
        return 0


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make one while the block runs; skips the test where this user may not."""
    is_second = (_ROOT / "cgroup.controllers").exists()
    folder = (_ROOT if is_second else _ROOT / "memory") / f"amqsidecar-test-{os.getpid()}"
    limit = "memory.max" if is_second else "memory.limit_in_bytes"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(limit_bytes))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield MemoryGroup(folder)
    finally:
        folder.rmdir()
