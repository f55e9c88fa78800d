"""A broker in memory with transactions and a token, for the simulation of the cycle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amqsidecar.broker import (
    BrokerDescription,
    BrokerKind,
    Delivery,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.provenance import Provenance

ENCODING = "memory/1"


class Killed(BaseException):
    """The simulated process died here."""


@dataclass
class StoredMessage:
    """A message in the simulated broker."""

    body: bytes
    origin: Destination | None = None
    redelivery_id: str | None = None
    redelivery_count: int = 0
    is_final: bool = False
    problem: str | None = None


@dataclass
class MemoryBroker:
    """Queues by name; what a connection has in hand comes back when it is lost."""

    queues: dict[str, deque[StoredMessage]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    seen_duplicate_ids: set[str] = field(default_factory=set)
    refuse_send: Callable[[Resend], str | None] = lambda _resend: None
    refuse_commit: Callable[[Sequence[Resend]], str | None] = lambda _sends: None
    unroutable: set[str] = field(default_factory=set)
    commit_fault: Callable[[], str | None] = lambda: None
    commits: int = 0

    def queue(self, name: str) -> deque[StoredMessage]:
        """Return the queue of that name, made when missing."""
        return self.queues.setdefault(name, deque())

    def die(self, dead_letter_queue: str, message: StoredMessage, origin: Destination) -> None:
        """Put a message into a dead-letter queue as the broker would."""
        message.origin = origin
        self.queue(dead_letter_queue).append(message)


def _provenance(message: StoredMessage) -> Provenance:
    return Provenance(
        origin=message.origin,
        redelivery_id=message.redelivery_id,
        redelivery_count=message.redelivery_count,
        problem=message.problem,
    )


class MemoryLink:
    """A link to a `MemoryBroker`; `commit_fault` says where a commit breaks.

    Faults: None, `lost_before` (nothing happened), `lost_after` (all of it happened),
    `killed_before`, `killed_after`.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.description = BrokerDescription(BrokerKind.CLASSIC, "memory", ENCODING)
        self._intake: list[str] = []
        self._in_hand: dict[int, tuple[str, StoredMessage]] = {}
        self._next_handle = 0
        self._token: int | None = None
        self._begun: Sequence[Resend] | None = None
        self._is_open = False
        self.waits: list[float] = []
        self.on_wait: Callable[[float], None] = lambda _timeout_s: None

    def open(self, token_queue: str | None) -> None:
        self._is_open = True

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for name, message in reversed(self._in_hand.values()):
            self.broker.queue(name).appendleft(message)
        self._in_hand.clear()
        if self._token is not None:
            self.broker.tokens.insert(0, self._token)
            self._token = None

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._intake = [item.destination.name for item in queues]

    def left_behind(self) -> tuple[LeftBehind, ...]:
        return ()

    def receive(self, limit: int) -> list[Delivery]:
        self._check_open()
        deliveries = []
        for name in self._intake:
            waiting = self.broker.queue(name)
            while waiting and len(deliveries) < limit:
                message = waiting.popleft()
                self._next_handle += 1
                self._in_hand[self._next_handle] = (name, message)
                deliveries.append(
                    Delivery(self._next_handle, queue(name), message.body, _provenance(message))
                )
        return deliveries

    def wait(self, timeout_s: float) -> None:
        self._check_open()
        self.waits.append(timeout_s)
        self.on_wait(timeout_s)

    def wake(self) -> None:
        """Nothing waits for real."""

    def take_token(self, timeout_s: float) -> int | None:
        self._check_open()
        if self._token is None and self.broker.tokens:
            self._token = max(self.broker.tokens)
            self.broker.tokens.clear()
        return self._token

    def token_exists(self) -> bool | None:
        return bool(self.broker.tokens) or self._token is not None

    def create_token(self, cycle: int) -> None:
        self.broker.tokens.append(cycle)

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        self._check_open()
        self._begun = sends

    def abandon_sends(self) -> None:
        self._begun = None

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        self._check_open()
        assert self._token is not None
        assert self._token < token
        assert self._begun is sends or not sends, "the engine begins its sends before the commit"
        self._begun = None
        refusals = {
            index: words
            for index, resend in enumerate(sends)
            if (words := self.broker.refuse_send(resend)) is not None
        }
        if refusals:
            raise SendsRefused(refusals)
        ids = [resend.duplicate_id for resend in sends]
        if any(one in self.broker.seen_duplicate_ids for one in ids):
            raise CommitRefused("Duplicate message detected", is_duplicate=True)
        words = self.broker.refuse_commit(sends)
        if words is not None:
            raise CommitRefused(words)
        fault = self.broker.commit_fault()
        if fault in ("lost_before", "killed_before"):
            self._break(fault)
        for delivery in accepts:
            assert isinstance(delivery.handle, int)
            del self._in_hand[delivery.handle]
        for resend in sends:
            self.broker.queue(resend.destination.name).append(
                StoredMessage(
                    resend.message,
                    redelivery_id=resend.redelivery_id,
                    redelivery_count=resend.redelivery_count,
                    is_final=resend.is_final,
                )
            )
        self.broker.seen_duplicate_ids.update(ids)
        self.broker.commits += 1
        self._token = token
        if fault in ("lost_after", "killed_after"):
            self._break(fault)

    def _break(self, fault: str) -> None:
        self.close()
        if fault.startswith("killed"):
            raise Killed(fault)
        raise LinkLost(fault)

    def route_problem(self, destination: Destination) -> str | None:
        return "no such queue" if destination.name in self.broker.unroutable else None

    def discover(self) -> tuple[IntakeQueue, ...]:
        return ()

    def count(self, intake: IntakeQueue, at_most: int) -> int:
        name = intake.destination.name
        in_hand = sum(1 for held, _message in self._in_hand.values() if held == name)
        return min(at_most, len(self.broker.queue(name)) + in_hand)

    def browse(self, intake: IntakeQueue, at_most: int) -> list[Delivery]:
        self._check_open()
        name = intake.destination.name
        held = [message for source, message in self._in_hand.values() if source == name]
        return [
            Delivery(None, intake.destination, message.body, _provenance(message))
            for message in [*held, *self.broker.queue(name)][:at_most]
        ]

    def prepare_final(self, destination: Destination) -> str | None:
        return None

    def _check_open(self) -> None:
        if not self._is_open:
            raise LinkLost("closed")
