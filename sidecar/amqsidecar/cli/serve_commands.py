"""`amqsidecar listen`, `fleet` and `mcp`: services beside `run`."""

import typer

from amqsidecar.cli.loading import needing
from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config


@configured
def listen(config: Config) -> None:
    """Proxy an acceptor and save messages that consumers give up.

    It runs until SIGTERM, then ends each connection once its messages are saved.
    """
    from amqsidecar.wiring.listening import run_listener  # noqa: PLC0415 - each needs much

    raise typer.Exit(run_listener(config))


@configured
def fleet(config: Config) -> None:
    """Serve one console and API over many sidecars until SIGTERM.

    It keeps nothing: each sidecar is asked with the credentials of the person who looks.
    """
    from amqsidecar.wiring.fleet import run_fleet  # noqa: PLC0415 - as above

    raise typer.Exit(run_fleet(config))


@configured
def mcp(config: Config) -> None:
    """Serve tools for assistants (Model Context Protocol).

    Over stdio, or on mcp.listen by streamable HTTP. They are a client of the API with the token of
    whoever asks, and can do what that token can.
    """
    with needing("mcp", "amqsidecar mcp"):
        from amqsidecar.wiring.assistant import serve_assistants  # noqa: PLC0415 - an extra
    serve_assistants(config)
