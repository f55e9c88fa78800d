"""`amqsidecar mcp`: tools for assistants."""

from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem


@configured
def mcp(config: Config) -> None:
    """Serve tools for assistants (Model Context Protocol).

    Over stdio, or on mcp.listen by streamable HTTP. They are a client of the API with the token of
    whoever asks, and can do what that token can.
    """
    try:
        from amqsidecar.wiring.assistant import serve_assistants  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        what = f'needs more libraries: pip install "amqsidecar[mcp]" ({error})'
        raise ConfigError([Problem("amqsidecar mcp", what)]) from error
    serve_assistants(config)
