"""Every package that the product imports is declared, so that a resolver keeps it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normalised(requirement: str) -> str:
    """Return the name of a requirement's distribution, as PEP 503 compares names."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def imported() -> Iterator[tuple[str, Path]]:
    """Yield each foreign top-level package, and the file that imports it."""
    places = [ROOT / "sidecar", ROOT / "plugins"]
    known = {*sys.stdlib_module_names, *(one.name for place in places for one in place.iterdir())}
    for path in chain.from_iterable(place.rglob("*.py") for place in places):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            yield from ((top, path) for one in names if (top := one.partition(".")[0]) not in known)


def test_each_imported_package_is_declared() -> None:
    extras = PROJECT["optional-dependencies"].values()
    declared = {normalised(one) for one in chain(PROJECT["dependencies"], *extras)}
    # Why: a checkout's environment may be older than this extra.
    distributions = {"dns": ["dnspython"], **packages_distributions()}
    undeclared = {
        f"{path.relative_to(ROOT)} imports {top}"
        for top, path in imported()
        if not declared & {normalised(one) for one in distributions.get(top, [top])}
    }
    assert undeclared == set()
