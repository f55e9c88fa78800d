"""`amqsidecar listen`: the proxy that saves messages that consumers give up."""

import typer

from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config
from amqsidecar.wiring.listening import run_listener


@configured
def listen(config: Config) -> None:
    """Proxy an acceptor and save messages that consumers give up.

    It runs until SIGTERM, then ends each connection once its messages are saved.
    """
    raise typer.Exit(run_listener(config))
