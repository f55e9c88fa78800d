"""`amqsidecar run`: the service."""

from typing import Annotated

import typer

from amqsidecar.cli.options import ConfigFile, Sets, read_config
from amqsidecar.cli.printing import print_line
from amqsidecar.config.load import check_start, missing_files
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError
from amqsidecar.wiring.app import run_observer, run_service
from amqsidecar.wiring.check import FILES, check_configuration

Observe = Annotated[
    bool,
    typer.Option(
        "--observe",
        help="Only observe: log and count decisions, take and send nothing, use no store.",
    ),
]
CheckOnly = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only check options, rules, gates and files; print all faults; open no connection.",
    ),
]
AwaitFiles = Annotated[
    bool,
    typer.Option(
        "--await-files",
        help="With --check: report missing files, and check the rest.",
    ),
]


def run(
    config_file: ConfigFile = None,
    sets: Sets = None,
    observe: Observe = False,
    check: CheckOnly = False,
    await_files: AwaitFiles = False,
) -> None:
    """Run the service until SIGTERM.

    It then finishes its cycle and leaves within seconds.
    """
    config = read_config(config_file, sets)
    if check:
        _check(config, awaits_files=await_files)
        return
    problems = check_start(config)
    if problems:
        raise ConfigError(problems)
    if observe:
        raise typer.Exit(run_observer(config))
    raise typer.Exit(run_service(config))


def _check(config: Config, *, awaits_files: bool) -> None:
    awaited = missing_files(config, FILES) if awaits_files else {}
    for key, path in awaited.items():
        print_line(f"{key}: {path} does not exist yet; it was not checked")
    problems = check_start(config, awaited)
    if problems:
        raise ConfigError(problems)
    check_configuration(config, awaited)
