"""Reads the options of a command: the configuration and the selection."""

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import typer

from amqsidecar.cli.options import CONFIG_FILE, CONFIG_VARIABLE, Chosen, ConfigFile, Sets
from amqsidecar.config.load import load_config
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.conditions import CONDITIONS, ConditionRefused, given, select
from amqsidecar.operations.failures.find_group import with_group
from amqsidecar.schedule import ScheduleView

Options = TypeVar("Options")


def configured(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function with a parameter `config`; `--config` and `--set` give it."""

    @wraps(function)
    def command(config_file: Any = None, sets: Any = None, **values: Any) -> None:
        function(config=read_config(config_file, sets), **values)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=kind) for one in inspect.signature(function).parameters.values()]
    place = [one.name for one in parameters].index("config")
    parameters[place : place + 1] = [
        inspect.Parameter("config_file", kind, default=None, annotation=ConfigFile),
        inspect.Parameter("sets", kind, default=None, annotation=Sets),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def takes(
    options: type[Options], *, but: Collection[str] = ()
) -> Callable[[Callable[[Options, Config], None]], Callable[..., None]]:
    """Make a command of a function that takes its options as one value, and the configuration.

    Args:
        options: a dataclass; each field is an option, or an argument.
        but: fields that the command does not have.
    """

    def decorate(function: Callable[[Options, Config], None]) -> Callable[..., None]:
        def command(config: Config, **values: object) -> None:
            function(options(**values), config)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(
                field.name,
                keyword,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=field.type,
            )
            for field in fields(options)  # type: ignore[arg-type]
            if field.name not in but
        ]
        # Why before the last: `--output` ends every help.
        parameters.insert(-1, inspect.Parameter("config", keyword))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__doc__ = function.__doc__
        return configured(command)

    return decorate


def read_config(config_file: Path | None, sets: Sequence[str] | None) -> Config:
    """Return the options of this command line.

    Args:
        config_file: path from the command line; None = the default in the help of `ConfigFile`.

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
    """Refuse a selection that a broker-held schedule can't answer; exits with code 2."""
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
