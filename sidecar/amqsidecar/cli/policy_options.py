"""Options and steps that `explain` and `import` share."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.config.load import load_config
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import load_policy

EXIT_CONFIG = 78
"""Exit code of a wrong configuration (sysexits EX_CONFIG)."""


class Output(StrEnum):
    """How a command prints data."""

    JSON = "json"
    TEXT = "text"


ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (YAML).", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one option, such as policy.source=a.xml."),
]
OutputOption = Annotated[
    Output | None,
    typer.Option("--output", help="Default: text on a terminal, else JSON.", show_default=False),
]


def wants_json(output: Output | None) -> bool:
    """Tell whether data is to be printed as JSON."""
    return output is Output.JSON or (output is None and not sys.stdout.isatty())


@contextmanager
def exit_on_config_error() -> Iterator[None]:
    """Print every problem of a ConfigError on standard error and leave with exit code 78."""
    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(EXIT_CONFIG) from error


def load_rules(
    config_file: Path | None, sets: Sequence[str] | None, environment: Mapping[str, str]
) -> tuple[Config, ClassicRules | ArtemisRules, Mapping[str, Plugin]]:
    """Return the configuration, its rules and the installed plugins.

    Raises:
        ConfigError: with every problem found; also when no policy is named.
    """
    config = load_config(config_file, sets or (), environment)
    plugins = load_plugins()
    policy = config.policy.source if config.policy.source is not None else config.policy.rules
    if policy is None:
        what = "no policy is given; use --set policy.source=activemq.xml (or broker.xml, or YAML)"
        raise ConfigError([Problem("policy.source", what)])
    return config, load_policy(policy, plugins, environment), plugins
