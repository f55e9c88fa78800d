"""Prints the size of the project: `make measures`. Nothing fails on a number.

All counts are static: by syntax tree, by name, by line.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("sidecar", "plugins")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SQL_HEAD = "-- name: "
# Classes of `brokers/` with these endings implement the sessions of `broker.py`.
_SESSIONS = ("Session", "Look", "Take", "Move")


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below folders of the project, in order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def count_lines(paths: list[Path]) -> int:
    """Return the number of lines, blank lines and comments included."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def count_words() -> int:
    """Return the words of all Markdown documents."""
    folders = ("sidecar", "plugins", "tests", "deploy", "helm", ".github")
    documents = [
        *ROOT.glob("*.md"),
        *(one for name in folders for one in (ROOT / name).rglob("*.md")),
    ]
    return sum(len(path.read_text(encoding="utf-8").split()) for path in documents)


@lru_cache(maxsize=1)
def product_trees() -> Mapping[Path, ast.Module]:
    """Return the syntax tree of each product file."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in python_files(*PRODUCT)}


def count_parameters() -> tuple[int, int]:
    """Return all parameters but self and cls, and those that a function only hands on.

    A parameter is handed on if each use of it is an argument of a call.
    """
    total = handed_on = 0
    for tree in product_trees().values():
        for function in ast.walk(tree):
            if isinstance(function, _FUNCTIONS):
                names = _parameters(function)
                total += len(names)
                uses = _uses(function)
                handed_on += sum(1 for name in names if uses.get(name) == {True})
    return total, handed_on


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [one.arg for one in every if one.arg not in ("self", "cls")]


def _uses(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, set[bool]]:
    """Return for each name that is read whether it is read as an argument, elsewhere, or both."""
    found: dict[str, set[bool]] = {}
    arguments = {
        id(one)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        for one in (*call.args, *(word.value for word in call.keywords))
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, set()).add(id(node) in arguments)
    return found


def count_inheritance() -> tuple[int, int]:
    """Return the most ancestors of a link's session, and the number of type variables."""
    parents: dict[str, dict[str, list[str]]] = {}
    variables = 0
    for path, tree in product_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [name for base in node.bases if (name := _base_name(base))]
                parents.setdefault(node.name, {})[str(path)] = bases
            variables += isinstance(node, ast.Call) and _base_name(node.func) == "TypeVar"
    sessions = [
        _ancestors(name, path, parents)
        for name, classes in parents.items()
        for path in classes
        if name.endswith(_SESSIONS) and "brokers" in Path(path).parts
    ]
    return max(map(len, sessions)), variables


def _base_name(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else ""


def _ancestors(name: str, path: str, parents: Mapping[str, dict[str, list[str]]]) -> set[str]:
    """Return the ancestors that are ours; of several classes of a name that of the same file."""
    found: set[str] = set()
    waiting = [(one, path) for one in parents[name][path]]
    while waiting:
        one, beside = waiting.pop()
        if one not in found and (classes := parents.get(one)):
            found.add(one)
            place = beside if beside in classes else next(iter(classes))
            waiting += [(base, place) for base in classes[place]]
    return found


def count_queries() -> int:
    """Return the number of named SQL statements."""
    files = (ROOT / "sidecar").rglob("*.sql")
    return sum(path.read_text(encoding="utf-8").count(_SQL_HEAD) for path in files)


def count_late_imports() -> int:
    """Return the imports inside functions of `cli/`."""
    return sum(
        1
        for path, tree in product_trees().items()
        if "cli" in path.relative_to(ROOT).parts
        for function in ast.walk(tree)
        if isinstance(function, _FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def measures() -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each measure."""
    parameters, handed_on = count_parameters()
    ancestors, variables = count_inheritance()
    yield "lines of Python in sidecar and plugins", f"{count_lines(python_files(*PRODUCT)):,}"
    yield "lines of Python in tests", f"{count_lines(python_files('tests')):,}"
    yield "words of documents", f"{count_words():,}"
    yield "parameters only handed on, of all", f"{handed_on:,} of {parameters:,}"
    yield "ancestors of a session, type variables", f"{ancestors}, {variables}"
    yield "named SQL statements", f"{count_queries():,}"
    yield "imports inside functions of cli/", f"{count_late_imports():,}"


if __name__ == "__main__":
    for measure, value in measures():
        print(f"{measure:<40}{value:>18}")
