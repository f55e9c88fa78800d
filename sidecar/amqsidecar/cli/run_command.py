"""`amqsidecar run`: the service."""

import typer

from amqsidecar.cli.options import ConfigFile, Sets, read_config


def run(config_file: ConfigFile = None, sets: Sets = None) -> None:
    """Run the service until SIGTERM; it finishes its cycle and leaves within seconds."""
    config = read_config(config_file, sets)
    from amqsidecar.config.load import check_files  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.errors import ConfigError  # noqa: PLC0415 - as above

    problems = check_files(config)
    if problems:
        raise ConfigError(problems)
    from amqsidecar.app import run_service  # noqa: PLC0415 - as above

    raise typer.Exit(run_service(config))
