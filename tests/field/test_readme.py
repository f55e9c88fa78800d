"""The README's own way works: each command as it is printed, on a stock broker of each kind."""

import csv
import os
import re
from pathlib import Path

import pytest

from field.newcomer import TABLE, transcript_of
from field.readme import REDELIVERED, ROOT, blocks, commands_of
from support.tier import at_length
from support.versions import ARTEMIS, CLASSIC_5

WORDS_MAX = 900
DEMO = "amqsidecar demo"


@pytest.mark.broker
@pytest.mark.timeout(900)  # at length with the whole demo
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
# Why in proof: a plain install on Artemis, its `init` and its `doctor` have tests of their own.
@pytest.mark.parametrize("kind", ["classic", pytest.param("artemis", marks=pytest.mark.proof)])
def test_a_newcomer_gets_to_a_first_redelivery(kind: str, tmp_path: Path) -> None:
    version = {"classic": CLASSIC_5, "artemis": ARTEMIS}[kind]
    # Why not: `end_to_end/operators/test_demo.py` runs it.
    left_out = at_length((), otherwise=(DEMO,))
    assert DEMO in commands_of("artemis")
    transcript = transcript_of(kind, version, tmp_path, *left_out)
    print(transcript)
    assert REDELIVERED in transcript


def test_the_newcomers_hour_has_each_command_of_the_readme_in_order() -> None:
    rows = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    for kind in ("classic", "artemis"):
        steps = [row["step"] for row in rows if row["broker"].lower().startswith(kind)]
        named = [re.sub(r" \(goes on\)$", "", step) for step in steps[:-1]]
        assert [step for step in named if not step.startswith("a ")] == commands_of(kind)
        assert steps[-1] == REDELIVERED


def test_the_readme_is_short_and_teaches_no_password_on_a_command_line() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS_MAX
    assert not re.search(r"://[^\s/@]+:[^\s/@]+@", text)
    assert "--set" not in " ".join(command for _, block in blocks() for command in block)
