"""Jobs that run in this process as their commands do, and the tables that they wrote."""

import os
import sys
from pathlib import Path
from typing import Any

from pyarrow import parquet

from amqsidecar.cli.main import run_command_line
from support.machine.processes import run_program


def run_job(job: str, events: Path, out: Path, *more: str) -> int:
    """Return the exit code of a job over a history; it finds the session of the tests."""
    folders = ("--events", str(events), "--output-folder", str(out))
    return run_command_line(["pipeline", job, *folders, *more])


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    found: list[dict[str, Any]] = parquet.read_table(table).to_pylist()
    return found


def tables_in(out: Path) -> dict[str, list[str]]:
    """Return the rows of each whole table of a job as text, in an order of their own."""
    folders = sorted(one.parent for one in out.glob("*/_SUCCESS"))
    return {one.name: sorted(map(repr, rows_of(one))) for one in folders}


def installed(folder: Path, *packages: str) -> dict[str, str]:
    """Return the environment of a Python that finds packages before its own."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run_program([*pip, "--no-compile", "--target", folder, *packages], code=0)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.getenv("PYTHONPATH"))))}
