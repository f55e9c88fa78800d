"""Watches whether sidecars answer, without anybody's credentials."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.fleet.sources import FleetMember, FleetSources
from amqsidecar.web_client import Client, Unreachable

PROBE_S: Final = 2.0
"""Time limit of one look; a sidecar that takes longer is not asked anything else."""

_EVERY_S: Final = 3.0
_FIND_EVERY: Final = 5
_AT_ONCE: Final = 32


UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised for an answer that is no JSON, or another one than is expected."""


class MemberState(msgspec.Struct, frozen=True):
    """How a sidecar answered last.

    Attributes:
        problem: why it does not answer; "" = it does.
        since_ms: since when that is so, as far as this console has seen.
        answered_ms: when it answered last; None = never to this console.
        version: that it said then; "" = none.
    """

    sidecar: FleetMember
    problem: str
    since_ms: int
    answered_ms: int | None = None
    version: str = ""


class Watch:
    """Looks at all sidecars by a client of short patience; any thread may read `seen`."""

    def __init__(self, sources: FleetSources, client: Client, clock: Clock) -> None:
        self.sources = sources
        self._client = client
        self._clock = clock
        self._sidecars: list[FleetMember] = []
        self._round = 0
        self.seen: Mapping[str, MemberState] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop` is set."""
        while not stop.is_set():
            await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _EVERY_S)

    async def look(self) -> None:
        """Look at each sidecar once, and every few rounds for new sidecars."""
        if self._round % _FIND_EVERY == 0:
            self._sidecars = await self.sources.find()
        self._round += 1
        places = asyncio.Semaphore(_AT_ONCE)
        found = await asyncio.gather(*(self._look_at(one, places) for one in self._sidecars))
        self.seen = {one.sidecar.name: one for one in found}

    async def _look_at(self, sidecar: FleetMember, places: asyncio.Semaphore) -> MemberState:
        before = self.seen.get(sidecar.name)
        if before is not None and before.sidecar.url != sidecar.url:
            before = None
        version = "" if before is None else before.version
        async with places:
            try:
                answer = await self._client.ask(f"{sidecar.url}/healthz", {})
                problem = "" if answer.status == 200 else f"/healthz answers {answer.status}"
                if not problem:
                    said = msgspec.json.decode(answer.body, type=dict[str, Any])
                    version = str(said.get("version", ""))
            except (Unreachable, *UNREADABLE) as error:
                problem = str(error)
        since_ms = now_ms = self._clock.now_ms()
        last_ms = None if before is None else before.answered_ms
        if before is not None and bool(before.problem) == bool(problem):
            since_ms = before.since_ms
        return MemberState(sidecar, problem, since_ms, last_ms if problem else now_ms, version)
