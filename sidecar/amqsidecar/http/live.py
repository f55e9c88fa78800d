"""Live counters: one query of the store serves all listeners with the same rights."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from amqsidecar.errors import StoreError
from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.rights import Rights
from amqsidecar.http.store_queries import QueryContext, StoreBusy, StoreQueries
from amqsidecar.model.operation import Operation
from amqsidecar.model.schedule import RowState

MAX_LISTENERS: Final = 16
EVERY_S: Final = 2.0
LISTEN_S: Final = 300.0
"""Lifetime of a stream; then a listener connects and authenticates again, as browsers do."""


class LiveCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The live updates of open pages.

    Attributes:
        next_due_at_ms: when the next waiting message is due; null = none waits.
        operations: that run, or whose outcomes are still open.
    """

    waiting: int
    held: int
    parked: int
    exhausted: int
    next_due_at_ms: int | None
    operations: list[Operation]


def read_counters(at: QueryContext) -> LiveCounters:
    """Return the counters; scans no rows."""
    counts = dict.fromkeys(RowState, 0)
    for tally in at.store.tallies():
        counts[tally.state] += tally.count
    return LiveCounters(
        waiting=counts[RowState.WAITING],
        held=counts[RowState.HELD],
        parked=counts[RowState.PARKED],
        exhausted=counts[RowState.EXHAUSTED],
        next_due_at_ms=at.store.next_due_ms(),
        operations=at.store.open_operations(),
    )


class Live:
    """Sends changed counters to listeners; for the server's thread."""

    def __init__(self, queries: StoreQueries, every_s: float = EVERY_S) -> None:
        self._queries = queries
        self._every_s = every_s
        self._listeners: dict[asyncio.Queue[bytes], Caller] = {}
        self._poller: asyncio.Task[None] | None = None

    async def listen(self, caller: Caller) -> AsyncIterator[bytes]:
        """Return server-sent events, beginning with the counters as they are.

        Raises:
            HttpRefused: too many listen already.
            NoStore, StoreBusy, StoreUnavailable: as `StoreQueries.ask`.
        """
        if len(self._listeners) >= MAX_LISTENERS:
            raise HttpRefused(503, "too many listen already", Retry_After="30")
        events = self._events(caller)
        # Why at once: who waits for the first counters has a place already.
        first = await anext(events)
        return _preceded(first, events)

    async def _events(self, caller: Caller) -> AsyncIterator[bytes]:
        heard = asyncio.Queue[bytes](1)
        self._listeners[heard] = caller
        try:
            yield await self._read(caller)
            if self._poller is None:
                self._poller = asyncio.create_task(self._poll())
            end_s = asyncio.get_running_loop().time() + LISTEN_S
            while asyncio.get_running_loop().time() < end_s:
                try:
                    yield await asyncio.wait_for(heard.get(), self._every_s)
                except TimeoutError:
                    # Why: the guard ends a stream with a part that its caller may no longer read.
                    yield b": still here\n\n"
        finally:
            del self._listeners[heard]

    async def _poll(self) -> None:
        last: dict[Rights, bytes] = {}
        try:
            while self._listeners:
                await asyncio.sleep(self._every_s)
                callers = {one.rights: one for one in self._listeners.values()}
                for rights, caller in callers.items():
                    try:
                        told = await self._read(caller)
                    except (StoreError, StoreBusy):
                        continue
                    if told != last.get(rights):
                        last[rights] = told
                        self._publish(told, rights)
        finally:
            self._poller = None

    def _publish(self, told: bytes, rights: Rights) -> None:
        for listener in [one for one, who in self._listeners.items() if who.rights == rights]:
            # A slow listener misses outdated values.
            if listener.full():
                listener.get_nowait()
            listener.put_nowait(told)

    async def _read(self, caller: Caller) -> bytes:
        found = await self._queries.ask(caller, read_counters)
        counters = await self._queries.masking.answer(found)
        return b"event: counters\ndata: " + msgspec.json.encode(counters) + b"\n\n"


async def _preceded(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for told in rest:
        yield told
