"""Options that several commands have; `reading.py` reads them. Imports nothing heavy."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from amqsidecar.model.schedule import RowState

INT_MAX: Final = 2**31 - 1
"""The largest whole number that an option takes: brokers count by Java's int."""


class OutputFormat(StrEnum):
    """How a command prints data."""

    TEXT = "text"
    TABLE = "table"
    """Alias of text: commands with rows print a table."""
    JSON = "json"


CONFIG_FILE: Final = "amqsidecar.yaml"
"""Read in the working folder where no other configuration is named."""
CONFIG_VARIABLE: Final = "AMQSIDECAR_CONFIG"
"""The environment variable that names a configuration."""

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"Configuration (YAML); default: the file in {CONFIG_VARIABLE}, else {CONFIG_FILE} in "
        "the working folder, where it exists.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one option; overrides file and environment. May be repeated.",
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", help="How data is printed.")]

Wide = Annotated[
    bool, typer.Option("--wide", help="Print all columns in one line, even on a narrow terminal.")
]

Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason; kept with the operation.")
]

FilterDestination = Annotated[
    str | None,
    typer.Option(
        "--destination",
        metavar="NAME",
        help="Only messages for this destination, such as queue://orders; a plain name is a queue.",
    ),
]

FilterGroup = Annotated[
    str | None,
    typer.Option(
        "--cause-group",
        metavar="TEXT",
        help="Only messages of this cause group: its number, or a part of its text that only one "
        "group has.",
    ),
]
FilterNumber = Annotated[
    int | None,
    typer.Option(
        "--group",
        metavar="N",
        min=0,
        max=INT_MAX,
        help="Only the group of this number, as `groups` prints it.",
    ),
]
FilterProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=TEXT",
        help="Only messages with this application property; examines each message. Repeatable.",
    ),
]
FilterContains = Annotated[
    str,
    typer.Option(
        "--contains",
        metavar="TEXT",
        help="Only messages whose cause, properties or first 64 KiB of the body contain this text, "
        "in any case; examines each message.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The messages that the options select."""

    destination: FilterDestination = None
    state: Annotated[RowState | None, typer.Option(help="Only this state.")] = None
    cause: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only messages whose cause contains this text."),
    ] = None
    cause_group: FilterGroup = None
    group: FilterNumber = None
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only messages from this dead-letter queue.")
    ] = None
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only messages taken from the broker longer ago, such as 90s, 15m, 2h or 3d.",
        ),
    ] = None
    newer_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only messages taken from the broker within this time, such as 90s, 15m, 2h or "
            "3d.",
        ),
    ] = None
    attempt: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=INT_MAX, help="Only messages at their N-th redelivery."
        ),
    ] = None
    count_at_least: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=INT_MAX,
            help="Only messages at their N-th redelivery, or a later one.",
        ),
    ] = None
    event: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only messages that wait for this event (`hold --until`)."
        ),
    ] = None


_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, option: str = "--older-than", *, least_ms: int = 0) -> int:
    """Return the milliseconds of a text such as `90s`, `15m`, `2h` or `3d`.

    Args:
        text: a whole number and its unit.
        option: whose fault it is where it is none, or too short; leaves with code 2.
        least_ms: the shortest.

    Example:
        >>> duration_ms("15m")
        900000
    """
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    if match is None:
        what = f"expected a number with a unit, such as 90s, 15m, 2h or 3d, found {text!r}"
        raise typer.BadParameter(what, param_hint=option)
    found_ms = int(match[1]) * _UNIT_MS[match[2]]
    if found_ms < least_ms:
        what = f"expected at least {least_ms} ms, found {text!r}"
        raise typer.BadParameter(what, param_hint=option)
    return found_ms
