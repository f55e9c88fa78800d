"""A forked command behaves as one that was started: exit code, streams, folder, environment."""

import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from amqsidecar import __version__
from support.machine.ports import free_port
from support.machine.processes import run_program
from support.sidecar import forked
from support.sidecar.process import COMMAND
from support.waiting import PATIENCE_S


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["nonsense"], ["list", "--set", "store.url=sqlite:///missing.db"], ["status"]],
    ids=lambda arguments: arguments[0],
)
def test_it_prints_and_ends_as_the_command_does(arguments: list[str], tmp_path: Path) -> None:
    environ = {"AMQSIDECAR_STORE__URL": "sqlite:///elsewhere.db", "LANG": "C.UTF-8"}
    one = forked.run(arguments, timeout=PATIENCE_S, env=environ, cwd=tmp_path)
    other = run_program([*COMMAND, *arguments], timeout=PATIENCE_S, env=environ, cwd=tmp_path)
    assert (one.returncode, one.stdout, one.stderr) == (
        other.returncode,
        other.stdout,
        other.stderr,
    )


def test_commands_run_beside_each_other_and_each_reports_its_own_end(tmp_path: Path) -> None:
    waits = ["run", "--set", f"broker.url=openwire://127.0.0.1:{free_port()}"]
    sets = ["--set", "http.listen=127.0.0.1:0", "--set", "store.url=sqlite:///{}.db"]
    with tempfile.TemporaryFile("w+") as log:
        killed, stopped = (
            forked.start(
                [*waits, *(part.format(name) for part in sets)],
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
            for name in "ab"
        )
        assert killed.pid != stopped.pid
        assert killed.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            killed.wait(0)
        killed.kill()
        assert killed.wait(PATIENCE_S) == -signal.SIGKILL
        assert stopped.poll() is None
        stopped.send_signal(signal.SIGSTOP)
        stopped.kill()
        assert stopped.wait() == stopped.poll() == -signal.SIGKILL
    done = forked.run(["--version"], timeout=PATIENCE_S)
    assert done.stdout == f"amqsidecar {__version__}\n"


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    url = f"broker.url=openwire://127.0.0.1:{free_port()}"
    sets = [url, "http.listen=127.0.0.1:0", f"store.url=sqlite://{tmp_path}/own.db"]
    arguments = ["run", *(part for one in sets for part in ("--set", one))]
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(arguments, timeout=0.5, cwd=tmp_path)


def test_a_variable_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="LD_PRELOAD has no effect on a forked process"):
        forked.run(["--version"], timeout=PATIENCE_S, env={"LD_PRELOAD": "/none.so"})
