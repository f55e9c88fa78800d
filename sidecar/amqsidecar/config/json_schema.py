"""The options as JSON Schema, for editors and for the Helm chart's values."""

from typing import Any, Final

from amqsidecar.config.schema import Config

_OURS: Final = ("title", "unit", "why")
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
    assert isinstance(result, dict)  # noqa: S101 - what goes in comes out
    return result


def _help(node: dict[str, Any]) -> str:
    """Return the description for operators: help, unit, and the reason of the default."""
    words = [node.get("description", "")]
    if node.get("unit"):
        words.append(f"In {node['unit']}.")
    if node.get("why"):
        words.append(f"Why this default: {node['why']}.")
    return " ".join(word for word in words if word)
