"""Whether the sidecar lives, is ready, and why not."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from threading import Lock
from typing import Final

import msgspec

from amqsidecar import __version__
from amqsidecar.model.foreign_token import ForeignToken

_READY: Final = "ready"


class TokenState(StrEnum):
    """Whether this process owns its instance."""

    UNKNOWN = "unknown"
    AWAITED = "awaited"
    OURS = "ours"
    NOT_NEEDED = "not needed"


class LinkPart(msgspec.Struct, frozen=True, kw_only=True):
    """The link to the broker."""

    up: bool
    reason: str


class StorePart(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule's store."""

    ok: bool
    reason: str


class TokenPart(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this process owns its instance; see `TokenState`."""

    state: str
    reason: str


class IntakePart(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the intake.

    Attributes:
        read: number of dead-letter queues that are read.
        refused: the broker's words by the name of a queue that can't be read.
        reason: why nothing can be read; "" = it can.
    """

    read: int
    refused: dict[str, str]
    reason: str


class TakingPart(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the store has room to take dead letters; due messages are sent in any case."""

    ok: bool = True
    reason: str = ""


class ClockPart(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule's clock.

    Attributes:
        behind_s: by how much it is behind the wall clock; negative = ahead.
    """

    behind_s: float = 0.0


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/readyz`: whether messages can be taken and sent.

    Attributes:
        status: "ready" (the link is up, the store is writable, a queue can be read) or "not ready".
        other_schedules: tokens of other schedules; what waits in one that is not held is not sent
            by any sidecar.
        taking: where the store has no room it is not ok, and the status is ready all the same:
            what is due is sent.
    """

    status: str
    link: LinkPart
    store: StorePart
    token: TokenPart
    intake: IntakePart
    other_schedules: tuple[ForeignToken, ...]
    clock: ClockPart
    taking: TakingPart

    @property
    def is_ready(self) -> bool:
        """Whether the probe succeeds."""
        return self.status == _READY


class HealthAnswer(msgspec.Struct, frozen=True):
    """The answer to a probe.

    Attributes:
        is_good: False = the probe fails.
        body: JSON.
    """

    is_good: bool
    body: bytes


class _Part(msgspec.Struct):
    is_good: bool = False
    reason: str = "not tried yet"


class Health:
    """The last report of each part of the service; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._broker = ""
        self._link = _Part()
        self._store = _Part()
        self._token = TokenState.UNKNOWN
        self._token_reason = ""
        self._read_count = 0
        self._refused: Mapping[str, str] = {}
        self._intake_problem = ""
        self._taking_problem = ""
        self._foreign: tuple[ForeignToken, ...] = ()
        self._clock_behind_ms = 0

    def link_up(self, broker: str) -> None:
        """The link to this broker is up, the token is ours, dead letters are read."""
        self._up(broker, TokenState.OURS)

    def looking(self, broker: str) -> None:
        """The link is up of an observer, or of a service whose schedule the broker keeps."""
        self._up(broker, TokenState.NOT_NEEDED)
        self.store_ok()

    def _up(self, broker: str, token: TokenState) -> None:
        with self._lock:
            self._broker = broker
            self._link = _Part(is_good=True, reason="")
            self._token, self._token_reason = token, ""

    def link_down(self, reason: str) -> None:
        """Nothing is read or sent for now."""
        with self._lock:
            self._link = _Part(is_good=False, reason=reason)
            self._token, self._token_reason = TokenState.UNKNOWN, ""

    def store_ok(self) -> None:
        """The store takes writes."""
        with self._lock:
            self._store = _Part(is_good=True, reason="")

    def store_failed(self, reason: str) -> None:
        """The store takes no writes; nothing is read or sent for now."""
        with self._lock:
            self._store = _Part(is_good=False, reason=reason)

    def token_awaited(self, reason: str) -> None:
        """The broker is reached, but another process still holds the token."""
        with self._lock:
            self._token, self._token_reason = TokenState.AWAITED, reason

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        """Set the number of dead-letter queues that are read, or the problem why none can be."""
        with self._lock:
            self._read_count, self._refused = read_count, dict(refused)
            self._intake_problem = problem

    def taking(self, problem: str) -> None:
        """Dead letters are taken; or why the store has no room for them."""
        with self._lock:
            self._taking_problem = problem

    def foreign_tokens(self, items: Sequence[ForeignToken]) -> None:
        """The broker holds these tokens of other schedules."""
        with self._lock:
            self._foreign = tuple(items)

    def clock(self, behind_ms: int) -> None:
        """The schedule's clock is behind the wall clock by this much; negative = ahead."""
        self._clock_behind_ms = behind_ms

    @property
    def broker(self) -> str:
        """Product, version and address of the broker of the last link; "" = there was none."""
        return self._broker

    def healthz(self) -> HealthAnswer:
        """Answer whether the process lives: an answer proves it."""
        return HealthAnswer(is_good=True, body=_json({"status": "ok", "version": __version__}))

    def readyz(self) -> HealthAnswer:
        """Answer whether messages can be taken and sent; the body is a `Readiness`."""
        found = self.readiness()
        return HealthAnswer(is_good=found.is_ready, body=_json(found))

    def readiness(self) -> Readiness:
        """Return the last report of each part."""
        with self._lock:
            is_ready = self._link.is_good and self._store.is_good and not self._intake_problem
            return Readiness(
                status=_READY if is_ready else "not ready",
                link=LinkPart(up=self._link.is_good, reason=self._link.reason),
                store=StorePart(ok=self._store.is_good, reason=self._store.reason),
                token=TokenPart(state=self._token.value, reason=self._token_reason),
                intake=IntakePart(
                    read=self._read_count,
                    refused=dict(self._refused),
                    reason=self._intake_problem,
                ),
                other_schedules=self._foreign,
                clock=ClockPart(behind_s=self._clock_behind_ms / 1000),
                taking=TakingPart(ok=not self._taking_problem, reason=self._taking_problem),
            )


def _json(answer: object) -> bytes:
    return msgspec.json.encode(answer) + b"\n"
