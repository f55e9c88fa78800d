"""A broker in memory with transactions and a token, and links to it that keep `broker.Link`.

Two shapes: `MemoryLink` accepts, sends and exchanges the token in one transaction, as OpenWire,
AMQP and STOMP on Classic do. `AckLaterLink` is STOMP on Artemis: sends and token are committed
first, dead letters are acknowledged one by one afterwards, and the token names them for an heir.

A link is the client's side; `Session` is what the broker knows of it, and outlives it where the
broker doesn't notice that it is gone (`MemoryLink.cut_off`).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn, Self

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.engine.crash_points import ACCEPTING
from amqsidecar.errors import CommitRefused, LinkLost, QueueRefused, SendsRefused
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.provenance import Provenance, lying_id
from amqsidecar.model.send_terms import ROUTES, SendTerms
from amqsidecar.policy.selector import PropertyOf
from amqsidecar.schedule import BrokerSchedule
from amqsidecar.trials import Trials
from support.virtual_clock import VirtualClock

ENCODING = "memory/1"
PATIENCE_S = 10.0
"""So long a link waits for a destination that takes nothing."""

_FULL = "it takes nothing: is it full?"


class Killed(BaseException):
    """The simulated process died here."""


@dataclass
class StoredMessage:
    """A message in the simulated broker; it gets its number when it is first handed out.

    Attributes:
        encoding: of the client that has made it; only such a client gets it unaltered.
    """

    body: bytes
    origin: Destination | None = None
    redelivery_id: str | None = None
    redelivery_count: int = 0
    redelivery_delay_ms: int = 0
    is_final: bool = False
    problem: str | None = None
    message_id: str | None = None
    number: int = 0
    encoding: str = ENCODING


@dataclass(frozen=True)
class Token:
    """A token, and the numbers of what it accepts where that is no one transaction."""

    cycle: int
    accepted: frozenset[int] = frozenset()


@dataclass(eq=False)
class Session:
    """The broker's state of a connection until it notices its end.

    Attributes:
        waits_for_token: False = it only looks.
        in_hand: deliveries handed out and not accepted, by handle.
        token: in its hand.
        request: a commit that is on its way to the broker.
    """

    waits_for_token: bool
    in_hand: dict[int, tuple[str, StoredMessage]] = field(default_factory=dict)
    token: Token | None = None
    request: Callable[[], None] | None = None
    is_over: bool = False

    def held(self, handle: object) -> StoredMessage:
        """Return a message in hand."""
        assert isinstance(handle, int)
        return self.in_hand[handle][1]


class Watcher:
    """Called with events in the broker; does nothing."""

    def handed(self, message: StoredMessage) -> None:
        """A dead letter was handed out."""

    def accepted(self, message: StoredMessage) -> None:
        """A dead letter is gone from its queue."""

    def sent(self, resend: Resend) -> None:
        """A message is in its queue."""

    def committed(self, token: int) -> None:
        """The token was exchanged."""

    def refused(self, resend: Resend) -> None:
        """A send was refused."""


@dataclass
class MemoryBroker:
    """Queues by name; the messages in a connection's hand come back when it is lost.

    Attributes:
        is_down: no client can connect.
        tells_tokens: False = it can't be asked whether there is a token.
        room: maximum messages of a queue; a client that sends more is blocked.
        held_up: the queues that held up a link, which are asked about before something is sent.
    """

    is_down: bool = False
    tells_tokens: bool = True
    queues: dict[str, deque[StoredMessage]] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    refuse_send: Callable[[Resend], str | None] = lambda _resend: None
    refuse_commit: Callable[[Sequence[Resend]], str | None] = lambda _sends: None
    unreadable: set[str] = field(default_factory=set)
    unroutable: set[str] = field(default_factory=set)
    room: dict[str, int] = field(default_factory=dict)
    held_up: set[str] = field(default_factory=set)
    commit_fault: Callable[[], str | None] = lambda: None
    watcher: Watcher = field(default_factory=Watcher)
    commits: int = 0
    newest_number: int = 0
    origins: dict[bytes, Destination] = field(default_factory=dict)

    def queue(self, name: str) -> deque[StoredMessage]:
        """Return the queue of that name, made when missing."""
        return self.queues.setdefault(name, deque())

    def die(self, dead_letter_queue: str, message: StoredMessage, origin: Destination) -> None:
        """Put a message into a dead-letter queue as the broker would."""
        message.origin = self.origins[message.body] = origin
        message.number = 0
        self.queue(dead_letter_queue).append(message)

    def count(self, name: str) -> int:
        """Return how many messages a queue holds, handed out or not."""
        in_hand = sum(source == name for one in self.sessions for source, _ in one.in_hand.values())
        return len(self.queues.get(name, ())) + in_hand

    def is_full(self, name: str, sends: int = 1) -> bool:
        """Return whether a queue has no room for this many messages."""
        room = self.room.get(name)
        return room is not None and len(self.queue(name)) + sends > room

    def holds(self, name: str, encoding: str) -> bool:
        """Return whether a queue holds a message that a client of this encoding reads."""
        return any(one.encoding == encoding for one in self.queues.get(name, ()))

    def hand_out(self, name: str, session: Session, handle: int, encoding: str) -> StoredMessage:
        """Give the first message of this encoding in a queue into the hand of a session."""
        waiting = self.queue(name)
        message = next(one for one in waiting if one.encoding == encoding)
        waiting.remove(message)
        if not message.number:
            self.newest_number += 1
            message.number = self.newest_number
        session.in_hand[handle] = (name, message)
        self.watcher.handed(message)
        return message

    def accept(self, session: Session, handle: object) -> None:
        """Remove the messages in a session's hand for good."""
        assert isinstance(handle, int)
        _name, message = session.in_hand.pop(handle)
        self.watcher.accepted(message)

    def put(self, sends: Sequence[Resend]) -> None:
        """Put messages into their queues."""
        for resend in sends:
            self.queue(resend.destination.name).append(
                StoredMessage(
                    resend.message,
                    redelivery_id=resend.redelivery_id,
                    redelivery_count=resend.redelivery_count,
                    redelivery_delay_ms=resend.redelivery_delay_ms,
                    origin=self.origins.get(resend.message) if resend.is_final else None,
                    is_final=resend.is_final,
                    encoding=resend.encoding or ENCODING,
                )
            )
            self.watcher.sent(resend)
        self.commits += 1

    def owner_of_token(self) -> Session | None:
        """Return the only session that gets tokens: the oldest one that waits for them."""
        return next((one for one in self.sessions if one.waits_for_token), None)

    def end(self, session: Session, *, executes_request: bool = False) -> None:
        """Notice the end of a session: the messages in its hand come back."""
        if session.is_over:
            return
        if executes_request and session.request is not None:
            session.request()
        session.is_over = True
        self.sessions.remove(session)
        for name, message in reversed(session.in_hand.values()):
            self.queue(name).appendleft(message)
        session.in_hand.clear()
        if session.token is not None:
            self.tokens.insert(0, session.token)
            session.token = None

    def restart(self) -> None:
        """Lose all connections; committed messages stay."""
        for session in list(self.sessions):
            self.end(session)


