"""The stages of `make proof`."""

import re
from pathlib import Path

from support.proof import STAGES

MAKEFILE = Path(__file__).parents[3] / "Makefile"


def test_each_stage_is_a_target_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):", MAKEFILE.read_text(), re.MULTILINE)
    assert {one.command[1] for one in STAGES if one.command[0] == "make"} <= set(targets)
