"""`amqsidecar fleet`: one console over many sidecars."""

import typer

from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config
from amqsidecar.wiring.fleet import run_fleet


@configured
def fleet(config: Config) -> None:
    """Serve one console and API over many sidecars until SIGTERM.

    It keeps nothing: each sidecar is asked with the credentials of the person who looks.
    """
    raise typer.Exit(run_fleet(config))
