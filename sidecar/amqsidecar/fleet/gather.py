"""Asks many sidecars for one person, and keeps the last answers; for one event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.fleet.client import RawAnswer, Client, Unreachable
from amqsidecar.fleet.sources import SIDECARS_MAX, Sidecar
from amqsidecar.fleet.watch import Watch
from amqsidecar.http.api.table import API_V1

WAIT_S: Final = 0.25
"""How long a first screen waits for answers; those that come later are in the next one."""

PER_SIDECAR: Final = 3
"""Requests to one sidecar at a time, so that a slow one leaves places to the others."""

_QUEUED_MAX: Final = 24
"""Requests to one sidecar that wait or are sent; more are not made."""

KEPT_BYTES_MAX: Final = 24 * 2**20
"""Bytes of the answers that are kept, as they were sent."""

_REST_S: Final = 10.0
"""A sidecar that took too long is asked nothing for this time."""

T = TypeVar("T")


class Person(NamedTuple):
    """A caller.

    Attributes:
        key: tells them from others; answers are kept by it.
        headers: their own credentials, for the sidecars.
    """

    key: str
    headers: Mapping[str, str]


class Said(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What a sidecar answered to a person.

    Attributes:
        value: None = nothing that could be used.
        at_ms: when that came; None = never.
        problem: why it is not of now; "" = it is.
        is_refused: it answered, and that was no answer to this person.
    """

    sidecar: Sidecar
    value: T | None
    at_ms: int | None
    problem: str
    is_refused: bool = False


class _Kept(NamedTuple):
    value: Any = None
    at_ms: int | None = None
    size: int = 0
    problem: str = ""
    asked_s: float = 0.0
    is_refused: bool = False


class _Problem(msgspec.Struct):
    detail: str = ""


