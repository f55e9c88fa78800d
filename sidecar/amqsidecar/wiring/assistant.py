"""Assembles the tools for assistants (`amqsidecar mcp`)."""

import asyncio
import logging
from typing import Any, Final

import structlog
from mcp.server.stdio import stdio_server

from amqsidecar import __version__
from amqsidecar.assistant.caller import ApiCaller, CallerApi
from amqsidecar.assistant.previews import Previews
from amqsidecar.assistant.server import PATH, http_app, make_server
from amqsidecar.assistant.tools import AssistantTools
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.sections.mcp import McpOptions
from amqsidecar.config.tls_context import trusted_by
from amqsidecar.http.serving import HttpServer
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.web_client import Client
from amqsidecar.wiring.parts import stop_event

log = structlog.get_logger("amqsidecar.wiring.app")

_ANSWER_BYTES_MAX: Final = 4 * 2**20


def serve_assistants(config: Config) -> None:
    """Serve until standard input ends, or SIGTERM.

    Raises:
        ConfigError: a file can't be used, or the address can't be listened on.
    """
    options = config.mcp
    configure_logs(config.log.level, config.log.format)
    # Why not lower: it would log untrusted input.
    logging.getLogger("mcp").setLevel(logging.ERROR)
    tls = trusted_by(options.ca_file, "mcp.ca_file")
    client = Client(tls, options.timeout_s, _ANSWER_BYTES_MAX)

    async def open_caller(token: str) -> ApiCaller:
        return await CallerApi(client, options.url, token).open()

    tools = AssistantTools(Previews(SystemClock()))
    if options.listen:
        _serve_http(options, tools, open_caller)
        return

    async def caller_of(_request: Any) -> ApiCaller:
        # Why at each request: the file may be replaced.
        path = options.token_file
        return await open_caller("" if path is None else secret_in(path, "mcp.token_file").reveal())

    asyncio.run(_serve_stdio(tools, caller_of))


async def _serve_stdio(tools: AssistantTools, caller_of: Any) -> None:
    server = make_server(tools, caller_of)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _serve_http(options: McpOptions, tools: AssistantTools, open_caller: Any) -> None:
    host, port = split_listen(options.listen)
    app = http_app(tools, open_caller, host, options.public_url)
    http = HttpServer(app, has_lifespan=True)

    async def serve() -> None:
        with stop_event() as stop:
            address, found = http.start(host, port)
            log.info("started", version=__version__, mode="mcp", http=f"{address}:{found}{PATH}")
            try:
                await stop.wait()
            finally:
                http.stop()

    asyncio.run(serve())
    log.info("stopped")
