"""A plan of bulk redelivery by hand, and the command that executes it."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.sidecar import forked
from support.sidecar.process import COMMAND

PLAN_ID = "0123456789abcdef"


def write_plan(folder: Path, rows: Sequence[Mapping[str, Any]], plan_id: str = PLAN_ID) -> Path:
    """Write rows as Spark would: two files, and `_SUCCESS` at last.

    Args:
        folder: made for it.
        rows: with `redelivery_id`, `source`, `destination`; the rest has defaults.
        plan_id: names the plan.
    """
    folder.mkdir()
    numbered = [
        {"plan_id": plan_id, "number": number, "place": "queue", "sidecar": "s", "offset_ms": 0}
        | dict(row)
        for number, row in enumerate(rows)
    ]
    half = len(numbered) // 2
    for part, piece in enumerate((numbered[:half], numbered[half:])):
        if piece:
            pq.write_table(pa.Table.from_pylist(piece), folder / f"part-{part:05}-x.parquet")
    (folder / "_SUCCESS").touch()
    return folder


class RedriveProcess:
    """One `amqsidecar redrive` after the other, with the same plan and state."""

    def __init__(self, plan: Path, state: Path, url: str, *arguments: str) -> None:
        self.command = [
            *COMMAND,
            "redrive",
            f"--plan={plan}",
            f"--state={state}",
            "--output=json",
            f"--set=broker.url={url}",
            *arguments,
        ]

    def run(self, *, expect: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run until it ends by itself."""
        arguments = self.command[len(COMMAND) :]
        done = forked.run(arguments, timeout=120, env={**os.environ, **environ})
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done

    def outcome(self) -> Any:
        """Run to the end, and return the output."""
        return json.loads(self.run().stdout)

    def dies(self, place: str) -> None:
        """Run until it is killed at a crash point such as `stored:2`."""
        self.run(expect=-signal.SIGKILL, AMQSIDECAR_CRASH_POINT=place)

    def start(self) -> subprocess.Popen[str]:
        """Start it."""
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
