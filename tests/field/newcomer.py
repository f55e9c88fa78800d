"""The newcomer's hour as a page of the evidence: the README's commands with the time of each.

    PYTHONPATH=tests python -m field.newcomer          # make newcomer; as root

`field.readme` runs them as they are printed, on stock brokers, and fails where one fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from field.readme import REDELIVERED, ROOT
from support.sidecar.plain_install import plain_wheels
from support.versions import ARTEMIS, CLASSIC_5, CLASSIC_6

PAGE: Final = ROOT / "deploy" / "evidence" / "newcomer.md"
_STEP: Final = re.compile(
    rf"^ *([\d.]+) s  (?:\$ (.*)|(a stock .*|a message was sent .*|{re.escape(REDELIVERED)}))$",
    re.MULTILINE,
)
_HEAD: Final = """\
# The newcomer's hour

With the commands of the [README](../../README.md), as they are printed, somebody gets from
`pip install` to the first redelivery on an own stock broker.

## Test

`make newcomer` runs them on stock brokers in a network of its own, fails where a command fails, and
writes this page. `make test` runs them on Classic {classic_5} and Artemis, and compares this page's
commands with the README's.

- pip is given wheels only, from a folder on this machine, so that nothing is compiled and nothing
  is downloaded.
- The brokers are in the cache. A person's reading and typing is not included.
- Before `amqsidecar status`, an application sends a message to `orders`, and its consumer fails.
"""


def transcript_of(kind: str, version: str, folder: Path) -> str:
    """Run a newcomer's way in a network of its own; return what was printed, with seconds.

    Raises:
        AssertionError: a command failed; the text is the transcript.
    """
    wheels = folder / "wheels"
    shutil.copytree(plain_wheels(), wheels)
    way = [sys.executable, "-m", "field.readme", kind, version, str(folder)]
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


def table(transcript: str) -> str:
    """Return each step with the second at which it began and how long it took."""
    steps = [(float(at), command, words) for at, command, words in _STEP.findall(transcript)]
    rows = ["| step | begins at | takes |", "|---|---|---|"]
    for (began_s, command, words), (ended_s, *_) in pairwise(steps):
        rows.append(
            f"| {_printed(command) or words} | {began_s:.1f} s | {ended_s - began_s:.1f} s |"
        )
    return "\n".join([*rows, f"| {steps[-1][2]} | {steps[-1][0]:.1f} s | |"])


def _printed(command: str) -> str:
    """Return a command as the README prints it: with a placeholder for the message's id."""
    if not command:
        return ""
    line, goes_on, _ = command.partition("   (goes on)")
    line = re.sub(r"^(amqsidecar (?:hold|show|release|retry)) \S+$", r"\1 ID", line)
    return f"`{line}`, which goes on" if goes_on else f"`{line}`"


def page(transcripts: Mapping[str, str], load: float) -> str:
    """Return the page.

    Args:
        transcripts: by the broker's name and version.
        load: how many processes wanted a processor when it began.
    """
    machine = f"Measured on {os.cpu_count()} processors, of which {load:.1f} were wanted before.\n"
    sections = (f"## On {name}\n\n{table(text)}\n" for name, text in transcripts.items())
    return "\n".join((_HEAD.format(classic_5=CLASSIC_5), machine, *sections))


def main() -> int:
    """Run both ways and write the page."""
    load = os.getloadavg()[0]
    transcripts = {}
    for kind, version in (("classic", CLASSIC_6), ("artemis", ARTEMIS)):
        with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
            transcript = transcript_of(kind, version, Path(name))
        print(transcript)
        transcripts[f"{kind.capitalize()} {version}"] = transcript
    PAGE.write_text(page(transcripts, load), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
