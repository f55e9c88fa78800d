"""The HTTP server: uvicorn in a thread of its own, which strangers can't keep busy.

Connections are few; one whose request does not arrive, or whose answer is not read, is cut off
after a while, and at once where somebody else needs its place. How long an answer may take is not
bounded here: a stream of events has no end.
"""

import asyncio
import logging
import socket
from functools import partial
from threading import Event, Thread
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from amqsidecar.errors import ConfigError, Problem

MAX_CONNECTIONS: Final = 64
"""So many connections may be open at a time; of more one that asks nothing has to go."""

TIMEOUT_S: Final = 10.0
"""So long a request may take to arrive, and an answer to be read on."""

_KEEP_ALIVE_S: Final = 5
_MAX_HEAD_BYTES: Final = 32_768


class HttpServer:
    """Serves an application on one address, in a thread of its own."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        timeout_s: float = TIMEOUT_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        protocol = partial(_BoundedProtocol, timeout_s=timeout_s, max_connections=max_connections)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="off",
                loop="asyncio",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                # Why: whom to believe is decided where access is (`access.py`).
                proxy_headers=False,
                timeout_keep_alive=min(_KEEP_ALIVE_S, max(1, int(timeout_s))),
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            )
        )
        self._thread: Thread | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Begin to serve; returns address and port, which matters for port 0.

        Raises:
            ConfigError: the address can't be listened on.
        """
        listening = _listen(host, port)
        # Why: it tells of every bad request that anybody sends.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        self._thread = Thread(
            target=self._server.run, args=([listening],), name="http", daemon=True
        )
        address = listening.getsockname()
        self._thread.start()
        self._server.is_up.wait()
        return address[0], address[1]

    def stop(self) -> None:
        """Stop to serve and cut what is open; safe to call twice, and without `start`."""
        if self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join()
        self._thread = None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Why the protocol: asyncio turns Nagle's algorithm off only where it is named, or each answer
    # waits 40 ms for its head to be acknowledged.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        # At once: asyncio does it again, but who starts us may connect before that.
        listening.listen(64)
    except OSError as error:
        listening.close()
        what = f"{host}:{port} can't be listened on: {error.strerror or error}"
        raise ConfigError([Problem("http.listen", what)]) from error
    return listening


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut everything off first: a stream of events would never end by itself."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)


class _BoundedProtocol(H11Protocol):
    """uvicorn's protocol with bounds on what strangers can hold."""

    def __init__(self, *, timeout_s: float, max_connections: int, **given: Any) -> None:
        super().__init__(**given)
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._arriving: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arriving = self._cut_later()
        if len(self.connections) > self._max_connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._arriving = self._arriving or self._cut_later()
        else:
            self._stop_arriving()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self._cut_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_arriving()
        self._stop_unread()
        super().connection_lost(exc)

    @property
    def idle_until_s(self) -> float | None:
        """When it is cut if it asks nothing, by the loop's clock; None = it is answered."""
        timer = self._arriving or self.timeout_keep_alive_task
        return None if timer is None else timer.when()

    def cut(self) -> None:
        """Cut it at once."""
        self._stop_arriving()
        self._unset_keepalive_if_required()
        self.transport.abort()

    def _make_room(self) -> None:
        """Cut the connection that would be cut first, so that no silent ones keep probes out."""
        connections = cast("set[_BoundedProtocol]", self.connections)
        idle = [one for one in connections if one.idle_until_s is not None]
        min(idle, key=lambda one: one.idle_until_s or 0.0).cut()

    def _cut_later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self._timeout_s, self.transport.abort)

    def _stop_arriving(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
