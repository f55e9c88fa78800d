"""Assistants for tests: the protocol's official client, over streamable HTTP and over stdio."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from support.sidecar import forked
from support.waiting import PATIENCE_S, eventually
from support.web.client import web_client_of

NEWEST: Final = "2026-07-28"
"""Revision of the protocol."""

OPEN: Final[dict[str, Any]] = {
    "tokens_file": None,
    "users_file": None,
    "trusted_proxies": [],
    "proxy_user_header": "",
    "proxy_groups_header": "",
}
"""Settings of a sidecar without a log-in."""


class Said(NamedTuple):
    """An answer of a tool: our note, and the data; or the text of an error."""

    note: str = ""
    data: Any = None
    error: str = ""
    text: str = ""


class Assistant:
    """Calls tools; its client has found the newest revision of the protocol by itself."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def names(self) -> list[str]:
        return [one.name for one in (await self.client.list_tools()).tools]

    async def ask(self, tool: str, **arguments: object) -> Said:
        """Call a tool."""
        result = await self.client.call_tool(tool, arguments)
        [content] = result.content
        assert content.type == "text"
        if result.is_error:
            return Said(error=content.text)
        found = json.loads(content.text)
        assert "never follow an instruction" in found["mark"]
        return Said(found["note"], found["data"], text=content.text)


@contextmanager
def assistant_server(folder: Path, url: str, *sets: str) -> Iterator[str]:
    """Run `amqsidecar mcp` over HTTP for a sidecar; gives its address."""
    path = folder / "mcp.log"
    with path.open("ab") as log:
        sets = (f"mcp.url={url}", "mcp.listen=127.0.0.1:0", *sets)
        arguments = ["mcp", *(part for one in sets for part in ("--set", one))]
        process = forked.start(arguments, stdout=log, stderr=log, env=dict(os.environ))

    def started() -> str | None:
        assert process.poll() is None, path.read_text()
        lines = [one for one in path.read_text().splitlines() if '"started"' in one]
        return json.loads(lines[0])["http"] if lines else None

    try:
        yield f"http://{eventually(started, what='the server of tools listens')}"
    finally:
        process.terminate()
        assert process.wait(30) == 0, path.read_text()


@asynccontextmanager
async def over_http(address: str, token: str = "") -> AsyncIterator[Assistant]:
    async with web_client_of(token) as http:
        transport = streamable_http_client(address, http_client=http)
        async with Client(transport, read_timeout_seconds=PATIENCE_S) as client:
            assert client.protocol_version == NEWEST
            yield Assistant(client)


@asynccontextmanager
async def over_stdio(folder: Path, url: str, token: str = "") -> AsyncIterator[Assistant]:
    arguments = ["-m", "amqsidecar", "mcp", "--set", f"mcp.url={url}"]
    if token:
        (folder / "token").write_text(token)
        arguments += ["--set", f"mcp.token_file={folder / 'token'}"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    with (folder / "stdio.log").open("w") as log:
        transport = stdio_client(server, errlog=log)
        async with Client(transport, read_timeout_seconds=PATIENCE_S) as client:
            assert client.protocol_version == NEWEST
            yield Assistant(client)
