"""Which files of the product call a function."""

import ast
from pathlib import Path

import amqsidecar

_PACKAGE = Path(amqsidecar.__file__).parent


def calls(name: str) -> set[str]:
    """Return the files that call a function or method of a name."""
    found = set()
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                text = called.attr if isinstance(called, ast.Attribute) else ""
                if name in (text, getattr(called, "id", "")):
                    found.add(file.relative_to(_PACKAGE).as_posix())
    return found
