"""`amqsidecar mcp`: tools for assistants."""

from pathlib import Path
from typing import Annotated

import typer

from amqsidecar.config.web_url import web_url
from amqsidecar.errors import ConfigError, Problem

_URL = web_url("http://127.0.0.1:9464")


def mcp(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The sidecar, as its console is reached.")
    ] = "http://127.0.0.1:9464",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Over stdio: the token of the person asking."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="ADDRESS:PORT", help="Streamable HTTP here in place of stdio."
        ),
    ] = None,
    public_url: Annotated[
        str,
        typer.Option(
            "--public-url", metavar="URL", help="With --listen: where clients reach it by a proxy."
        ),
    ] = "",
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="PEM of the authorities for https."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, max=120, help="Seconds for one answer.")
    ] = 10.0,
) -> None:
    """Serve tools for assistants (Model Context Protocol).

    Over stdio, or with --listen by streamable HTTP. They are a client of the API with the token of
    whoever asks, and can do what that token can.
    """
    try:
        from amqsidecar.wiring.assistant import (  # noqa: PLC0415 - an extra
            AssistantOptions,
            serve_assistants,
        )
    except ModuleNotFoundError as error:
        what = f'needs more libraries: pip install "amqsidecar[mcp]" ({error})'
        raise ConfigError([Problem("amqsidecar mcp", what)]) from error
    try:
        checked = {"--url": _URL(url), "--public-url": _URL(public_url)}
    except ValueError as error:
        raise ConfigError([Problem("--url or --public-url", str(error))]) from error
    serve_assistants(
        AssistantOptions(
            url=checked["--url"],
            token_file=token_file,
            listen=listen,
            public_url=checked["--public-url"],
            ca_file=ca_file,
            timeout_s=timeout,
        )
    )
