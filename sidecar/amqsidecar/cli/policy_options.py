"""Options of `explain` and `import`: the source of the rules, and the output."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.options import OutputFormat, read_config
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy.rule_source import parse_source
from amqsidecar.policy_source.load import load_policy, read_plugins, with_plugins

OutputChoice = Annotated[
    OutputFormat | None,
    typer.Option(
        "--output",
        help="Output format; default: text on a terminal, else json.",
        show_default=False,
    ),
]


def load_rules(
    config_file: Path | None, sets: Sequence[str] | None
) -> tuple[Config, ClassicRules | ArtemisRules, Mapping[str, Plugin]]:
    """Return the configuration, its rules and the installed plugins.

    Raises:
        ConfigError: with every problem found; also when no policy is named.
    """
    config = read_config(config_file, sets)
    plugins = load_plugins()
    policy = config.policy.source if config.policy.source is not None else config.policy.rules
    if policy is None:
        what = "no policy is given; use --set policy.source=activemq.xml (or broker.xml, or YAML)"
        raise ConfigError([Problem("policy.source", what)])
    place = parse_source(config.origin("policy.plugins"))
    links = read_plugins(config.policy.plugins, place, plugins)
    return config, with_plugins(load_policy(policy, plugins, os.environ), links), plugins
