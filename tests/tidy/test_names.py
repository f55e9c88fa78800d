"""A public class or type alias has a name of its own in the whole code."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def public_names(code: str) -> Iterator[str]:
    """Yield the names of public classes and of type aliases that a module defines."""
    for node in ast.parse(code).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.isupper():
                pass
            case _:
                continue
        if name[0].isupper():
            yield name


def test_classes_and_type_aliases_are_found() -> None:
    code = "class Row: ...\nPlace = tuple[str, str]\nclass _Own: ...\nLIMIT = 3\nrow = Row()\n"
    assert list(public_names(code)) == ["Row", "Place"]


def test_each_public_name_is_defined_once() -> None:
    places = defaultdict(list)
    for folder in ("sidecar", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in public_names(path.read_text(encoding="utf-8")):
                places[name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
