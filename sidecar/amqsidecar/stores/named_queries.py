"""SQL files with one named query each; nothing is put together at run time.

A query begins with `-- name: <name>` and a sentence on its purpose. `-- fragment: <name>` begins a
piece that queries and later pieces repeat as `{name}`.
"""

import re
from importlib import resources

_HEAD = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)


def read_queries(*file_names: str) -> dict[str, str]:
    """Return the queries of SQL files beside this module, by name.

    Raises:
        KeyError: a query repeats a fragment that no file has up to there.
    """
    parts = _HEAD.split("".join(map(read_sql, file_names)))
    fragments: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        lines = (line for line in body.splitlines() if line and not line.startswith("--"))
        text = "\n".join(lines).strip().rstrip(";")
        if kind == "fragment":
            fragments[name] = text.format_map(fragments)
        else:
            queries[name] = text.format_map(fragments)
    return queries


def read_sql(file_name: str) -> str:
    """Return the text of a SQL file beside this module."""
    return resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
