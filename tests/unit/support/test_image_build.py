"""`deploy/image/build` hands base images to the engine; a release takes them only by digest."""

import os
import subprocess
from pathlib import Path

import pytest

from support.machine.processes import run_program

BUILD = Path(__file__).parents[3] / "deploy" / "image" / "build"
BY_DIGEST = f"python:3.11-slim-bookworm@sha256:{'a' * 64}"


def build(**variables: str) -> "subprocess.CompletedProcess[str]":
    """Run it with an engine that prints its arguments."""
    unset = {"BASE", "BUILDER", "RELEASE"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return run_program([str(BUILD)], env={**kept, "ENGINE": "echo", **variables})


def test_a_base_by_digest_is_handed_on_and_labelled() -> None:
    done = build(RELEASE="1", BASE=BY_DIGEST, BUILDER=BY_DIGEST)
    assert done.returncode == 0, done.stderr
    assert f"--build-arg BASE={BY_DIGEST}" in done.stdout
    assert f"--build-arg BUILDER={BY_DIGEST}" in done.stdout
    assert f"--build-arg BASE_DIGEST=sha256:{'a' * 64} " in done.stdout


def test_outside_of_a_release_a_tag_will_do_and_so_does_none() -> None:
    done = build(BASE="python:3.12-slim")
    assert done.returncode == 0, done.stderr
    assert "--build-arg BASE=python:3.12-slim " in done.stdout
    assert "--build-arg BASE_DIGEST= " in done.stdout
    assert "--build-arg BUILDER=" not in done.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"BASE": BY_DIGEST},
        {"BASE": "python:3.11-slim-bookworm", "BUILDER": BY_DIGEST},
        {"BASE": f"{BY_DIGEST}0", "BUILDER": BY_DIGEST},
    ],
    ids=["none", "no builder", "a tag", "no digest"],
)
def test_a_release_refuses_what_can_change(variables: dict[str, str]) -> None:
    done = build(RELEASE="1", **variables)
    assert done.returncode == 1
    assert done.stdout == ""
    name = "BUILDER" if variables.get("BASE") == BY_DIGEST else "BASE"
    assert f"set {name}=NAME@sha256:..." in done.stderr
