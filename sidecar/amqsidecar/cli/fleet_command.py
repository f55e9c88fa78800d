"""`amqsidecar fleet`: one console over many sidecars."""

import typer

from amqsidecar.cli.options import ConfigFile, Sets
from amqsidecar.cli.reading import read_config
from amqsidecar.wiring.fleet import run_fleet


def fleet(config_file: ConfigFile = None, sets: Sets = None) -> None:
    """Serve one console and API over many sidecars until SIGTERM.

    It keeps nothing: each sidecar is asked with the credentials of the person who looks.
    """
    raise typer.Exit(run_fleet(read_config(config_file, sets)))
