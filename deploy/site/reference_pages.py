"""Reference pages of the site that are made of the code.

They are the commands, the HTTP API, events, the plugin API, the tables of journal and pipeline, the
chart's values and the packets of Core.
"""

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import typer
from pyspark.sql.types import StructType

from amqsidecar import plugin
from amqsidecar.cli.main import app
from amqsidecar.formats.core.packet_format import PacketFormat
from amqsidecar.formats.core.packets import FORMATS
from amqsidecar.http.api.api import endpoints
from amqsidecar.http.api.openapi import document
from amqsidecar.model.event import AnyEvent, Event
from amqsidecar.pipeline import tables

VALUES = Path(__file__).parents[2] / "helm" / "amqsidecar" / "values.schema.json"


def command_page() -> str:
    """Return the help of every command."""
    group = typer.main.get_command(app)
    lines = ["# Commands", *_command("amqsidecar", group, 1)]
    return "\n\n".join(lines) + "\n"


def _command(path: str, command: Any, level: int) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    command = context.command
    if level > 1:
        yield f"{'#' * level} {path.removeprefix('amqsidecar ')}"
    yield f"```text\n{command.get_help(context).strip()}\n```"
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from _command(f"{path} {name}", command.get_command(context, name), level + 1)


def api_page() -> str:
    """Return the endpoints and schemas of the OpenAPI document."""
    no_queries: Any = None  # the document is made of the table alone; nothing is asked
    found = document(endpoints(no_queries))
    lines = ["# HTTP API", found["info"]["description"]]
    lines.append("The same as an OpenAPI 3.1 document: `GET /api/v1/openapi.json` of a sidecar.")
    lines.append("## Endpoints")
    for path, item in found["paths"].items():
        for method, operation in item.items():
            lines += [f"### {method.upper()} {path}", operation["summary"], *_operation(operation)]
    lines.append("## Schemas")
    for name, schema in found["components"]["schemas"].items():
        lines += [f"### {name}", _cell(schema.get("description", ""))]
        lines += _rows(schema.get("properties", {}), schema.get("required", []))
        if "anyOf" in schema or "enum" in schema:
            lines.append(_type(schema))
    return "\n\n".join(line for line in lines if line) + "\n"


def _operation(operation: dict[str, Any]) -> Iterator[str]:
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} "
            f"| {_cell(one.get('description', ''))} |"
            for one in parameters
        ]
        yield "\n".join(["| parameter | in | type | meaning |", "|---|---|---|---|", *rows])
    if "requestBody" in operation:
        yield f"Body: {_bodies(operation['requestBody'])}"
    rows = [
        f"| {status} | {_cell(answer['description'])} | {_bodies(answer)} |"
        for status, answer in operation["responses"].items()
    ]
    yield "\n".join(["| status | meaning | body |", "|---|---|---|", *rows])


def _bodies(message: dict[str, Any]) -> str:
    content = message.get("content", {}).values()
    return ", ".join(_type(one["schema"]) for one in content if "schema" in one)


def _rows(properties: dict[str, Any], required: list[str]) -> list[str]:
    if not properties:
        return []
    rows = [
        f"| `{name}` | {_type(schema)} | {'yes' if name in required else ''} "
        f"| {_cell(schema.get('description', ''))} |"
        for name, schema in properties.items()
    ]
    return ["\n".join(["| key | type | required | meaning |", "|---|---|---|---|", *rows])]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("items"):
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def event_page() -> str:
    """Return every event with its fields."""
    lines = ["# Events", "What the history, the log and the journal record. Each event also has:"]
    lines.append(_fields(Event, ()))
    for kind in get_args(AnyEvent):
        text, _ = _docstring(kind)
        lines += [f"## {kind.__struct_config__.tag}", text, _fields(kind, Event.__struct_fields__)]
    return "\n\n".join(line for line in lines if line) + "\n"


