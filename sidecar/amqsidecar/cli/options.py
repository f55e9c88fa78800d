"""Options that every command has, and how commands read them."""

import inspect
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from amqsidecar.config.load import load_config
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.conditions import CONDITIONS, ConditionRefused, given, select
from amqsidecar.operations.failures.find_group import with_group
from amqsidecar.schedule import ScheduleView

INT_MAX: Final = 2**31 - 1
"""The largest whole number that an option takes: brokers count by Java's int."""

Options = TypeVar("Options")


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
        show_default=False,
    ),
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
        show_default=False,
    ),
]
FilterState = Annotated[
    RowState | None, typer.Option("--state", help="Only this state.", show_default=False)
]
FilterCause = Annotated[
    str | None,
    typer.Option(
        "--cause",
        metavar="TEXT",
        help="Only messages whose cause contains this text.",
        show_default=False,
    ),
]
FilterAge = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        help="Only messages taken from the broker longer ago, such as 90s, 15m, 2h or 3d.",
        show_default=False,
    ),
]

FilterGroup = Annotated[
    str | None,
    typer.Option(
        "--cause-group",
        metavar="TEXT",
        help="Only messages of this cause group: its number, or a part of its text that only one "
        "group has.",
        show_default=False,
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
        show_default=False,
    ),
]
FilterSource = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="Only messages from this dead-letter queue.",
        show_default=False,
    ),
]
FilterProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=TEXT",
        help=(
            "Only messages with this application property; examines each message. May be repeated."
        ),
        show_default=False,
    ),
]
FilterContains = Annotated[
    str,
    typer.Option(
        "--contains",
        metavar="TEXT",
        help=(
            "Only messages whose cause, properties or first 64 KiB of the body contain this text, "
            "in any case; examines each message."
        ),
        show_default=False,
    ),
]
FilterYoung = Annotated[
    str | None,
    typer.Option(
        "--newer-than",
        metavar="TIME",
        help="Only messages taken from the broker within this time, such as 90s, 15m, 2h or 3d.",
        show_default=False,
    ),
]
FilterAttempt = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=INT_MAX,
        help="Only messages at their N-th redelivery.",
        show_default=False,
    ),
]
FilterCount = Annotated[
    int | None,
    typer.Option(
        "--count-at-least",
        metavar="N",
        min=0,
        max=INT_MAX,
        help="Only messages at their N-th redelivery, or a later one.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The messages that the options select."""

    destination: FilterDestination = None
    state: FilterState = None
    cause: FilterCause = None
    cause_group: FilterGroup = None
    group: FilterNumber = None
    source: FilterSource = None
    older_than: FilterAge = None
    newer_than: FilterYoung = None
    attempt: FilterAttempt = None
    count_at_least: FilterCount = None


def takes(
    options: type[Options], *, but: Collection[str] = ()
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function that takes its options as one value.

    Args:
        options: a dataclass; each field is an option, or an argument.
        but: fields that the command does not have.
    """

    def decorate(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**values: object) -> None:
            function(options(**values))

        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(options)  # type: ignore[arg-type]
            if field.name not in but
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__doc__ = function.__doc__
        return command

    return decorate


_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_config(config_file: Path | None, sets: Sequence[str] | None) -> Config:
    """Return the options of this command line.

    Args:
        config_file: path from the command line; None = the default in the help of `ConfigFile`.
        sets: of the command line.

    Raises:
        ConfigError: with every problem found.
    """
    if config_file is None:
        config_file = _default_config()
    return load_config(config_file, sets or (), os.environ)


def _default_config() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    here = Path(CONFIG_FILE)
    return here if here.is_file() else None


def read_selection(chosen: Chosen, now_ms: int) -> Selection:
    """Return the selection that the options ask for; usage errors leave with code 2."""
    texts: dict[str, list[str]] = {}
    for condition in CONDITIONS:
        value = getattr(chosen, condition.attribute or "_", None)
        # Why: only of a group the empty text means something.
        if value is not None and (value != "" or condition.field == "cause_group"):
            texts[condition.field] = list(map(str, value if isinstance(value, list) else [value]))
    try:
        return select(texts, now_ms)
    except ConditionRefused as error:
        raise typer.BadParameter(str(error), param_hint=error.condition.option) from error


def find_group(schedule: ScheduleView, chosen: Chosen, rows: RowFilter) -> RowFilter:
    """Return the filter with the whole cause of the group that the options mean.

    Raises:
        NothingFound: no group, or several, are meant.
    """
    if chosen.cause_group is None and chosen.group is None:
        return rows
    if chosen.cause_group is not None and chosen.group is not None:
        raise typer.BadParameter("give --group or --cause-group, not both")
    return with_group(schedule, rows, part=chosen.cause_group, number=chosen.group)


def check_of_broker(store_url: str, selection: Selection, *, is_simple: bool = True) -> None:
    """Refuse a selection that a broker-held schedule can't answer; exits with code 2.

    Args:
        store_url: URL of the schedule.
        selection: the conditions.
        is_simple: whether nothing else is asked for that needs a store of our own.
    """
    needs_store = any(condition.needs_store for condition, _ in given(selection))
    if store_url == BROKER_HELD and (needs_store or not is_simple):
        raise typer.BadParameter(
            "the broker keeps waiting messages (store.url broker:); there only ids, "
            "--destination, --state and --older-than select messages, and actions take effect at "
            "once: --dry-run, --detach, --pace and other options for careful sending don't apply"
        )


def canonical(name: str | None, option: str) -> str | None:
    """Return the canonical text of a destination; usage errors leave with code 2."""
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
