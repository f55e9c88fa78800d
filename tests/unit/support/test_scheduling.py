"""The longest files begin first, and a crash of a worker ends no run."""

import os
import subprocess
import sys
from pathlib import Path

from support.scheduling import LONGEST

ROOT = Path(__file__).parents[3]


def test_each_file_that_is_named_exists() -> None:
    assert [one for one in LONGEST if not (ROOT / one).exists()] == []


def test_a_worker_that_crashes_hands_over_only_the_files_that_it_has_not_finished(
    tmp_path: Path,
) -> None:
    """A worker that gets a finished file has nothing to run, and so never asks for another one."""
    (tmp_path / "conftest.py").write_text(
        "from support.scheduling import scheduler_for\n"
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    return scheduler_for(config, log)\n"
    )
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text("def test_passes(): pass\n")
    (tmp_path / "test_d.py").write_text(
        "import os, pathlib\n"
        "def test_crashes_once():\n"
        "    crashed = pathlib.Path(__file__).with_name('crashed')\n"
        "    if not crashed.exists():\n"
        "        crashed.touch()\n"
        "        os._exit(9)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = "-q -n1 --dist=loadfile --no-loadscope-reorder -p xdist -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "crashed while running 'test_d.py::test_crashes_once'" in done.stdout
    assert "1 failed, 4 passed" in done.stdout