def _fields(kind: Any, hidden: tuple[str, ...]) -> str:
    helps: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        helps |= _docstring(base)[1]
    rows = [
        f"| `{one.name}` | `{_annotation(one.type)}` "
        f"| {'yes' if one.required else ''} | {_cell(helps.get(one.name, ''))} |"
        for one in msgspec.structs.fields(kind)
        if one.name not in hidden
    ]
    head = ["| field | type | required | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) if rows else ""


def _annotation(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return text.replace("|", "\\|")


def _docstring(thing: Any) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a thing, and of each of its attributes."""
    text, _, attributes = (inspect.getdoc(thing) or "").partition("\nAttributes:\n")
    helps: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, first = line.strip().partition(":")
            helps[name] = first.strip()
        elif name:
            helps[name] += f" {line.strip()}"
    return text.strip(), helps


def plugin_page() -> str:
    """Return the names of the plugin contract with their signatures and docstrings."""
    lines = ["# Plugin API", "All of it is imported from `amqsidecar.plugin`."]
    lines.append((inspect.getdoc(plugin) or "").partition("\n")[2].strip())
    for name in plugin.__all__:
        thing = getattr(plugin, name)
        lines += [f"## {name}", *_contract(name, thing)]
    return "\n\n".join(line for line in lines if line) + "\n"


def _contract(name: str, thing: Any) -> Iterator[str]:
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        yield f"`{thing}`"
        return
    yield _code(name, thing)
    yield _prose(thing)
    if inspect.isclass(thing):
        for method, value in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(value):
                yield f"### {name}.{method}"
                yield _code(method, value)
                yield _prose(value)


def _code(name: str, thing: Any) -> str:
    try:
        signature = str(inspect.signature(thing))
    except ValueError:
        return ""
    if getattr(thing, "_is_protocol", False):
        signature = ""
    return f"```python\n{name}{signature}\n```"


def _prose(thing: Any) -> str:
    """Return a docstring with its lists of arguments as code."""
    text = inspect.getdoc(thing) or ""
    for title in ("Args:", "Attributes:", "Raises:", "Returns:"):
        text = text.replace(f"\n{title}\n", f"\n**{title}**\n\n")
    lines = []
    for line in text.splitlines():
        is_entry = line.startswith("    ") and not line.startswith("     ")
        lines.append(f"- {line.strip()}" if is_entry else line.strip())
    return "\n".join(lines)


def tables_page() -> str:
    """Return the columns of the journal and of each table that a job reads or writes."""
    lines = ["# Columns of the journal and the pipeline's tables"]
    statements = ast.parse(inspect.getsource(tables)).body
    for named, described in pairwise(statements):
        if isinstance(named, ast.AnnAssign) and isinstance(described, ast.Expr):
            name = ast.unparse(named.target)
            schema, text = getattr(tables, name), ast.literal_eval(described.value)
            if isinstance(schema, StructType):
                lines += [f"## {name.lower()}", text, _columns(schema)]
    return "\n\n".join(lines) + "\n"


def _columns(schema: StructType) -> str:
    rows = (
        f"| `{column.name}` | {column.dataType.simpleString()} "
        f"| {'yes' if column.nullable else 'no'} | {_cell(column.metadata['comment'])} |"
        for column in schema
    )
    return "\n".join(["| column | type | null | meaning |", "|---|---|---|---|", *rows])


def values_page() -> str:
    """Return every value of the Helm chart; the sidecar's options have their own page."""
    schema = json.loads(VALUES.read_text(encoding="utf-8"))
    lines = ["# Values of the Helm chart", "", "| value | default | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *_values("", schema["properties"])]) + "\n"


def _values(parent: str, properties: dict[str, Any]) -> Iterator[str]:
    for name, schema in properties.items():
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        help_text = _cell(schema.get("description", ""))
        if default or help_text:
            yield f"| `{parent}{name}` | {_cell(default)} | {help_text} |"
        if f"{parent}{name}" != "config":
            yield from _values(f"{parent}{name}.", schema.get("properties", {}))


def packet_page() -> str:
    """Return the fields of every packet of Core that the sidecar reads or writes."""
    lines = ["# Packets of Core", "", "Fields in brackets may be missing at the end of a packet."]
    lines += ["", "| code | packet | class in the broker | fields |", "|---|---|---|---|"]
    rows = (_packet_row(packet.__name__, one) for packet, one in FORMATS.items())
    return "\n".join([*lines, *rows]) + "\n"


def _packet_row(name: str, packet: PacketFormat) -> str:
    fields = (
        f"[{one.name}: {one.kind.name}]" if one.is_optional else f"{one.name}: {one.kind.name}"
        for one in packet.fields
    )
    return f"| {packet.code} | `{name}` | `{packet.source}` | {'; '.join(fields) or '-'} |"
