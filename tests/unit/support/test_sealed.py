"""A sealed command ends with the process that started it, and leaves nothing behind for good."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.machine.sealed import FOLDER_VARIABLE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may have namespaces")

TESTS = Path(__file__).parents[2]
SEALED = (sys.executable, "-m", "support.machine.sealed")
SAY_AND_STAY = f'echo "${FOLDER_VARIABLE}"; exec sleep infinity'


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(TESTS)}


@contextmanager
def staying() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A sealed command that stays, and its folder."""
    command = [*SEALED, "sh", "-c", SAY_AND_STAY]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as sealed:
        assert sealed.stdout is not None
        try:
            yield sealed, Path(sealed.stdout.readline().strip())
        finally:
            sealed.terminate()


def seal_another() -> None:
    subprocess.run([*SEALED, "true"], env=environment(), check=True)


def test_a_killed_seal_ends_its_command_and_the_next_one_cleans_up() -> None:
    with staying() as (sealed, folder):
        assert folder.is_dir()
        sealed.send_signal(signal.SIGKILL)
        sealed.wait()
        # The pipe ends only when nobody holds it: the command has ended, too.
        assert sealed.stdout is not None
        assert sealed.stdout.read() == ""
    assert folder.is_dir()
    seal_another()
    assert not folder.exists()


def test_the_folder_of_a_command_that_runs_is_left_alone() -> None:
    with staying() as (sealed, folder):
        seal_another()
        assert folder.is_dir()
        sealed.send_signal(signal.SIGTERM)
        assert sealed.wait() == 128 + signal.SIGTERM
    assert not folder.exists()
