"""Asks many sidecars for one person, and keeps the last answers; for one event loop."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple

import msgspec
from starlette.requests import Request

from amqsidecar.clock import Clock
from amqsidecar.fleet.sources import SIDECARS_MAX, FleetMember
from amqsidecar.fleet.watch import UNREADABLE, Watch
from amqsidecar.http.access import CSRF_HEADER, Access
from amqsidecar.http.answers import ProblemAnswer
from amqsidecar.http.api.table import API_V1
from amqsidecar.http.authentication.session import COOKIE
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.guard import caller_of
from amqsidecar.http.store_queries import AnswerT
from amqsidecar.web_client import Client, RawAnswer, Unreachable

LONG_S: Final = 5.0
WAIT_S: Final = 0.25
"""How long a first screen waits for answers; later answers appear in the next screen."""

PER_SIDECAR: Final = 3
"""Requests to one sidecar at a time, so that a slow one leaves places to the others."""

_QUEUED_MAX: Final = 24
_KEPT_MAX: Final = 10_000
_KEPT_BYTES_MAX: Final = 24 * 2**20
_REST_S: Final = 10.0
"""A sidecar that took too long is asked nothing for this time."""


class Person(NamedTuple):
    """A caller: `key` tells them from others, `headers` are their credentials for sidecars."""

    key: str
    headers: Mapping[str, str]


def person_of(request: Request, access: Access, settings: AccessSettings) -> Person:
    """Return the caller that the guard has passed, with the proof that they gave, nothing stronger.

    A token is passed on as it is; the headers of a trusted proxy, to sidecars that trust this
    console as their proxy; the cookie of a session, to sidecars with the same session key.
    """
    caller = caller_of(request)
    headers = {}
    match caller.way:
        case "token":
            headers["Authorization"] = request.headers["authorization"]
        case "proxy":
            names = (settings.proxy_user_header, settings.proxy_groups_header)
            headers = {name: request.headers[name] for name in names if name in request.headers}
        case "password" | "oidc":
            cookie = request.cookies.get(f"__Host-{COOKIE}") or request.cookies.get(COOKIE, "")
            # Why both: a sidecar that browsers reach by TLS knows it by the longer name.
            headers["Cookie"] = f"{COOKIE}={cookie}; __Host-{COOKIE}={cookie}"
            # Why: a page could lead a browser to the provider again; this is none.
            headers["Sec-Fetch-Mode"] = "cors"
    # A renewed cookie is of the same session.
    proof = caller.session if "Cookie" in headers else sorted(headers.items())
    who = repr((caller.way, caller.name, caller.role, proof))
    if address := access.address_of(request):
        headers["X-Forwarded-For"] = address
    return Person(sha256(who.encode()).hexdigest(), headers)


class Said(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """The answer of a sidecar to a person.

    Attributes:
        value: None = nothing that could be used.
        at_ms: when that came; None = never.
        problem: why it is not of now; "" = it is.
        is_refused: it answered, and that was no answer to this person.
    """

    sidecar: FleetMember
    value: AnswerT | None = None
    at_ms: int | None = None
    problem: str = ""
    is_refused: bool = False


class _Kept(NamedTuple):
    said: Said[Any]
    size: int = 0
    asked_s: float = 0.0


class _Refused(Unreachable):
    """The sidecar answered, and refuses."""


class _Door:
    """The way to one sidecar."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(PER_SIDECAR)
        self.queued = 0
        self.rests_until_s = 0.0


_Key = tuple[str, str, str]