class _Door:
    """The way to one sidecar."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(PER_SIDECAR)
        self.queued = 0
        self.rests_until_s = 0.0


_Key = tuple[str, str, str]


class Gatherer:
    """Asks; no sidecar makes another one wait."""

    def __init__(self, watch: Watch, client: Client, clock: Clock, at_once: int) -> None:
        """Begin with no answers.

        Args:
            watch: knows which sidecars answer; others are not asked.
            client: sends the requests.
            clock: the time.
            at_once: requests at a time.
        """
        self.watch = watch
        self.clock = clock
        self._client = client
        self._places = asyncio.Semaphore(at_once)
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._size = 0
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._doors: dict[str, _Door] = {}

    async def all(
        self, person: Person, path: str, kind: type[T], *, wait_s: float, fresh_s: float = 0.0
    ) -> list[Said[T]]:
        """Return what every sidecar answers to a GET, by name.

        Args:
            person: who asks.
            path: below `/api/v1`, encoded.
            kind: of the answer.
            wait_s: how long at most; what was known before stands in for later answers.
            fresh_s: up to which age an answer is not asked for again.
        """
        began_s = self.clock.monotonic_s()
        sidecars = [one.sidecar for one in self.watch.seen.values()]
        tasks = []
        for one in sidecars:
            key = (person.key, one.name, path)
            kept = self._kept.get(key)
            is_fresh = kept is not None and not kept.problem and began_s - kept.asked_s < fresh_s
            is_full = self._door(one).queued >= _QUEUED_MAX
            if not (is_fresh or is_full or self._why_not(one)):
                if key not in self._running:
                    task = asyncio.create_task(self._fill(key, one, person, kind))
                    self._running[key] = task
                tasks.append(self._running[key])
        if tasks:
            await asyncio.wait(tasks, timeout=wait_s)
        return [
            self._said((person.key, one.name, path), one, began_s - fresh_s) for one in sidecars
        ]

    async def one(
        self, person: Person, name: str, path: str, kind: type[T], body: Any = None
    ) -> Said[T]:
        """Return what one sidecar answers now; a body is sent by POST.

        A POST without an answer may be carried out all the same.
        """
        seen = self.watch.seen.get(name)
        sidecar = Sidecar(name=name, url="", console="") if seen is None else seen.sidecar
        headers, data = dict(person.headers), None
        try:
            if problem := self._why_not(sidecar):
                raise Unreachable(problem)
            if body is not None:
                session = _understood(await self._ask(sidecar, "/session", headers), _Session)
                headers |= {"X-CSRF-Token": session.csrf} if session.csrf else {}
                data = msgspec.json.encode(body)
            value = _understood(await self._ask(sidecar, path, headers, data), kind)
        except Unreachable as error:
            return Said(sidecar=sidecar, value=None, at_ms=None, problem=str(error))
        return Said(sidecar=sidecar, value=value, at_ms=self.clock.now_ms(), problem="")

    def _why_not(self, sidecar: Sidecar) -> str:
        """Return why a sidecar is asked nothing now; "" = it is asked."""
        seen = self.watch.seen.get(sidecar.name)
        if seen is None or seen.problem:
            return "there is no such sidecar" if seen is None else seen.problem
        is_resting = self.clock.monotonic_s() < self._door(sidecar).rests_until_s
        return "it took too long, and is asked again soon" if is_resting else ""

    def _door(self, sidecar: Sidecar) -> "_Door":
        if len(self._doors) > 2 * SIDECARS_MAX:
            here = self.watch.seen
            self._doors = {name: one for name, one in self._doors.items() if name in here}
        return self._doors.setdefault(sidecar.name, _Door())

    async def _ask(
        self,
        sidecar: Sidecar,
        path: str,
        headers: Mapping[str, str],
        data: bytes | None = None,
    ) -> RawAnswer:
        door = self._door(sidecar)
        door.queued += 1
        try:
            async with door.places, self._places:
                return await self._client.ask(f"{sidecar.url}{API_V1}{path}", headers, data)
        except Unreachable:
            door.rests_until_s = self.clock.monotonic_s() + _REST_S
            raise
        finally:
            door.queued -= 1

    async def _fill(self, key: _Key, sidecar: Sidecar, person: Person, kind: type[Any]) -> None:
        asked_s = self.clock.monotonic_s()
        try:
            answer = await self._ask(sidecar, key[2], person.headers)
            value, now_ms = _understood(answer, kind), self.clock.now_ms()
            self._keep(key, _Kept(value, now_ms, len(answer.body), asked_s=asked_s))
        except _Refused as error:
            # Why nothing of before: the person may have lost the right to it.
            self._keep(key, _Kept(problem=str(error), asked_s=asked_s, is_refused=True))
        except Unreachable as error:
            before = self._kept.get(key) or _Kept()
            self._keep(key, before._replace(problem=str(error), asked_s=asked_s))
        finally:
            del self._running[key]

    def _keep(self, key: _Key, kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        self._size += kept.size - (0 if before is None else before.size)
        self._kept[key] = kept
        while self._size > KEPT_BYTES_MAX or len(self._kept) > 10_000:
            self._size -= self._kept.popitem(last=False)[1].size

    def _said(self, key: _Key, sidecar: Sidecar, since_s: float) -> Said[Any]:
        kept = self._kept.get(key, _Kept(problem="no answer yet"))
        problem = self._why_not(sidecar) or kept.problem
        if not problem and kept.asked_s < since_s:
            problem = "no newer answer yet"
        return Said(
            sidecar=sidecar,
            value=kept.value,
            at_ms=kept.at_ms,
            problem=problem,
            is_refused=kept.is_refused,
        )


class _Session(msgspec.Struct):
    csrf: str = ""


class _Refused(Unreachable):
    """The sidecar answered, and refuses."""


def _understood(answer: RawAnswer, kind: type[T]) -> T:
    """Return the value of an answer.

    Raises:
        _Refused: it is a refusal, or can't be understood.
    """
    status, body = answer
    try:
        if status not in (200, 201):
            raise _Refused(f"{status}: {msgspec.json.decode(body, type=_Problem).detail[:300]}")
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Refused(f"an answer ({status}) that this version can't read: {error}") from error
