"""Options `mcp.*`: tools for assistants (`amqsidecar mcp`)."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.config.option import KeyedProblem, OptionalPath, Section, StrictInt, option
from amqsidecar.config.sections.http import ListenAddress, split_listen
from amqsidecar.config.web_url import web_url


class McpOptions(Section):
    """Tools for assistants."""

    url: Annotated[str, BeforeValidator(web_url("http://127.0.0.1:9464"))] = option(
        "http://127.0.0.1:9464", "The sidecar, as its console is reached."
    )
    token_file: OptionalPath = option(
        None, "Over stdio: file with the token of the person asking; empty = without."
    )
    listen: ListenAddress = option(
        "", "Address and port of streamable HTTP (`assistants.md`); empty = stdio."
    )
    public_url: Annotated[str, BeforeValidator(web_url("https://mcp.example.com"))] = option(
        "", "With `mcp.listen`: where clients reach it by a proxy."
    )
    ca_file: OptionalPath = option(
        None,
        "PEM file of the authorities trusted to sign the certificates of `https` URLs; empty = "
        "the system's.",
    )
    timeout_s: StrictInt = option(
        10, "Time limit of one answer of the sidecar.", unit="seconds", ge=1, le=120
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield the settings that don't fit the transport."""
        if not self.url:
            yield "url", "is empty: name the sidecar, such as http://127.0.0.1:9464"
        if not self.listen:
            return
        if self.token_file is not None:
            what = "is for stdio only: over HTTP each request brings the token of its caller"
            yield "token_file", what
        if not ip_address(split_listen(self.listen)[0]).is_loopback and not self.public_url:
            what = "is not set, and mcp.listen is beyond loopback: name the address for clients"
            yield "public_url", what
