"""Where Spark does not start, a command says what it lacks."""

import os
import subprocess
import sys
from pathlib import Path


def test_without_java_a_job_says_that_it_needs_it(tmp_path: Path) -> None:
    job = ["causes", "--events", str(tmp_path), "--output-folder", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "amqsidecar", "pipeline", *job],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "absent")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "It needs Java 17 or later" in done.stderr
    assert "Traceback" not in done.stderr