class Gatherer:
    """Asks the sidecars that the watch sees answer; none makes another one wait."""

    def __init__(self, watch: Watch, client: Client, clock: Clock, at_once: int) -> None:
        """Begin with no answers; `at_once` requests are sent at a time."""
        self.watch = watch
        self.clock = clock
        self._client = client
        self._places = asyncio.Semaphore(at_once)
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._size = 0
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._doors: dict[str, _Door] = {}

    async def all(
        self,
        person: Person,
        path: str,
        kind: type[AnswerT],
        wait_s: float = LONG_S,
        fresh_s: float = 1.0,
    ) -> list[Said[AnswerT]]:
        """Return every sidecar's answer to a GET.

        Args:
            person: who asks.
            path: below `/api/v1`, encoded.
            wait_s: maximum wait; the last known answer replaces a later one.
            fresh_s: age up to which an answer is reused.
        """
        fresh_from_s = self.clock.monotonic_s() - fresh_s
        keys = {(person.key, name, path): one.sidecar for name, one in self.watch.seen.items()}
        tasks = []
        for key, sidecar in keys.items():
            kept = self._kept.get(key)
            is_fresh = kept is not None and not kept.said.problem and kept.asked_s > fresh_from_s
            is_full = self._door(sidecar).queued >= _QUEUED_MAX
            if is_fresh or is_full or self._why_not(sidecar):
                continue
            if key not in self._running:
                task = asyncio.create_task(self._fill(key, sidecar, person, kind))
                self._running[key] = task
            tasks.append(self._running[key])
        if tasks:
            await asyncio.wait(tasks, timeout=wait_s)
        return [self._said(key, sidecar, fresh_from_s) for key, sidecar in keys.items()]

    async def one(
        self, person: Person, name: str, path: str, kind: type[AnswerT], body: Any = None
    ) -> Said[AnswerT]:
        """Return one sidecar's answer now; a body is sent by POST.

        A POST without an answer may be carried out all the same.
        """
        seen = self.watch.seen.get(name)
        sidecar = FleetMember(name, "", "") if seen is None else seen.sidecar
        headers, data = dict(person.headers), None
        try:
            if problem := self._why_not(sidecar):
                raise Unreachable(problem)
            if body is not None:
                caller = await self._ask(sidecar, "/session", headers)
                if csrf := _understood(caller, dict[str, Any]).get("csrf"):
                    headers[CSRF_HEADER] = csrf
                data = msgspec.json.encode(body)
            value = _understood(await self._ask(sidecar, path, headers, data), kind)
        except Unreachable as error:
            return Said(sidecar=sidecar, problem=str(error))
        return Said(sidecar=sidecar, value=value, at_ms=self.clock.now_ms())

    def _why_not(self, sidecar: FleetMember) -> str:
        """Return why a sidecar is asked nothing now; "" = it is asked."""
        seen = self.watch.seen.get(sidecar.name)
        if seen is None or seen.problem:
            return "there is no such sidecar" if seen is None else seen.problem
        is_resting = self.clock.monotonic_s() < self._door(sidecar).rests_until_s
        return "it took too long, and is asked again soon" if is_resting else ""

    def _door(self, sidecar: FleetMember) -> _Door:
        if len(self._doors) > 2 * SIDECARS_MAX:
            here = self.watch.seen
            self._doors = {name: one for name, one in self._doors.items() if name in here}
        return self._doors.setdefault(sidecar.name, _Door())

    async def _ask(
        self,
        sidecar: FleetMember,
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

    async def _fill(self, key: _Key, sidecar: FleetMember, person: Person, kind: type[Any]) -> None:
        asked_s, size = self.clock.monotonic_s(), 0
        try:
            answer = await self._ask(sidecar, key[2], person.headers)
            size, value = len(answer.body), _understood(answer, kind)
            said = Said[Any](sidecar=sidecar, value=value, at_ms=self.clock.now_ms())
        except _Refused as error:
            # Why nothing of before: the person may have lost the right to it.
            said = Said[Any](sidecar=sidecar, problem=str(error), is_refused=True)
        except Unreachable as error:
            before = self._kept.get(key, _Kept(Said[Any](sidecar=sidecar)))
            said, size = msgspec.structs.replace(before.said, problem=str(error)), before.size
        finally:
            del self._running[key]
        self._size += size - (self._kept.pop(key).size if key in self._kept else 0)
        self._kept[key] = _Kept(said, size, asked_s)
        while self._size > _KEPT_BYTES_MAX or len(self._kept) > _KEPT_MAX:
            self._size -= self._kept.popitem(last=False)[1].size

    def _said(self, key: _Key, sidecar: FleetMember, fresh_from_s: float) -> Said[Any]:
        nothing = Said[Any](sidecar=sidecar, problem="no answer yet")
        kept = self._kept.get(key, _Kept(nothing))
        problem = self._why_not(sidecar) or kept.said.problem
        if not problem and kept.asked_s <= fresh_from_s:
            problem = "no newer answer yet"
        return msgspec.structs.replace(kept.said, sidecar=sidecar, problem=problem)


def _understood(answer: RawAnswer, kind: type[AnswerT]) -> AnswerT:
    """Return the value of an answer.

    Raises:
        _Refused: it is a refusal, or can't be understood.
    """
    status, body, _ = answer
    try:
        if status not in (200, 201):
            raise _Refused(f"{status}: {msgspec.json.decode(body, type=ProblemAnswer).detail:.300}")
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise _Refused(f"an answer ({status}) that this version can't read: {error}") from error
