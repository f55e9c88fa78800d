"""What the image is made of has the same versions as what is tested."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[2] / "deploy" / "requirements"


def pins(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["runtime-journal.txt", "dev.txt"])
def test_all_of_the_runtime_is_there_in_the_same_version(name: str) -> None:
    assert pins("runtime.txt").items() <= pins(name).items()


def test_a_plain_install_has_nothing_that_is_compiled_where_it_is_installed() -> None:
    assert pins("runtime-plain.txt").items() <= pins("runtime.txt").items()
    assert pins("runtime.txt").keys() - pins("runtime-plain.txt").keys() >= {"python-qpid-proton"}


def test_what_is_tested_and_what_builds_agree_where_both_name_it() -> None:
    tested = pins("dev.txt")
    for name in ("runtime-journal.txt", "runtime-mcp.txt", "build.txt", "wheels.txt"):
        both = tested.keys() & pins(name).keys()
        assert {one: pins(name)[one] for one in both} == {one: tested[one] for one in both}
