"""Assembles the tools for assistants (`amqsidecar mcp`)."""

import asyncio
import logging
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from mcp.server.stdio import stdio_server

from amqsidecar import __version__
from amqsidecar.assistant.caller import ApiCaller, CallerApi
from amqsidecar.assistant.previews import Previews
from amqsidecar.assistant.server import PATH, http_app, make_server
from amqsidecar.assistant.tools import AssistantTools
from amqsidecar.clock import SystemClock
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.tls_context import trusted_by
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.serving import HttpServer
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.web_client import Client
from amqsidecar.wiring.parts import stopping

log = structlog.get_logger("amqsidecar.wiring.app")

_ANSWER_BYTES_MAX: Final = 4 * 2**20


class AssistantOptions(NamedTuple):
    """The options of `amqsidecar mcp`; see there."""

    url: str
    token_file: Path | None
    listen: str | None
    public_url: str
    ca_file: Path | None
    timeout_s: float


def serve_assistants(options: AssistantOptions) -> None:
    """Serve until standard input ends, or SIGTERM.

    Raises:
        ConfigError: an option can't be used.
    """
    configure_logs("info", "json")
    # Why not lower: it would log what strangers send.
    logging.getLogger("mcp").setLevel(logging.ERROR)
    client = Client(trusted_by(options.ca_file, "--ca-file"), options.timeout_s, _ANSWER_BYTES_MAX)

    async def open_caller(token: str) -> ApiCaller:
        return await CallerApi(client, options.url, token).open()

    tools = AssistantTools(Previews(SystemClock()))
    if options.listen is not None:
        _serve_http(options, options.listen, tools, open_caller)
        return

    async def caller_of(_request: Any) -> ApiCaller:
        # Why at each request: the file may be replaced.
        path = options.token_file
        return await open_caller("" if path is None else secret_in(path, "--token-file").reveal())

    asyncio.run(_serve_stdio(tools, caller_of))


async def _serve_stdio(tools: AssistantTools, caller_of: Any) -> None:
    server = make_server(tools, caller_of)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _serve_http(
    options: AssistantOptions, listen: str, tools: AssistantTools, open_caller: Any
) -> None:
    try:
        host, port = split_listen(listen)
    except ValueError as error:
        raise ConfigError([Problem("--listen", str(error))]) from error
    if options.token_file is not None:
        what = "is for stdio only: over HTTP each request brings the token of its caller"
        raise ConfigError([Problem("--token-file", what)])
    if not ip_address(host).is_loopback and not options.public_url:
        what = "is not set, and --listen is beyond loopback: name the address that clients use"
        raise ConfigError([Problem("--public-url", what)])
    app = http_app(tools, open_caller, host, options.public_url)
    http = HttpServer(app, has_lifespan=True)

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop_soon() -> None:
            loop.call_soon_threadsafe(stop.set)

        with stopping(stop_soon):
            address, found = http.start(host, port)
            log.info("started", version=__version__, mode="mcp", http=f"{address}:{found}{PATH}")
            try:
                await stop.wait()
            finally:
                http.stop()

    asyncio.run(serve())
    log.info("stopped")
