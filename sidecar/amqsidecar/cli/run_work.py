"""The work of `amqsidecar run`."""

from collections.abc import Sequence
from pathlib import Path

import typer

from amqsidecar.cli.printing import print_line
from amqsidecar.cli.reading import read_config
from amqsidecar.config.load import check_start, missing_files
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError
from amqsidecar.wiring.app import run_observer, run_service
from amqsidecar.wiring.check import check_configuration, files_of_start


def run_or_check(
    config_file: Path | None,
    sets: Sequence[str] | None,
    *,
    observe: bool,
    check: bool,
    awaits_files: bool,
) -> None:
    """Run, observe or check; arguments as the options of `run`."""
    config = read_config(config_file, sets)
    if check:
        _check(config, awaits_files=awaits_files)
        return
    problems = check_start(config)
    if problems:
        raise ConfigError(problems)
    if observe:
        raise typer.Exit(run_observer(config))
    raise typer.Exit(run_service(config, read_again=lambda: read_config(config_file, sets)))


def _check(config: Config, *, awaits_files: bool) -> None:
    awaited = missing_files(config, files_of_start(config)) if awaits_files else {}
    for key, path in awaited.items():
        print_line(f"{key}: {path} does not exist yet; it was not checked")
    problems = check_start(config, awaited)
    if problems:
        raise ConfigError(problems)
    for warning in check_configuration(config, awaited):
        print_line(f"warning: {warning}")
