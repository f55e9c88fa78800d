"""Options that every command has, and how commands read them; imports nothing heavy."""

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from amqsidecar.config.schema import Config
    from amqsidecar.model.schedule import RowFilter


class OutputFormat(StrEnum):
    """How a command prints data."""

    TEXT = "text"
    JSON = "json"


class StateChoice(StrEnum):
    """States of rows; the same words as `RowState`."""

    WAITING = "waiting"
    HELD = "held"
    PARKED = "parked"


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration (YAML).", show_default=False),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one option; overrides file and environment. May be repeated.",
        show_default=False,
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", help="How data is printed.")]

FilterDestination = Annotated[
    str | None,
    typer.Option(
        "--destination",
        metavar="NAME",
        help="Only what goes there, such as queue://orders; a plain name is a queue.",
        show_default=False,
    ),
]
FilterState = Annotated[
    StateChoice | None, typer.Option("--state", help="Only this state.", show_default=False)
]
FilterCause = Annotated[
    str | None,
    typer.Option(
        "--cause",
        metavar="TEXT",
        help="Only what died for a cause that contains this text.",
        show_default=False,
    ),
]
FilterAge = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        help="Only what was taken from the broker longer ago, such as 90s, 15m, 2h or 3d.",
        show_default=False,
    ),
]

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_config(config_file: Path | None, sets: Sequence[str] | None) -> "Config":
    """Return the options of this command line.

    Raises:
        ConfigError: with every problem found.
    """
    from amqsidecar.config.load import load_config  # noqa: PLC0415 - keeps `--help` fast

    return load_config(config_file, sets or (), os.environ)


def read_filter(
    now_ms: int,
    destination: str | None,
    state: StateChoice | None,
    cause: str | None,
    older_than: str | None,
    *,
    cause_group: str | None = None,
    source: str | None = None,
    newer_than: str | None = None,
    count_at_least: int | None = None,
) -> "RowFilter":
    """Return the filter that the options ask for; usage errors leave with code 2."""
    from amqsidecar.model.schedule import RowFilter, RowState  # noqa: PLC0415 - as above

    return RowFilter(
        destination=_canonical(destination, "--destination"),
        state=None if state is None else RowState(state.value),
        cause_contains=cause or None,
        cause_group=cause_group,
        source=_canonical(source, "--source"),
        received_from_ms=(
            None if newer_than is None else now_ms - duration_ms(newer_than, "--newer-than")
        ),
        received_before_ms=None if older_than is None else now_ms - duration_ms(older_than),
        count_at_least=count_at_least,
    )


def _canonical(name: str | None, option: str) -> str | None:
    from amqsidecar.model.destination import parse_destination  # noqa: PLC0415 - as above

    if name is None:
        return None
    try:
        return str(parse_destination(name))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


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
