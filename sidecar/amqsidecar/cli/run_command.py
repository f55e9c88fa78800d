"""`amqsidecar run`: the service."""

from typing import Annotated

import typer

from amqsidecar.cli.options import ConfigFile, Sets, read_config

Observe = Annotated[
    bool,
    typer.Option(
        "--observe",
        help="Only look: log and count what would be done, take and send nothing, need no store.",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only read options, rules, gates and files; say all that is wrong, ask nobody, leave.",
    ),
]


def run(
    config_file: ConfigFile = None,
    sets: Sets = None,
    observe: Observe = False,
    check: Check = False,
) -> None:
    """Run the service until SIGTERM; it finishes its cycle and leaves within seconds."""
    config = read_config(config_file, sets)
    from amqsidecar.config.load import check_start  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.errors import ConfigError  # noqa: PLC0415 - as above

    problems = check_start(config)
    if problems:
        raise ConfigError(problems)
    if check:
        from amqsidecar.app_check import check_configuration  # noqa: PLC0415 - as above

        check_configuration(config)
        return
    from amqsidecar.app import run_observer, run_service  # noqa: PLC0415 - as above

    if observe:
        raise typer.Exit(run_observer(config))
    raise typer.Exit(run_service(config))
