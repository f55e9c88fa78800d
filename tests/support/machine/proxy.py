"""A TCP proxy on loopback that does to a link what networks do.

    with Proxy(broker.ports["PORT"]) as proxy:
        proxy.cut()

All of it runs in one thread of its own; the methods may be called from any other.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

from support.machine.ports import free_port
from support.waiting import PATIENCE_S

TO_BROKER = "to_broker"
TO_SIDECAR = "to_sidecar"
DIRECTIONS = (TO_BROKER, TO_SIDECAR)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK_BYTES = 65_536


class _Connection:
    """One connection of the sidecar, and the one to the broker that belongs to it."""

    def __init__(self, proxy: "Proxy", streams: dict[str, asyncio.StreamWriter]) -> None:
        self._proxy = proxy
        self._writers = streams
        self.flows = asyncio.Event()
        self.cut_after: dict[str, int] = {}
        self.is_swallowed: set[str] = set()
        for writer in streams.values():
            peer: socket.socket = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    async def pump(self, source: asyncio.StreamReader, direction: str) -> None:
        """Forward one direction until its source ends, or the connection is reset."""
        writer = self._writers[direction]
        with contextlib.suppress(OSError):
            while data := await source.read(self._proxy.chunk_bytes):
                await self.flows.wait()
                await asyncio.sleep(self._proxy.delay_s)
                if direction in self.is_swallowed:
                    continue
                left = self.cut_after.get(direction)
                if left is not None:
                    self.cut_after[direction] = left - len(data)
                    data = data[:left]
                writer.write(data)
                await writer.drain()
                if left is not None and self.cut_after[direction] <= 0:
                    self._proxy.resets += 1
                    self.reset()
            await self.flows.wait()
            self.half_close(direction)
            return
        self.reset()

    def half_close(self, direction: str) -> None:
        """End one direction for its receiver; the other one continues."""
        self.is_swallowed.add(direction)
        with contextlib.suppress(OSError):
            self._writers[direction].write_eof()

    def reset(self) -> None:
        """End both sides as a machine does that knows of no connection."""
        for writer in self._writers.values():
            writer.transport.abort()
        self.flows.set()


class Proxy:
    """Listens on `port` and forwards to the target; a context manager.

    Attributes:
        resets: how many connections were cut in a frame.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.delay_s = 0.0
        self.chunk_bytes = _CHUNK_BYTES
        self.resets = 0
        self._target_port = target_port
        self._connections: set[_Connection] = set()
        self._lets_new_ones_flow = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def cut(self) -> None:
        """Reset every connection."""
        self._each(_Connection.reset)

    def cut_in_frame(self, direction: str, after_bytes: int) -> None:
        """Reset every connection once this many more bytes have gone in a direction."""
        self._each(lambda one: one.cut_after.update({direction: after_bytes}))

    def half_close(self, direction: str) -> None:
        """Close one direction of every connection, and swallow what comes there later."""
        self._each(lambda one: one.half_close(direction))

    def stall(self, *, new_ones_too: bool) -> None:
        """Forward nothing more, and keep all connections; also those that are made from now on?"""
        self._lets_new_ones_flow = not new_ones_too
        self._each(lambda one: one.flows.clear())

    def resume(self) -> None:
        """Forward again, first of all what was held back, at full speed."""
        self._lets_new_ones_flow = True
        self.delay_s, self.chunk_bytes = 0.0, _CHUNK_BYTES
        self._each(lambda one: one.flows.set())

    def slow(self, delay_s: float, chunk_bytes: int) -> None:
        """Limit the rate: each block of bytes takes this time."""
        self.delay_s, self.chunk_bytes = delay_s, chunk_bytes

    @property
    def open_connections(self) -> int:
        """How many connections there are that the broker has not ended."""
        return sum(TO_SIDECAR not in one.is_swallowed for one in list(self._connections))

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _end(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.reset()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=PATIENCE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, {TO_BROKER: broker[1], TO_SIDECAR: writer})
        if self._lets_new_ones_flow:
            connection.flows.set()
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.pump(reader, TO_BROKER), connection.pump(broker[0], TO_SIDECAR)
            )
        finally:
            connection.reset()
            self._connections.discard(connection)

    def _each(self, act: Callable[[_Connection], object]) -> None:
        async def act_on_each() -> None:
            for connection in list(self._connections):
                act(connection)

        self._run(act_on_each)

    def _run(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        asyncio.run_coroutine_threadsafe(make(), self._loop).result(10)
