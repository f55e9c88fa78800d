"""The newcomer's hour as a record: the README's commands with the time of each.

    PYTHONPATH=tests python -m field.newcomer          # make newcomer; as root

`field.readme` runs them as they are printed, on stock brokers, and fails where one fails.
"""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from field.readme import REDELIVERED, ROOT
from support.sidecar.plain_install import plain_wheels
from support.versions import ARTEMIS, CLASSIC_6

TABLE: Final = ROOT / "deploy" / "evidence" / "records" / "newcomer.csv"
_STEP: Final = re.compile(
    rf"^ *([\d.]+) s  (?:\$ (.*)|(a stock .*|a message was sent .*|{re.escape(REDELIVERED)}))$",
    re.MULTILINE,
)


def transcript_of(kind: str, version: str, folder: Path, *left_out: str) -> str:
    """Run a newcomer's way in a network of its own; return what was printed, with seconds.

    Args:
        left_out: commands that are not run.

    Raises:
        AssertionError: a command failed; the text is the transcript.
    """
    wheels = folder / "wheels"
    shutil.copytree(plain_wheels(), wheels)
    way = [sys.executable, "-m", "field.readme", kind, version, str(folder), *left_out]
    done = subprocess.run(
        [sys.executable, "-m", "support.machine.sealed", "env", *way],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def steps_of(transcript: str) -> list[Sequence[str]]:
    """Return each step with the second at which it began and how long it took."""
    steps = [(float(at), command, words) for at, command, words in _STEP.findall(transcript)]
    rows: list[Sequence[str]] = []
    for (began_s, command, words), (ended_s, *_) in pairwise(steps):
        rows.append((_printed(command) or words, f"{began_s:.1f}", f"{ended_s - began_s:.1f}"))
    return [*rows, (steps[-1][2], f"{steps[-1][0]:.1f}", "")]


def _printed(command: str) -> str:
    """Return a command as the README prints it: with a placeholder for the message's id."""
    if not command:
        return ""
    line, goes_on, _ = command.partition("   (goes on)")
    line = re.sub(r"^(amqsidecar (?:hold|show|release|retry)) \S+$", r"\1 ID", line)
    return f"{line} (goes on)" if goes_on else line


def table(transcripts: Mapping[str, str]) -> str:
    """Return all steps as CSV.

    Args:
        transcripts: by the broker's name and version.
    """
    rows = ((name, *step) for name, text in transcripts.items() for step in steps_of(text))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((("broker", "step", "began at s", "took s"), *rows))
    return text.getvalue()


def main() -> int:
    """Run the commands on both brokers and write the table."""
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    transcripts = {}
    for kind, version in (("classic", CLASSIC_6), ("artemis", ARTEMIS)):
        with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
            transcript = transcript_of(kind, version, Path(name))
        print(transcript)
        transcripts[f"{kind.capitalize()} {version}"] = transcript
    TABLE.write_text(table(transcripts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
