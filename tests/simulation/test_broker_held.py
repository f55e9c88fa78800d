"""Histories of the cycle without a store (`engine/move_cycle.py`): one seed decides everything.

Two sidecars on one broker that keeps what waits, and an application that fails. Sidecars are killed
at each step; links are lost in a commit that happened or did not; the broker gives up a sidecar
that does not know of it; sends and commits are refused; a destination takes nothing; the
broker's clock differs. Nothing is lost, doubled or early, and the counts are right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from amqsidecar.broker import BrokerKind, Delivery, Resend
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.move_cycle import MoveEngine
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Redeliver
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.send_terms import ROUTES, SendTerms
from amqsidecar.plugin import Chance
from amqsidecar.policy.selector import PropertyOf
from support.links.engine_only import EngineOnlySession
from support.virtual_clock import VirtualClock

SEEDS = 200
STEPS = 400
MESSAGES = 20
MOST = 3
DLQ, ORDERS = queue("DLQ"), queue("orders")
FINAL = queue("DLQ.exhausted")
SOURCES = (DLQ, WAITING_QUEUE)


class Killed(BaseException):
    """The sidecar's process is gone."""


@dataclass
class Message:
    name: str
    count: int = 0
    redelivery_id: str | None = None
    deliver_at_ms: int = 0
    died_at_ms: int = 0
    delay_ms: int = 0


