"""The hooks before a commit are the checks of `make check`, and fetch nothing."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def repositories() -> list[dict[str, Any]]:
    repositories: list[dict[str, Any]] = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")[
        "repos"
    ]
    return repositories


def test_hooks_need_no_other_repository(repositories: list[dict[str, Any]]) -> None:
    """All of them run what is installed in the checkout."""
    assert [found["repo"] for found in repositories] == ["local"]
    entries = [hook["entry"] for found in repositories for hook in found["hooks"]]
    assert [entry for entry in entries if not entry.startswith(".venv/bin/")] == []
    assert {hook["language"] for found in repositories for hook in found["hooks"]} == {"system"}


def test_each_static_check_of_make_check_is_a_hook(repositories: list[dict[str, Any]]) -> None:
    """Formatting, lint, types and import contracts; the tests are for `make check`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.split("\nstatic: ")[1].split("\n\n")[0]
    programs = set(re.findall(r"\$\(BIN\)/(ruff \w+|[\w-]+)", recipe))
    assert programs >= {"ruff format", "ruff check", "mypy", "lint-imports"}
    entries = [hook["entry"] for found in repositories for hook in found["hooks"]]
    missing = {name for name in programs if not any(f"bin/{name}" in one for one in entries)}
    assert missing == set()
