"""SQL files with one named query each; nothing is put together at run time.

A query begins with `-- name: <name>` and a sentence on its purpose. `-- fragment: <name>` begins a
piece that queries and later pieces repeat as `{name}`. `-- name: list_* all kept` makes the queries
`list_all` and `list_kept` of one text, in which `{up_*}` is `{up_all}` or `{up_kept}`, and
`{variant}` is the word itself.
"""

import re
from importlib import resources

_HEAD = re.compile(r"^-- (name|fragment): ([\w*]+)([\w ]*)$", re.MULTILINE)
_VARIED = re.compile(r"\{(\w*)\*(\w*)\}")


def read_queries(*texts: str) -> dict[str, str]:
    """Return the queries of the texts of files, by name.

    Raises:
        KeyError: a query repeats a fragment that no text has up to there.
    """
    parts = _HEAD.split("\n".join(texts))[1:]
    fragments: dict[str, str] = {}
    queries: dict[str, str] = {}
    for kind, name, variants, body in zip(*(parts[at::4] for at in range(4)), strict=True):
        lines = (line for line in body.splitlines() if line and not line.startswith("--"))
        text = "\n".join(lines).strip().rstrip(";")
        found = fragments if kind == "fragment" else queries
        for variant in variants.split() or [""]:
            varied = _VARIED.sub(rf"{{\g<1>{variant}\g<2>}}", text)
            found[name.replace("*", variant)] = varied.format_map(fragments | {"variant": variant})
    return queries


def read_sql(file_name: str) -> str:
    """Return the text of a SQL file beside this module."""
    return resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
