"""Which files of the product call a function."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import amqsidecar

_PACKAGE = Path(amqsidecar.__file__).parent


def calls(name: str) -> set[str]:
    """Return the files that call a function or method of a name."""
    return _files_by_name()[name]


@cache
def _files_by_name() -> Mapping[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    found[name].add(file.relative_to(_PACKAGE).as_posix())
    return found
