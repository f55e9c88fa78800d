"""`amqsidecar listen`: the proxy that saves messages that consumers give up."""

import typer

from amqsidecar.cli.options import ConfigFile, Sets
from amqsidecar.cli.reading import read_config
from amqsidecar.wiring.listening import run_listener


def listen(config_file: ConfigFile = None, sets: Sets = None) -> None:
    """Proxy an acceptor and save messages that consumers give up.

    It runs until SIGTERM, then ends each connection once its messages are saved.
    """
    config = read_config(config_file, sets)
    raise typer.Exit(run_listener(config))