@dataclass
class Broker:
    """Queues, and what becomes of messages; moves are whole or not at all."""

    chance: random.Random
    clock: VirtualClock
    is_calm: bool = False
    is_blocked: bool = False
    queues: dict[Destination, list[Message]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offset_ms = self.chance.choice((0, 0, 5_000, -5_000))
        self.failures = {
            f"m{number}": self.chance.choice((0, 1, 2, 3, -1)) for number in range(MESSAGES)
        }
        self.queues[ORDERS] = [Message(name) for name in self.failures]
        self.seen: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()

    def ready(self, destination: Destination) -> list[Message]:
        """Take what is due out of a queue."""
        now_ms = self.clock.now_ms() + self.offset_ms
        all_ = self.queues.get(destination, [])
        due = [one for one in all_ if one.deliver_at_ms <= now_ms]
        self.queues[destination] = [one for one in all_ if one.deliver_at_ms > now_ms]
        return due

    def consume(self) -> None:
        """Deliver what is due to the application; what it fails is a dead letter."""
        now_ms = self.clock.now_ms()
        for one in self.ready(ORDERS):
            assert one.count == self.seen[one.name], f"{one} was delivered before {self.seen}"
            assert now_ms >= one.died_at_ms + one.delay_ms, f"{one} comes early, at {now_ms}"
            self.seen[one.name] += 1
            failures = self.failures[one.name]
            if failures == -1 or self.seen[one.name] <= failures:
                dead = Message(one.name, one.count, one.redelivery_id, died_at_ms=now_ms)
                self.queues.setdefault(DLQ, []).append(dead)
            else:
                self.succeeded[one.name] += 1


class Link(EngineOnlySession):
    """One connection; what it has in hand goes back when it is dropped."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.in_hand: dict[int, tuple[Destination, Message]] = {}
        self.is_dropped = False
        self._numbers = 0

    def drop(self) -> None:
        self.is_dropped = True
        for source, message in self.in_hand.values():
            self.broker.queues.setdefault(source, []).insert(0, message)
        self.in_hand = {}

    def receive(self, limit: int) -> list[Delivery]:
        if self.is_dropped:
            raise LinkLost("dropped")
        found: list[Delivery] = []
        for source in SOURCES:
            due = self.broker.ready(source)
            self.broker.queues.setdefault(source, []).extend(due[limit - len(found) :])
            for message in due[: limit - len(found)]:
                self._numbers += 1
                self.in_hand[self._numbers] = (source, message)
                provenance = Provenance(
                    origin=ORDERS,
                    message_id=message.name,
                    redelivery_id=message.redelivery_id,
                    redelivery_count=message.count,
                )
                found.append(
                    Delivery(self._numbers, source, message.name.encode(), provenance, "e/1")
                )
        return found

    def wait(self, timeout_s: float) -> None:
        if self.is_dropped:
            raise LinkLost("dropped")

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        if self.is_dropped:
            raise LinkLost("dropped")
        fate = "ok" if self.broker.is_calm else self._fate()
        if fate == "killed before":
            raise Killed
        if fate == "lost before":
            self.drop()
            raise LinkLost("before the commit")
        if fate == "commit refused":
            raise CommitRefused("no")
        if fate == "sends refused" and sends:
            refused = [index for index in range(len(sends)) if self.broker.chance.random() < 0.3]
            # Why not ours: a broker that has no room for them is a link that is lost.
            ours = (WAITING_QUEUE, PARKED_QUEUE)
            told = {index: "no" for index in refused if sends[index].destination not in ours}
            if told:
                raise SendsRefused(told)
        self._commit(accepts, sends)
        if fate == "killed after":
            raise Killed
        if fate == "lost after":
            self.drop()
            raise LinkLost("after the commit")

    def _fate(self) -> str:
        fates = ("killed before", "killed after", "lost before", "lost after")
        return self.broker.chance.choice((*fates, "sends refused", "commit refused", *["ok"] * 12))

    def _commit(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        taken = {}
        for delivery in accepts:
            assert isinstance(delivery.handle, int)
            _, message = self.in_hand.pop(delivery.handle)
            taken[message.name] = message
        for one in sends:
            old = taken[one.message.decode()]
            self.broker.queues.setdefault(one.destination, []).append(
                Message(
                    old.name,
                    one.redelivery_count,
                    one.redelivery_id,
                    one.deliver_at_ms,
                    old.died_at_ms,
                    one.redelivery_delay_ms,
                )
            )

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        is_blocked = self.broker.is_blocked and destination == ORDERS
        return SendTerms("blocked") if is_blocked else ROUTES

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """It makes no request."""

    def filter_view(self, resend: Resend) -> PropertyOf:
        return lambda _name: None

    def waiting_problem(self, destination: Destination) -> str | None:
        return None

    def clock_ahead_ms(self) -> int:
        return self.broker.offset_ms + 20


class Rules:
    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision:
        count = dead_letter.redelivery_count + 1
        return DeadLetterTo(DLQ, 0, "r") if count > MOST else Redeliver(200 * count, count, "r")


class Sidecar:
    """A process: one link at a time; killed, it forgets everything."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.lives = 0
        self.start()

    def start(self) -> None:
        self.blockages, self.losses = Blockages(), Losses()
        self.connect()

    def connect(self) -> None:
        self.lives += 1
        self.link = Link(self.broker)
        self.engine = MoveEngine(
            link=self.link,
            judge=Judge(
                Rules(),
                SendRules(BrokerKind.ARTEMIS, lambda one: one in SOURCES, ".exhausted"),
                lambda: 0.5,
            ),
            uid=f"{self.name}{self.lives}",
            clock=self.broker.clock,
            max_messages=4,
            observe=lambda _events, _stats: None,
            blockages=self.blockages,
            losses=self.losses,
        )

    def turn(self) -> None:
        try:
            self.engine.turn(0.0)
        except LinkLost:
            self.link.drop()
            self.connect()
        except Killed:
            self.link.drop()
            self.start()


def play(seed: int) -> Broker:
    """Play a history to its end."""
    chance = random.Random(seed)
    broker = Broker(chance, VirtualClock())
    sidecars = [Sidecar(broker, "a"), Sidecar(broker, "b")]
    for step in range(STEPS):
        broker.is_calm = step > STEPS // 2
        if broker.is_calm:
            broker.is_blocked = False
        elif chance.random() < 0.05:
            broker.is_blocked = not broker.is_blocked
        if not broker.is_calm and chance.random() < 0.03:
            # The broker gives up a sidecar that does not know of it.
            chance.choice(sidecars).link.drop()
        broker.consume()
        chance.choice(sidecars).turn()
        broker.clock.advance(chance.choice((1, 10, 100, 1_000)) * (20 if broker.is_calm else 1))
    return broker


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_nothing_is_lost_doubled_or_early(first: int) -> None:
    for seed in range(first, first + 100):
        broker = play(seed)
        ends = Counter(broker.succeeded)
        for place in (FINAL, PARKED_QUEUE):
            ends.update(one.name for one in broker.queues.get(place, ()))
        assert ends == Counter(broker.failures.keys()), (seed, broker.queues)
        exhausted = {one.name for one in broker.queues.get(FINAL, ())}
        assert all(broker.failures[name] == -1 for name in exhausted), seed
        assert all(broker.seen[name] == MOST + 1 for name in exhausted), seed
