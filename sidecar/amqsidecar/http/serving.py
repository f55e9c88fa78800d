"""The HTTP server: uvicorn in a thread of its own, which strangers can't keep busy.

Connections are few; one whose request does not arrive, or whose answer is not read, is cut off
after a while, and at once if another client needs its place. When all places are taken, metrics and
health are still answered, on places of their own. The duration of an answer is not bounded here: a
stream of events has no end.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from typing import Any, Final, NamedTuple, cast

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.guard import OPEN
from amqsidecar.runtime.process import prepare_structs

MAX_CONNECTIONS: Final = 64
"""Maximum open connections; beyond it, an idle one is closed."""

MAX_PER_ADDRESS: Final = 32
"""The same from one address that is no trusted proxy's."""

PROBE_PLACES: Final = 16
"""More connections, on each of which one request for metrics or health is answered."""

PROBE_S: Final = 3.0
"""Time limit for a request to arrive on one of those."""

TIMEOUT_S: Final = 10.0
"""Time limit for a request to arrive, and for an answer to be read on."""

_KEEP_ALIVE_S: Final = 5
_MAX_HEAD_BYTES: Final = 32_768


class HttpServer:
    """Serves an application on one address, in a thread of its own.

    Args:
        app: the served application.
        timeout_s: time limit for a request to arrive, and for the client to go on reading the
            answer.
        max_connections: at a time, in total.
        max_per_address: at a time, from one address.
        is_shared: whether many people share an address: a proxy's.
        has_lifespan: whether the application takes ASGI lifespan events.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        timeout_s: float = TIMEOUT_S,
        max_connections: int = MAX_CONNECTIONS,
        max_per_address: int = MAX_PER_ADDRESS,
        is_shared: Callable[[str], bool] = lambda _address: False,
        has_lifespan: bool = False,
    ) -> None:
        bounds = _Bounds(timeout_s, max_connections, max_per_address, is_shared)
        protocol = partial(_BoundedProtocol, bounds=bounds)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="on" if has_lifespan else "off",
                loop="asyncio",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                # Why: `access.py` decides which proxies to trust.
                proxy_headers=False,
                timeout_keep_alive=min(_KEEP_ALIVE_S, max(1, int(timeout_s))),
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            )
        )
        self._thread: Thread | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Begin to serve; returns address and port, the chosen one for port 0.

        Raises:
            ConfigError: the address can't be listened on.
        """
        listening = _listen(host, port)
        # Why: it logs every bad request of any client.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        self._thread = Thread(
            target=self._server.run, args=([listening],), name="http", daemon=True
        )
        address = listening.getsockname()
        # Why here: the web's structs are imported only where HTTP is on.
        prepare_structs()
        self._thread.start()
        self._server.is_up.wait()
        return address[0], address[1]

    def stop(self) -> None:
        """Stop serving and close open connections; safe to call twice, and without `start`."""
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
        """Close all connections first: a stream of events would never end by itself."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)


class _Bounds(NamedTuple):
    """See `HttpServer`."""

    timeout_s: float
    max_connections: int
    max_per_address: int
    is_shared: Callable[[str], bool]


class _BoundedProtocol(H11Protocol):
    """uvicorn's protocol with bounds on the resources that a client can hold."""

    def __init__(self, *, bounds: _Bounds, **given: Any) -> None:
        super().__init__(**given)
        self._bounds = bounds
        self._arriving: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.is_for_probes = False
        """Whether only metrics and health are answered."""
        self.is_cut = False
        """Whether its place is free already."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Why: otherwise up to 64 KiB that the client does not read wait here unnoticed.
        transport.set_write_buffer_limits(high=0)
        self.is_for_probes = not self._find_place()
        self._arriving = self._cut_later()
        if self.is_for_probes:
            self.app = _only_probes(self.app)
            places = self._others(is_for_probes=True)
            if len(places) >= PROBE_PLACES:
                _make_room(places or [self])

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._arriving = self._arriving or self._cut_later()
        else:
            self._stop_arriving()
        is_answered = self.cycle is None or self.cycle.response_complete
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0] and not is_answered:
            # Why: a client that asks without reading answers would occupy the server.
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self._cut_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_cut = True
        self._stop_arriving()
        self._stop_unread()
        super().connection_lost(exc)

    @property
    def idle_until_s(self) -> float | None:
        """When an idle connection is closed, by the loop's clock; None = it is being served."""
        timer = self._arriving or self._unread or self.timeout_keep_alive_task
        return None if timer is None else timer.when()

    def cut(self) -> None:
        """Close it at once."""
        self.is_cut = True
        self._stop_arriving()
        self._stop_unread()
        self._unset_keepalive_if_required()
        self.transport.abort()

    def _find_place(self) -> bool:
        """Return whether a place is free for any request, after closing an idle connection."""
        address = self.address
        others = self._others(is_for_probes=False)
        same = [one for one in others if one.address == address]
        if len(same) >= self._bounds.max_per_address and not self._bounds.is_shared(address):
            return _make_room(same)
        return len(others) < self._bounds.max_connections or _make_room(others)

    def _others(self, *, is_for_probes: bool) -> list["_BoundedProtocol"]:
        connections = cast("set[_BoundedProtocol]", self.connections)
        return [
            one
            for one in connections
            if one is not self and not one.is_cut and one.is_for_probes is is_for_probes
        ]

    @property
    def address(self) -> str:
        """Its source address; "" = unknown."""
        return self.client[0] if self.client else ""

    def _cut_later(self) -> asyncio.TimerHandle:
        timeout_s = self._bounds.timeout_s
        return self.loop.call_later(
            min(timeout_s, PROBE_S) if self.is_for_probes else timeout_s, self.cut
        )

    def _stop_arriving(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def _make_room(connections: Sequence[_BoundedProtocol]) -> bool:
    """Cut the connection that is nearest its timeout; returns whether there is one."""
    idle = [one for one in connections if one.idle_until_s is not None]
    if idle:
        min(idle, key=lambda one: one.idle_until_s or 0.0).cut()
    return bool(idle)


def _only_probes(app: Any) -> ASGIApp:
    """Return an application that answers metrics and health, and then ends the connection."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        is_probe = scope["type"] == "http" and scope["path"] in OPEN
        refusal = PlainTextResponse("503 too many connections\n", 503, {"Retry-After": "5"})
        await (app if is_probe else refusal)(scope, receive, send_last)

    return answer
