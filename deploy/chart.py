"""Makes values.schema.json of the Helm chart: `python deploy/chart.py`.

What is said of a value stands above it in values.yaml, and its type is that of its default. In
such a comment

- `@schema {...}` adds words of JSON Schema,
- `@free` says that any keys may stand below,
- `@ignore` says that the value is described elsewhere.

Below `config` the schema is that of the sidecar's own options.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from amqsidecar.config.schema import Config

_OURS = ("title", "unit", "why")
"""Keys that pydantic and this module add to JSON Schema."""


def options_schema() -> dict[str, Any]:
    """Return a schema of the configuration file: closed, no references, with help and defaults."""
    schema = Config.model_json_schema()
    definitions = schema.pop("$defs")

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            named = definitions[node["$ref"].rpartition("/")[2]]
            node = named | {key: value for key, value in node.items() if key != "$ref"}
        help_text = _help(node)
        kept = {
            key: {name: plain(item) for name, item in value.items()}
            if key == "properties"
            else plain(value)
            for key, value in node.items()
            if key not in _OURS and value is not None
        }
        return kept | ({"description": help_text} if help_text else {})

    result = plain(schema)
    assert isinstance(result, dict)
    return result


def _help(node: dict[str, Any]) -> str:
    """Return the description for operators: help, unit, and the reason of the default."""
    words = [node.get("description", "")]
    if node.get("unit"):
        words.append(f"In {node['unit']}.")
    if node.get("why"):
        words.append(f"Why this default: {node['why']}.")
    return " ".join(word for word in words if word)


CHART = Path(__file__).parents[1] / "helm" / "amqsidecar"

FROM_HELM = {
    "global": {"type": "object", "description": "What Helm gives to all charts of a release."},
    "enabled": {
        "type": "boolean",
        "description": "For a chart that has this one as a dependency with a condition.",
    },
}

TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


@dataclass
class Value:
    """A value of the chart.

    Attributes:
        key: dotted.
        help: sentences.
        words: of JSON Schema.
    """

    key: str
    default: Any
    help: str = ""
    words: dict[str, Any] = field(default_factory=dict)
    is_free: bool = False
    is_ignored: bool = False


def read_values(text: str) -> list[Value]:
    """Return all values with what their comments say, parents before what is below them."""
    tree = YAML(typ="safe", pure=True).load(text)
    found: list[Value] = []
    path: list[str] = []
    free_depth: int | None = None
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        depth = (len(line) - len(line.lstrip())) // 2
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        if not stripped:
            comment = []
            continue
        if free_depth is not None and depth > free_depth:
            continue
        free_depth = None
        path[depth:] = [stripped.partition(":")[0]]
        value = _described(".".join(path), _at(tree, path), comment)
        if value.is_free:
            free_depth = depth
        found.append(value)
        comment = []
    return found


def _described(key: str, default: Any, comment: list[str]) -> Value:
    value = Value(key, default)
    words = []
    for line in comment:
        marker, _, rest = line.partition(" ")
        if marker == "@schema":
            value.words |= json.loads(rest)
        elif marker == "@free":
            value.is_free = True
        elif marker == "@ignore":
            value.is_ignored = True
        else:
            words.append(line)
    value.help = " ".join(words)
    return value


def _at(tree: Any, path: list[str]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def values_schema() -> str:
    """Return values.schema.json."""
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart amqsidecar",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(FROM_HELM),
    }
    for value in read_values((CHART / "values.yaml").read_text(encoding="utf-8")):
        *parents, name = value.key.split(".")
        if parents[:1] == ["config"]:
            continue
        place = root
        for parent in parents:
            place = place["properties"][parent]
        place["properties"][name] = _schema_of(value)
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def _schema_of(value: Value) -> dict[str, Any]:
    if value.key == "config":
        return options_schema() | {"description": value.help}
    schema: dict[str, Any] = {"type": TYPES[type(value.default)]}
    if value.help:
        schema["description"] = value.help
    if isinstance(value.default, dict) and not value.is_free:
        schema |= {"additionalProperties": False, "properties": {}}
    else:
        schema["default"] = value.default
    return schema | value.words


def main() -> None:
    """Write the schema."""
    (CHART / "values.schema.json").write_text(values_schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
