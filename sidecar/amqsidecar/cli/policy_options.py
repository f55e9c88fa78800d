"""Options of `explain` and `import`: the source of the rules, and the output."""

from collections.abc import Mapping
from typing import Annotated

import typer

from amqsidecar.cli.options import OutputFormat
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.wiring.rules import load_rules

OutputChoice = Annotated[
    OutputFormat | None,
    typer.Option("--output", help="Output format; default: text on a terminal, else json."),
]


def read_rules(config: Config) -> tuple[ClassicRules | ArtemisRules, Mapping[str, Plugin]]:
    """Return the rules of a configuration and the installed plugins.

    Raises:
        ConfigError: with every problem found; also when no policy is named.
    """
    plugins = load_plugins()
    rules = load_rules(config, plugins)
    if rules is None:
        what = "no policy is given; use --set policy.source=activemq.xml (or broker.xml, or YAML)"
        raise ConfigError([Problem("policy.source", what)])
    return rules, plugins
