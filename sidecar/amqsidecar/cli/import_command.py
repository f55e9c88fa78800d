"""`amqsidecar import`: a broker's XML in, the equivalent YAML policy out."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.cli.options import ConfigFile, OutputFormat, Sets
from amqsidecar.cli.policy_options import OutputChoice, read_rules
from amqsidecar.cli.printing import print_json, say
from amqsidecar.cli.reading import read_config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy
from amqsidecar.policy_source.yaml_writer import to_mapping, write_yaml


def import_(
    source: Annotated[
        str | None,
        typer.Argument(
            help="activemq.xml, broker.xml, broker.properties, an ActiveMQArtemis resource, or a "
            "connection URI with jms.redeliveryPolicy.*; "
            "default: policy.source of the configuration."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="File to write; default: standard output.")
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: OutputChoice = None,
) -> None:
    """Turn a broker's configuration into the equivalent YAML policy.

    Warnings go to standard error. With --output json: the policy and the warnings as JSON.
    """
    if source is None:
        rules, plugins = read_rules(read_config(config_file, sets))
    else:
        plugins = load_plugins()
        rules = load_policy(source, plugins)
    compile_policy(rules, plugins)
    for warning in rules.warnings:
        say(f"warning: {warning}")
    if output is OutputFormat.JSON:
        content = {"policy": to_mapping(rules), "warnings": list(rules.warnings)}
        if to is None:
            print_json(content)
            return
        text = json.dumps(content, indent=2) + "\n"
    else:
        text = write_yaml(rules)
    if to is None:
        sys.stdout.write(text)
        return
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"can't be written: {error.strerror or error}"
        raise ConfigError([Problem(str(to), what)]) from error
