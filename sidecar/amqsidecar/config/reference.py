"""Prints the options as Markdown: `python -m amqsidecar.config.reference`."""

import sys
from enum import Enum
from pathlib import Path
from typing import Any

from amqsidecar.config.load import ENVIRONMENT_PREFIX
from amqsidecar.config.schema import Config, known_options

_INTRODUCTION = f"""# Options

Printed by `python -m amqsidecar.config.reference`; change `config/sections/`, not this page.

An option is set in the YAML file that `--config` names, overridden by the environment, overridden
by `--set`:

| option `broker.url` | |
|---|---|
| file | `broker:` and below it `  url: artemis://broker` |
| environment | `{ENVIRONMENT_PREFIX}BROKER__URL=artemis://broker` |
| command line | `--set broker.url=artemis://broker` |

Lists are written in YAML everywhere: `--set 'intake.queues=[DLQ, ExpiryQueue]'`. A null in the file
means that the option is not set. Relative paths in the file start at the file's folder. Durations
are whole numbers in the unit that the option's name ends with.
"""


def options_markdown() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for name, field in Config.model_fields.items():
        lines.append(f"## {name}\n\n{field.description}\n")
        for key, leaf in known_options().items():
            if key.startswith(f"{name}."):
                lines.append(_entry(key, leaf))
    return "\n".join(lines)


def _entry(key: str, field: Any) -> str:
    extra = field.json_schema_extra
    facts = [f"default {_written(field)}"]
    if extra["unit"]:
        facts.append(extra["unit"])
    facts.extend(_limits(field))
    because = f" Why this default: {extra['why']}." if extra["why"] else ""
    return f"### `{key}`\n\n{', '.join(facts)}\n\n{field.description}{because}\n"


def _limits(field: Any) -> list[str]:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = []
    for constraint in field.metadata:
        for name, word in words.items():
            limit = getattr(constraint, name, None)
            if limit is not None:
                found.append(f"{word} {limit}")
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        found.append("one of " + ", ".join(f"`{choice.value}`" for choice in field.annotation))
    return found


def _written(field: Any) -> str:
    """Return a default as it is written in YAML."""
    default = field.default
    if isinstance(default, Enum):
        return f"`{default.value}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if default is None or default in ("", (), {}):
        return "empty"
    if isinstance(default, tuple):
        return f"`[{', '.join(default)}]`"
    assert isinstance(default, str | int | Path)  # noqa: S101 - the schema has no other
    return f"`{default}`"


def main() -> None:
    """Print the page."""
    sys.stdout.write(options_markdown())


if __name__ == "__main__":
    main()
