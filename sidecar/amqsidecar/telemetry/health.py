"""Whether the sidecar lives, is ready, and why not."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from threading import Lock

import msgspec
import structlog

from amqsidecar import __version__
from amqsidecar.clock import ClockStep
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import REFUSED, LeftBehind

_NOT_TRIED = "not tried yet"

log = structlog.get_logger("amqsidecar.service")


class TokenState(StrEnum):
    """Whether this process owns its instance."""

    UNKNOWN = "unknown"
    AWAITED = "awaited"
    OURS = "ours"
    NOT_NEEDED = "not needed"


class LinkPart(msgspec.Struct, frozen=True, kw_only=True):
    """The link to the broker."""

    up: bool = False
    reason: str = _NOT_TRIED


class StorePart(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule's store."""

    ok: bool = False
    reason: str = _NOT_TRIED


class TokenPart(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this process owns its instance."""

    state: TokenState = TokenState.UNKNOWN
    reason: str = ""


class IntakePart(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the intake.

    Attributes:
        refused: the broker's words by the name of a queue that can't be read.
        reason: why nothing can be read; "" = it can.
    """

    read: int = 0
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    reason: str = ""


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
        other_schedules: tokens of other schedules; if a token isn't held, no sidecar sends that
            schedule's messages.
        taking: not ok if the store has no room; the status may still be ready, since due messages
            are sent.
    """

    status: str = "not ready"
    link: LinkPart = LinkPart()
    store: StorePart = StorePart()
    token: TokenPart = TokenPart()
    intake: IntakePart = IntakePart()
    other_schedules: tuple[ForeignToken, ...] = ()
    clock: ClockPart = ClockPart()
    taking: TakingPart = TakingPart()

    def __post_init__(self) -> None:
        is_ready = self.link.up and self.store.ok and not self.intake.reason
        msgspec.structs.force_setattr(self, "status", "ready" if is_ready else "not ready")

    @property
    def is_ready(self) -> bool:
        """Whether the probe succeeds."""
        return self.status == "ready"


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of each part of the service: probes, metrics, console and API read this one.

    Attributes:
        broker: product, version and address of the broker of the last link; "" = there was none.
        reconnects: how often a link that had been up was up again.
        clock_steps_ahead, clock_steps_back: how often the machine's clock was set.
        left_behind: messages that the link does not take.
    """

    readiness: Readiness = Readiness()
    broker: str = ""
    reconnects: int = 0
    clock_steps_ahead: int = 0
    clock_steps_back: int = 0
    left_behind: tuple[LeftBehind, ...] = ()


class HealthAnswer(msgspec.Struct, frozen=True):
    """The answer to a probe."""

    is_good: bool
    body: bytes


class Health:
    """Keeps the state of the service; every method may be called from any thread."""

    def __init__(self, *, needs_token: bool = True) -> None:
        """Begin with nothing reported.

        Args:
            needs_token: False = an observer, or a service whose schedule the broker keeps.
        """
        self._lock = Lock()
        self._needs_token = needs_token
        self._state = ServiceState()
        self._left: dict[str, tuple[LeftBehind, ...]] = {}

    def state(self) -> ServiceState:
        """Return the state now."""
        return self._state

    def _set(self, **parts: object) -> None:
        with self._lock:
            readiness = msgspec.structs.replace(self._state.readiness, **parts)
            self._state = msgspec.structs.replace(self._state, readiness=readiness)

    def link_up(self, broker: str) -> None:
        """The link to this broker is up, the token is ours if needed, dead letters are read."""
        with self._lock:
            self._state = msgspec.structs.replace(self._state, broker=broker)
        link = LinkPart(up=True, reason="")
        if self._needs_token:
            self._set(link=link, token=TokenPart(state=TokenState.OURS))
        else:
            self._set(link=link, token=TokenPart(state=TokenState.NOT_NEEDED))
            self.store_ok()

    def link_down(self, reason: str) -> None:
        """Nothing is read or sent for now."""
        self._set(link=LinkPart(reason=reason), token=TokenPart())

    def reconnected(self) -> None:
        """A link that had been up is up again."""
        with self._lock:
            count = self._state.reconnects + 1
            self._state = msgspec.structs.replace(self._state, reconnects=count)

    def store_ok(self) -> None:
        """The store takes writes."""
        self._set(store=StorePart(ok=True, reason=""))

    def store_failed(self, reason: str) -> None:
        """The store takes no writes; nothing is read or sent for now."""
        self._set(store=StorePart(reason=reason))

    def token_awaited(self, reason: str) -> None:
        """The broker is reached, but another process still holds the token."""
        self._set(token=TokenPart(state=TokenState.AWAITED, reason=reason))

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        """Set the state of the intake.

        Args:
            read_count: names and wildcards.
            refused: the broker's words by queue.
            problem: why nothing at all can be read; "" = something is, or may be found any time.
        """
        self._set(intake=IntakePart(read=read_count, refused=dict(refused), reason=problem))

    def taking(self, problem: str) -> None:
        """Dead letters are taken; or why the store has no room for them."""
        self._set(taking=TakingPart(ok=not problem, reason=problem))

    def foreign_tokens(self, items: Sequence[ForeignToken]) -> None:
        """The broker holds these tokens of other schedules."""
        self._set(other_schedules=tuple(items))

    def left_behind(self, items: tuple[LeftBehind, ...], found_by: str = "") -> None:
        """These messages stay in the dead-letter queues; changes by this finder are logged."""
        with self._lock:
            if items == self._left.get(found_by, ()):
                return
            self._left[found_by] = items
            found = {(one.queue, one.reason): one for left in self._left.values() for one in left}
            self._state = msgspec.structs.replace(self._state, left_behind=tuple(found.values()))
        for item in items:
            if item.reason != REFUSED:
                log.warning(
                    "left_behind",
                    queue=str(item.queue),
                    count=item.count,
                    at_least=item.at_least,
                    reason=item.reason,
                    meaning=item.meaning,
                )

    def clock(self, step: ClockStep) -> None:
        """The wall clock was checked, and may have been set."""
        self._set(clock=ClockPart(behind_s=step.behind_ms / 1000))
        with self._lock:
            self._state = msgspec.structs.replace(
                self._state,
                clock_steps_ahead=self._state.clock_steps_ahead + (step.by_ms > 0),
                clock_steps_back=self._state.clock_steps_back + (step.by_ms < 0),
            )

    def healthz(self) -> HealthAnswer:
        """Answer whether the process lives: an answer proves it."""
        return HealthAnswer(is_good=True, body=_json({"status": "ok", "version": __version__}))

    def readyz(self) -> HealthAnswer:
        """Answer whether messages can be taken and sent; the body is a `Readiness`."""
        found = self._state.readiness
        return HealthAnswer(is_good=found.is_ready, body=_json(found))


def _json(answer: object) -> bytes:
    return msgspec.json.encode(answer) + b"\n"
