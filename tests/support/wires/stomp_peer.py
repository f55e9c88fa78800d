"""A STOMP application over a bare socket, free to send what client libraries refuse.

with StompPeer(broker.ports["STOMP_PORT"]) as peer:
    peer.send("/queue/orders", {"priority": "nonsense"}, b"body")
    peer.subscribe("/queue/orders")
    peer.nack(peer.receive())
"""

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Self

from support.waiting import PATIENCE_S

_UNESCAPES = {"\\": "\\", "n": "\n", "r": "\r", "c": ":"}
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", ":": "\\c"}


class StompError(Exception):
    """The broker answered with an ERROR frame, or hung up."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; of a header that comes twice the first value counts."""

    command: str
    headers: Mapping[str, str]
    body: bytes


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\nrc])", lambda found: _UNESCAPES[found[1]], text)


class StompPeer:
    """One connection, which waits for the broker's receipt of whatever it says."""

    def __init__(
        self,
        port: int,
        user: str = "admin",
        password: str = "admin",
        timeout_s: float = PATIENCE_S,
        silent_s: int = 0,
        version: str = "1.2",
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """Connect.

        Args:
            silent_s: how long it may say nothing; 0 = what the broker allows.
            version: 1.1 or 1.2. In 1.1 a carriage return is a character like any other.
            tls: None = a plain socket.
        """
        self._line_end = "\r\n" if version == "1.2" else "\n"
        self._socket = socket.create_connection((host, port), timeout_s)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._input = self._socket.makefile("rb")
        self._numbers = count(1)
        self._messages: list[Frame] = []
        try:
            headers = {"accept-version": version, "login": user, "passcode": password}
            if silent_s:
                headers["heart-beat"] = f"{silent_s * 1000},0"
            self._put("CONNECT", headers)
            self._read_until("CONNECTED")
        except (OSError, StompError):
            self.close()
            raise

    @property
    def address(self) -> str:
        """Its own end of the connection, as `host:port`."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def send(self, destination: str, headers: Mapping[str, str], body: bytes) -> None:
        """Send a persistent text message with further headers."""
        self._ask("SEND", {"destination": destination, "persistent": "true", **headers}, body)

    def subscribe(
        self,
        destination: str,
        selector: str | None = None,
        *,
        name: str = "1",
        ack: str = "client-individual",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Subscribe, by default with single acknowledgements, and further headers."""
        headers = {"destination": destination, "id": name, "ack": ack, **(headers or {})}
        self._ask("SUBSCRIBE", headers if selector is None else {**headers, "selector": selector})

    def unsubscribe(self, name: str = "1") -> None:
        """Give back what is in hand; where a connection dies with it, Artemis may keep it."""
        self._ask("UNSUBSCRIBE", {"id": name})

    def receive(self) -> Frame:
        """Return the next message; a time-out raises TimeoutError."""
        return self._messages.pop(0) if self._messages else self._read_until("MESSAGE")

    def ack(self, message: Frame) -> None:
        """Accept a message."""
        self._ask("ACK", self._named(message))

    def nack(self, message: Frame, **headers: str) -> None:
        """Refuse a message: Classic makes it a dead letter, Artemis destroys it."""
        self._ask("NACK", {**self._named(message), **headers})

    @staticmethod
    def _named(message: Frame) -> dict[str, str]:
        """Return the headers that name a message; of an acknowledgement."""
        if "ack" in message.headers:
            return {"id": message.headers["ack"]}
        return {name: message.headers[name] for name in ("message-id", "subscription")}

    def reset(self) -> None:
        """End the connection at once; for any thread."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect."""
        self._input.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        self._put(command, {**headers, "receipt": str(next(self._numbers))}, body)
        self._read_until("RECEIPT")

    def _put(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        lines = [f"{self._escape(name)}:{self._escape(value)}\n" for name, value in headers.items()]
        self._socket.sendall(f"{command}\n{''.join(lines)}\n".encode() + body + b"\0")

    def _escape(self, text: str) -> str:
        escapes = {one: _ESCAPES[one] for one in _ESCAPES if one in self._line_end + "\\:"}
        return "".join(escapes.get(one, one) for one in text)

    def _read_until(self, command: str) -> Frame:
        while True:
            frame = self._read()
            if frame.command == command:
                return frame
            if frame.command != "MESSAGE":
                raise StompError(f"{frame.command}: {frame.headers} {frame.body!r}")
            self._messages.append(frame)

    def _read(self) -> Frame:
        lines: list[str] = []
        while True:
            data = self._input.readline()
            if not data:
                raise StompError("the broker has hung up")
            line = data.decode().rstrip(self._line_end)
            if line:
                lines.append(line)
            elif lines:
                break
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(_unescape(name), _unescape(value))
        return Frame(lines[0], headers, self._body(headers.get("content-length")))

    def _body(self, length: str | None) -> bytes:
        if length is not None:
            whole = self._input.read(int(length) + 1)
            if len(whole) <= int(length):
                raise StompError("the broker has hung up")
            assert whole.endswith(b"\0")
            return whole[:-1]
        body = bytearray()
        while (one := self._input.read(1)) != b"\0":
            if not one:
                raise StompError("the broker has hung up")
            body += one
        return bytes(body)
