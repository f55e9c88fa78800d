"""`amqsidecar import`: a broker's XML in, the equivalent YAML policy out."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from amqsidecar.cli.policy_options import (
    ConfigOption,
    OutputOption,
    SetOption,
    exit_on_config_error,
    load_rules,
    wants_json,
)
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy
from amqsidecar.policy_source.yaml_writer import to_mapping, write_yaml


def import_policy(
    source: Annotated[
        str | None,
        typer.Argument(
            help="activemq.xml, broker.xml, or a connection URI with jms.redeliveryPolicy.*; "
            "default: policy.source of the configuration.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write; default: standard output.")
    ] = None,
    config_file: ConfigOption = None,
    sets: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Turn a broker's XML into the equivalent YAML policy; warnings go to standard error."""
    with exit_on_config_error():
        if source is None:
            _, rules, plugins = load_rules(config_file, sets, os.environ)
        else:
            plugins = load_plugins()
            rules = load_policy(source, plugins, os.environ)
        compile_policy(rules, plugins)
    for warning in rules.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if output is not None and wants_json(output):
        content = {"policy": to_mapping(rules), "warnings": list(rules.warnings)}
        text = msgspec.json.format(msgspec.json.encode(content)).decode() + "\n"
    else:
        text = write_yaml(rules)
    if to is None:
        typer.echo(text, nl=False)
        return
    with exit_on_config_error():
        try:
            to.write_text(text, encoding="utf-8")
        except OSError as error:
            what = f"can't be written: {error.strerror or error}"
            raise ConfigError([Problem(str(to), what)]) from error
