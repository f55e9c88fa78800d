"""Prints the options as Markdown: `python -m amqsidecar.config.reference`."""

import sys
from enum import Enum
from pathlib import Path
from typing import Any

from amqsidecar.config.load import ENVIRONMENT_PREFIX
from amqsidecar.config.schema import Config, known_options, options_of_entries

_INTRODUCTION = f"""# Options

`python -m amqsidecar.config.reference` prints this page.

Options come from the YAML file that `--config` names; the environment overrides it, `--set` both:

| option `broker.url` | |
|---|---|
| file | `broker:` and below it `  url: artemis://broker` |
| environment | `{ENVIRONMENT_PREFIX}BROKER__URL=artemis://broker` |
| command line | `--set broker.url=artemis://broker` |

Lists are YAML everywhere: `--set 'intake.queues=[DLQ, ExpiryQueue]'`. An option without a default
below is empty; null in the file also means empty. Relative paths in the file start at the file's
folder. Durations are whole numbers.
"""


def options_markdown() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    seen: dict[str, str] = {}
    for name, field in Config.model_fields.items():
        lines.append(f"## {name}\n\n{field.description}\n")
        for key, leaf in known_options().items():
            if key.startswith(f"{name}."):
                same = seen.setdefault(leaf.description, key)
                text = leaf.description if same == key else f"As `{same}`."
                lines.append(_entry(key, leaf, text))
                lines += [
                    _entry(f"{key}.NAME.{name}", inner, inner.description)
                    for name, inner in options_of_entries(leaf).items()
                ]
    return "\n".join(lines)


def _entry(key: str, field: Any, text: str) -> str:
    extra = field.json_schema_extra
    default = _written(field)
    facts = [f"default {default}"] if default else []
    if extra["unit"]:
        facts.append(extra["unit"])
    facts.extend(_limits(field))
    because = f" Why this default: {extra['why']}." if extra["why"] else ""
    head = f"{', '.join(facts)}\n\n" if facts else ""
    return f"### `{key}`\n\n{head}{text}{because}\n"


def _limits(field: Any) -> list[str]:
    limits = {
        name: getattr(constraint, name)
        for constraint in field.metadata
        for name in ("ge", "le")
        if getattr(constraint, name, None) is not None
    }
    match limits:
        case {"ge": least, "le": most}:
            found = [f"{least} to {most}"]
        case {"ge": least}:
            found = [f"at least {least}"]
        case _:
            found = []
    if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
        found.append("one of " + ", ".join(f"`{choice.value}`" for choice in field.annotation))
    return found


def _written(field: Any) -> str:
    """Return a default as it is written in YAML; an empty text = there is none."""
    default = field.default
    if isinstance(default, Enum):
        return f"`{default.value}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if default is None or default in ("", (), {}):
        return ""
    if isinstance(default, tuple):
        return f"`[{', '.join(default)}]`"
    assert isinstance(default, str | int | float | Path)  # noqa: S101 - the schema has no other
    return f"`{default}`"


def main() -> None:
    """Print the page."""
    sys.stdout.write(options_markdown())


if __name__ == "__main__":
    main()