def _provenance(message: StoredMessage) -> Provenance:
    return Provenance(
        origin=message.origin,
        message_id=message.message_id,
        redelivery_id=message.redelivery_id,
        redelivery_count=message.redelivery_count,
        problem=message.problem,
    )


class MemoryParts:
    """The token of a session in memory, and the sends of its next transaction."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link

    @property
    def number(self) -> int | None:
        token = self._link._check_open().token
        return None if token is None else token.cycle

    def take(self, timeout_s: float) -> int | None:
        return self._link.take_token(timeout_s)

    def exists(self) -> bool | None:
        return self._link.token_exists()

    def create(self, number: int) -> None:
        self._link.create_token(number)

    def release(self) -> None:
        self._link.release_token()

    def begin(self, sends: Sequence[Resend]) -> None:
        self._link.begin_sends(sends)

    def abandon(self) -> None:
        self._link.abandon_sends()


class MemoryLink:
    """A link to a `MemoryBroker`; `commit_fault` of the broker says where a commit breaks.

    Faults: None, `lost_before` (nothing happened), `lost_after` (all of it happened),
    `killed_before`, `killed_after`.

    Attributes:
        waits: how long each wait was to be.
        on_wait: what waits; nothing by default.
        on_attach: called with the queues that are read from then on.
        held_back_count: what `held_back` returns.
        is_bound_to_one: what `is_bound` returns.
        is_leaving_one: what `is_leaving` returns.
        step: called with the name of each step that it takes; may cut the link, or raise.
    """

    def __init__(self, broker: MemoryBroker, encoding: str = ENCODING) -> None:
        self.broker = broker
        self.encoding = encoding
        self.description = BrokerDescription(BrokerKind.CLASSIC, "memory", (self.encoding,))
        self.waits: list[float] = []
        self.on_wait: Callable[[float], None] = lambda _timeout_s: None
        self.on_attach: Callable[[Sequence[IntakeQueue]], None] = lambda _queues: None
        self.step: Callable[[str], None] = lambda _name: None
        self.held_back_count: int | None = 0
        self.is_bound_to_one = True
        self.is_leaving_one = False
        self.woken = threading.Event()
        self._intake: list[str] = []
        self._prefetch = 0
        self._next_handle = 0
        self._begun: Sequence[Resend] | None = None
        self._begin_next: Callable[[], None] = lambda: None
        self._session: Session | None = None

    @property
    def features(self) -> Features:
        return Features(background=self)

    def look(self) -> Self:
        return self._open(waits_for_token=False)

    def take(self, token_queue: str) -> Self:
        return self._open(waits_for_token=True)

    def move(self) -> NoReturn:
        refuse_to_move(self)

    def trials(self) -> Trials:
        raise AssertionError("nobody examines a broker in memory")

    def _open(self, *, waits_for_token: bool) -> Self:
        if self.broker.is_down:
            raise LinkLost("the broker is down")
        self._session = Session(waits_for_token=waits_for_token)
        self.broker.sessions.append(self._session)
        return self

    def close(self) -> None:
        if self._session is not None:
            self.broker.end(self._session)
        self._session = None

    @property
    def session(self) -> Session | None:
        """What the broker keeps for it; None = the link is closed."""
        return self._session

    @property
    def begun_sends(self) -> Sequence[Resend]:
        """Sends begun and not committed."""
        return self._begun or ()

    @property
    def sessions(self) -> list[Session]:
        """What the broker keeps for its connections."""
        return [] if self._session is None else [self._session]

    def cut_off(self) -> list[Session]:
        """Lose the connection unnoticed by the broker; return the state that it still keeps."""
        sessions, self._session = self.sessions, None
        return sessions

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._check_open()
        for item in queues:
            name = item.destination.name
            if name in self.broker.unreadable:
                raise QueueRefused(name, f"queue {name} can't be read: no permission")
        self._intake = [item.destination.name for item in queues]
        self._prefetch = prefetch
        self.on_attach(queues)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        return ()

    @property
    def intake(self) -> Self:
        return self

    def held_back(self, queue: Destination) -> int | None:
        return self.held_back_count

    def is_leaving(self, queue: Destination) -> bool:
        return self.is_leaving_one

    def holds_selected(self, queue: IntakeQueue) -> bool:
        return self.broker.count(queue.destination.name) > 0

    def is_bound(self, queue: Destination) -> bool:
        return self.is_bound_to_one

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` would return something."""
        return self._room() > 0 and any(
            self.broker.holds(name, self.encoding) for name in self._intake
        )

    def _room(self) -> int:
        return 0 if self._session is None else self._prefetch - len(self._session.in_hand)

    def receive(self, limit: int) -> list[Delivery]:
        session = self._check_open()
        deliveries: list[Delivery] = []
        for name in self._intake:
            while (
                self.broker.holds(name, self.encoding)
                and self._room() > 0
                and len(deliveries) < limit
            ):
                self._next_handle += 1
                message = self.broker.hand_out(name, session, self._next_handle, self.encoding)
                if not self._is_settled(message):
                    deliveries.append(self._delivery(self._next_handle, name, message))
        if deliveries:
            self._take_step("received")
        return deliveries

    def _delivery(self, handle: int | None, name: str, message: StoredMessage) -> Delivery:
        return Delivery(handle, queue(name), message.body, _provenance(message), self.encoding)

    def _is_settled(self, _message: StoredMessage) -> bool:
        """Return whether a predecessor has accepted it, and settle it then."""
        return False

    def wait(self, timeout_s: float) -> None:
        self._check_open()
        self.waits.append(timeout_s)
        self.on_wait(timeout_s)
        self.woken.clear()

    def wake(self) -> None:
        self.woken.set()

    def schedule(self) -> BrokerSchedule:
        raise AssertionError("this broker keeps nothing that waits")

    def descriptor(self) -> int:
        return -1

    @property
    def routes(self) -> ArtemisRoutes:
        """None are known: this broker sends to each destination by its name."""
        return ArtemisRoutes(ArtemisQuestions(), VirtualClock(), "", "")

    def share_routes(self, routes: ArtemisRoutes) -> None:
        """Do nothing, see `routes`."""

    def wait_beside(self, descriptor: int) -> None:
        """Nothing arrives by itself."""

    @property
    def token(self) -> MemoryParts:
        return MemoryParts(self)

    @property
    def ahead(self) -> MemoryParts:
        return MemoryParts(self)

    def release_token(self) -> None:
        session = self._check_open()
        session.waits_for_token = False
        if session.token is not None:
            self.broker.tokens.insert(0, session.token)
            session.token = None
        self._take_step("token released")

    def take_token(self, timeout_s: float) -> int | None:
        session = self._check_open()
        broker = self.broker
        session.waits_for_token = True
        if session.token is None and broker.tokens and broker.owner_of_token() is session:
            session.token = max(broker.tokens, key=lambda one: one.cycle)
            broker.tokens.clear()
            self._token_taken(session.token)
            self._take_step("token taken")
        return None if session.token is None else session.token.cycle

    def _token_taken(self, token: Token) -> None:
        """A token came that we have not sent."""

    def token_exists(self) -> bool | None:
        self._check_open()
        if not self.broker.tells_tokens:
            return None
        return bool(self.broker.tokens) or any(one.token for one in self.broker.sessions)

    def create_token(self, cycle: int) -> None:
        self._check_open()
        self.broker.tokens.append(Token(cycle))
        self._take_step("token created")

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        self._check_open()
        self._begun = sends
        self._take_step("sends begun")

    def abandon_sends(self) -> None:
        self._begun = None

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        self._begin_next = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        session = self._check_open()
        if session.token is None:
            raise LinkLost("the token is not in hand")
        if any(one.handle not in session.in_hand for one in accepts):
            raise LinkLost("a delivery is not in hand any more")
        assert session.token.cycle < token
        assert not sends or self._begun is None or self._begun is sends, "others were begun"
        self._begun = None
        self._take_step("sent")
        self._wait_for_room(sends)
        refusal = self._check_sends(sends)
        if isinstance(refusal, SendsRefused):
            raise refusal
        fault = self.broker.commit_fault()
        if fault in ("lost_before", "killed_before"):
            self._break(fault)
        # Why on the session: the broker may get the request after we have given it up.
        if refusal is None:
            session.request = lambda: self._commit(session, accepts, sends, token)
        self._take_step("committing")
        self._begin_next()
        self._check_open()
        request, session.request = session.request, None
        if refusal is not None:
            raise refusal
        assert request is not None
        request()
        if fault in ("lost_after", "killed_after"):
            self._break(fault)
        self._take_step("answered")
        self._settle(session, accepts)

    def _wait_for_room(self, sends: Sequence[Resend]) -> None:
        """Give the connection up if a destination has no room, as a link to Classic does."""
        wanted = Counter(resend.destination.name for resend in sends)
        full = [name for name, count in wanted.items() if self.broker.is_full(name, count)]
        if full:
            self.broker.held_up.update(full)
            self.on_wait(PATIENCE_S)
            self.close()
            raise LinkLost("it was held up", {str(queue(name)): _FULL for name in full})

    def _check_sends(self, sends: Sequence[Resend]) -> SendsRefused | CommitRefused | None:
        """Return the broker's refusals: of a send at once, of a commit only when it was
        requested.
        """
        broker = self.broker
        refusals = {
            index: words
            for index, resend in enumerate(sends)
            if (words := broker.refuse_send(resend)) is not None
        }
        for index in refusals:
            broker.watcher.refused(sends[index])
        if refusals:
            return SendsRefused(refusals)
        words = broker.refuse_commit(sends)
        if words is not None:
            for resend in sends:
                broker.watcher.refused(resend)
            return CommitRefused(words)
        return None

    def _commit(
        self, session: Session, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Carry out a commit in the broker."""
        assert {one.encoding for one in sends} <= {"", self.encoding}, "the broker would convert"
        for delivery in accepts:
            self.broker.accept(session, delivery.handle)
        self.broker.put(sends)
        session.token = Token(token)
        self.broker.watcher.committed(token)

    def _settle(self, session: Session, accepts: Sequence[Delivery]) -> None:
        """Do what comes after the commit."""

    def _break(self, fault: str) -> None:
        self.close()
        if fault.startswith("killed"):
            raise Killed(fault)
        raise LinkLost(fault)

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        name, broker = destination.name, self.broker
        if name in broker.unroutable:
            return SendTerms("no such queue")
        if not destination.is_queue:
            return SendTerms("nobody reads topics here")
        is_full = name in broker.held_up and broker.is_full(name)
        return SendTerms(_FULL) if is_full else ROUTES

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """It makes no request."""

    def filter_view(self, resend: Resend) -> PropertyOf:
        return lambda _name: None

    def discover(self) -> tuple[IntakeQueue, ...]:
        return ()

    def queues_changed(self) -> bool:
        return False

    def queues_read(self) -> tuple[Destination, ...]:
        return tuple(map(queue, self._intake))

    def is_newborn(self, destination: Destination) -> bool:
        return False

    def queue_counters(self, destinations: Sequence[Destination]) -> dict[Destination, Counters]:
        return {}

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        return ()

    def count(self, intake: IntakeQueue, at_most: int) -> int:
        return min(at_most, self.broker.count(intake.destination.name))

    def browse(self, intake: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        self._check_open()
        name = intake.destination.name
        held = [
            message
            for session in self.broker.sessions
            for source, message in session.in_hand.values()
            if source == name
        ]
        found = [
            self._delivery(None, name, message)
            for message in [*held, *self.broker.queues.get(name, ())]
            if message.encoding == self.encoding
        ]
        ids = intake.redelivery_ids
        return islice((one for one in found if not ids or lying_id(one.provenance) in ids), at_most)

    def _take_step(self, name: str) -> None:
        self.step(name)
        self._check_open()

    def _check_open(self) -> Session:
        session = self._session
        if session is None or session.is_over:
            raise LinkLost("closed")
        return session


class AckLaterLink(MemoryLink):
    """Accepts after the commit, one by one; the token names what is accepted.

    Source: `brokers/stomp_artemis/take.py`.
    """

    @property
    def features(self) -> Features:
        """It begins nothing ahead."""
        return Features()

    def __init__(self, broker: MemoryBroker, encoding: str = ENCODING) -> None:
        super().__init__(broker, encoding)
        self._suspects: frozenset[int] = frozenset()
        self._expected = -1

    def _token_taken(self, token: Token) -> None:
        self._suspects = token.accepted

    def _is_settled(self, message: StoredMessage) -> bool:
        if message.number not in self._suspects:
            return False
        self.broker.accept(self._check_open(), self._next_handle)
        self._suspects -= {message.number}
        return True

    def _commit(
        self, session: Session, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        named = frozenset(session.held(one.handle).number for one in accepts)
        self.broker.put(sends)
        self.broker.tokens.append(Token(token, self._suspects | named))
        self._expected = token
        self.broker.watcher.committed(token)

    def _settle(self, session: Session, accepts: Sequence[Delivery]) -> None:
        self._take_step(ACCEPTING)
        # Why the first one: others may have put tokens of their own behind it.
        if self.broker.tokens[0].cycle != self._expected:
            raise LinkLost("found another message, not the token")
        session.token = self.broker.tokens.pop(0)
        for delivery in accepts:
            self._take_step("acknowledging")
            self.broker.accept(session, delivery.handle)
