"""What passed in a run of `make kubernetes` that was ended: the next one goes on with the rest."""

import hashlib
import json
import os
from pathlib import Path

from support.deployment.image import ROOT
from support.machine.processes import run_program
from support.maven import cache_root

Rows = dict[str, list[str]]
"""The cells of the table's row of each test; none where it has no tally."""


class Progress:
    """The tests that passed on one working tree, on disk.

    A test is written down whole or not at all, whenever the process ends. Another working tree
    begins from nothing.
    """

    def __init__(self, file: Path, tree: str) -> None:
        self.tree = tree
        self._file = file
        self._passed: Rows = {}
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["tree"] == tree:
                self._passed = found["passed"]

    @property
    def passed(self) -> Rows:
        """The tests that passed, with what they counted."""
        return dict(self._passed)

    def add(self, test: str, cells: list[str]) -> None:
        """Write down that a test passed."""
        self._passed[test] = cells
        beside = self._file.with_suffix(".new")
        text = json.dumps({"tree": self.tree, "passed": self._passed})
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._file)

    def forget(self) -> None:
        """Begin from nothing with the next run."""
        self._file.unlink(missing_ok=True)


def of_this_tree() -> Progress:
    """Return the progress of the newest commit, with what was changed since."""
    return Progress(cache_root() / "kubernetes-progress.json", _tree())


def _tree() -> str:
    """Return the commit, and where files differ from it a sum of the differences."""
    commit = _git("rev-parse", "--short", "HEAD").strip() or "no commit"
    changes = _git("diff", "HEAD") + _git("status", "--porcelain")
    sum_of_them = hashlib.sha256(changes.encode()).hexdigest()[:8]
    return f"{commit} with changes {sum_of_them}" if changes else commit


def _git(*arguments: str) -> str:
    done = run_program(["git", *arguments], cwd=ROOT, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"})
    return done.stdout
