"""The cycle without a store: where each dead letter goes, and what is done when it can't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

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
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver, WrittenLine
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import AnyEvent, DestinationBlocked, Parked, Scheduled
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.send_terms import ResendEffect, SendTerms, SideEffect
from amqsidecar.plugin import Chance
from amqsidecar.policy.selector import PropertyOf
from support.links.engine_only import EngineOnlySession
from support.virtual_clock import VirtualClock

E = TypeVar("E")

DLQ = queue("DLQ")
AHEAD_MS = 30


class Broker(EngineOnlySession):
    """A link and its broker: each move happens whole or not at all, as `faults` say."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.dead: list[Delivery] = []
        self.moves: list[tuple[list[Delivery], list[Resend]]] = []
        self.faults: list[Exception | None] = []
        self.refuses: Callable[[Delivery], bool] = lambda _one: False
        self.routes: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        self.effects: dict[str, str] = {}
        self.tried = 0

    def die(self, *names: str, origin: str = "orders") -> None:
        for name in names:
            provenance = Provenance(origin=queue(origin), message_id=name)
            self.dead.append(Delivery(name, DLQ, name.encode(), provenance, "e/1"))

    def receive(self, limit: int) -> list[Delivery]:
        found, self.dead = self.dead[:limit], self.dead[limit:]
        return found

    def wait(self, timeout_s: float) -> None:
        self.clock.advance(int(timeout_s * 1000))

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        self.tried += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        if any(map(self.refuses, accepts)) and any(not one.is_final for one in sends):
            raise CommitRefused("not this one")
        self.moves.append((list(accepts), list(sends)))

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        name = destination.name
        effect = self.effects.get(name)
        effects = (
            () if effect is None else (SideEffect(ResendEffect.DIVERT, effect, "it", loses=False),)
        )
        return SendTerms(self.routes.get(name), effects=effects)

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """It makes no request."""

    def filter_view(self, resend: Resend) -> PropertyOf:
        return lambda _name: None

    def waiting_problem(self, destination: Destination) -> str | None:
        return self.waits.get(destination.name)

    def clock_ahead_ms(self) -> int:
        return AHEAD_MS

    @property
    def sent(self) -> list[tuple[str, str]]:
        """What went where, in order."""
        return [
            (one.message.decode(), one.destination.name) for _, all_ in self.moves for one in all_
        ]


class Rules:
    def __init__(self, answer: Decision) -> None:
        self.answer = answer

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        return self.answer


class World:
    """An engine over a broker; `reconnect` makes the next one, as the service does."""

    def __init__(self, answer: Decision | None = None) -> None:
        self.clock = VirtualClock()
        self.broker = Broker(self.clock)
        self.events: list[AnyEvent] = []
        self.blockages = Blockages()
        self.losses = Losses()
        self.rules = Rules(answer or Redeliver(500, 1, "rule"))
        self.reconnect()

    def reconnect(self) -> None:
        self.engine = MoveEngine(
            link=self.broker,
            judge=Judge(
                self.rules,
                SendRules(BrokerKind.ARTEMIS, lambda one: one == DLQ, ".exhausted"),
                lambda: 0.5,
            ),
            uid="u",
            clock=self.clock,
            max_messages=8,
            observe=lambda events, _stats: self.events.extend(events),
            blockages=self.blockages,
            losses=self.losses,
        )

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.engine.turn(0.1)

    def of(self, kind: type[E]) -> list[E]:
        return [one for one in self.events if isinstance(one, kind)]


@pytest.fixture
def world() -> World:
    return World()


def test_what_has_to_wait_is_sent_at_once_with_its_time_by_the_brokers_clock(world: World) -> None:
    world.broker.die("a", "b")
    began_ms = world.clock.now_ms()
    world.turns(1)
    [(accepted, sends)] = world.broker.moves
    assert [one.handle for one in accepted] == ["a", "b"]
    assert [one.deliver_at_ms for one in sends] == [began_ms + 500 + AHEAD_MS] * 2
    assert [(one.redelivery_count, one.redelivery_delay_ms) for one in sends] == [(1, 500)] * 2
    assert len(world.of(Scheduled)) == 2


def test_what_a_plugin_lets_wait_for_an_event_is_parked() -> None:
    world = World(Redeliver(500, 1, "rule", until="paid", longest_ms=60_000))
    world.broker.die("a")
    world.turns(1)
    assert world.broker.sent == [("a", PARKED_QUEUE.name)]
    assert world.of(Parked)[0].reason.startswith("rule: the broker can't hold it")


def test_what_does_not_wait_is_delivered_at_once() -> None:
    world = World(Redeliver(0, 1, "rule"))
    world.broker.waits["orders"] = "it would be lost"
    world.broker.die("a")
    world.turns(1)
    assert [one.deliver_at_ms for one in world.broker.moves[0][1]] == [0]
    assert world.broker.sent == [("a", "orders")]


def test_final_and_discarded_ones_are_accepted_in_the_same_transaction() -> None:
    world = World(DeadLetterTo(DLQ, 0, "rule"))
    world.broker.die("a")
    world.turns(1)
    world.rules.answer = Discard(WrittenLine("rule", "policy.yaml:7"))
    world.broker.die("b")
    world.turns(1)
    assert world.broker.sent == [("a", "DLQ.exhausted")]
    assert [one.handle for accepted, _ in world.broker.moves for one in accepted] == ["a", "b"]


def test_what_does_not_route_comes_again_and_the_others_go(world: World) -> None:
    world.broker.routes["gone"] = "no such queue"
    world.broker.die("a", origin="gone")
    world.broker.die("b")
    began_ms = world.clock.now_ms()
    world.turns(1)
    assert world.broker.sent == [("a", WAITING_QUEUE.name), ("b", "orders")]
    back = world.broker.moves[0][1][0]
    assert (back.is_final, back.redelivery_count) == (True, 0)
    assert back.deliver_at_ms == began_ms + 1_000 + AHEAD_MS
    assert len(world.of(DestinationBlocked)) == 1
    assert len(world.of(Scheduled)) == 1

    world.broker.routes.clear()
    world.clock.advance(1_100)
    world.broker.die("a", "c", origin="gone")
    world.turns(1)
    # Why only one: it shows whether the destination takes anything.
    assert world.broker.sent[2:] == [("a", "gone"), ("c", WAITING_QUEUE.name)]


def test_nothing_waits_where_the_broker_may_lose_it(world: World) -> None:
    world.broker.waits["orders"] = "it is emptied"
    world.broker.die("a")
    world.turns(1)
    assert world.broker.sent == [("a", PARKED_QUEUE.name)]
    [parked] = world.of(Parked)
    assert "it is emptied" in parked.reason


@pytest.mark.parametrize("delay_ms", [0, 500])
def test_what_would_be_doubled_at_its_origin_is_parked_unsent(delay_ms: int) -> None:
    world = World(Redeliver(delay_ms, 1, "rule"))
    world.broker.effects["orders"] = "a divert would copy it"
    world.broker.die("a")
    world.broker.die("b", origin="invoices")
    world.turns(1)
    assert world.broker.sent == [("a", PARKED_QUEUE.name), ("b", "invoices")]
    [parked] = world.of(Parked)
    assert parked.reason.startswith("a divert would copy it; write it, or allow it by ")


def test_what_acts_on_redeliveries_does_not_hold_back_a_final_dead_letter() -> None:
    world = World(DeadLetterTo(queue("final"), 0, "rule"))
    world.broker.effects["final"] = "a divert would copy it"
    world.broker.die("a")
    world.turns(1)
    assert world.broker.sent == [("a", "final")]


def test_refused_sends_are_tried_elsewhere_and_nothing_was_accepted_before(world: World) -> None:
    world.broker.die("a", "b")
    world.broker.faults = [SendsRefused({0: "full", 1: "full"})]
    world.turns(2)
    assert world.broker.tried == 2
    assert world.broker.sent == [("a", WAITING_QUEUE.name), ("b", WAITING_QUEUE.name)]


def test_one_that_is_refused_while_later_ones_are_taken_is_parked(world: World) -> None:
    world.broker.die("a", "b")
    world.broker.faults = [SendsRefused({0: "too odd"})] * 3
    world.turns(4)
    assert world.broker.sent == [("a", PARKED_QUEUE.name), ("b", "orders")]


def test_the_one_that_can_not_be_committed_is_found_with_few_failures(world: World) -> None:
    """Each refused commit counts as a failed delivery on Artemis; ten destroy the origin."""
    world.broker.die(*"abcdefgh")
    world.broker.refuses = lambda one: one.handle == "f"
    world.turns(12)
    assert sorted(world.broker.sent) == sorted(
        (name, PARKED_QUEUE.name if name == "f" else "orders") for name in "abcdefgh"
    )
    assert world.broker.tried - len(world.broker.moves) == 2


def test_a_broker_that_commits_nothing_is_left(world: World) -> None:
    world.broker.die("a")
    world.broker.faults = [CommitRefused("disk full")] * 2
    world.turns(1)
    with pytest.raises(LinkLost, match="commits nothing"):
        world.turns(1)


def test_the_one_that_ends_links_is_parked_and_the_others_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list("abcdefgh")
    for _ in range(40):
        done = {one for one, to in world.broker.sent if to != WAITING_QUEUE.name}
        world.broker.dead = []
        world.broker.die(*(name for name in names if name not in done))
        if not world.broker.dead:
            break
        world.reconnect()

        def move(accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
            if any(one.message == b"c" and not one.is_final for one in sends):
                raise LinkLost("gone")
            Broker.move(world.broker, accepts, sends)

        monkeypatch.setattr(world.broker, "move", move)
        world.clock.advance(61_000)
        try:
            world.turns(8)
        except LinkLost:
            continue
    ends = dict(world.broker.sent)
    assert ends.keys() == set(names)
    assert ends["c"] == PARKED_QUEUE.name
    [parked] = world.of(Parked)
    assert "the connection ended each time" in parked.reason


def test_what_even_the_parking_queue_refuses_stays_where_it_is(world: World) -> None:
    world.broker.waits["orders"] = "it is emptied"
    world.broker.die("a")
    world.broker.faults = [SendsRefused({0: "too large"})]
    world.turns(1)
    world.broker.waits.clear()
    world.broker.die("b")
    world.turns(1)
    assert world.broker.sent == [("b", "orders")]
    [parked] = world.of(Parked)
    assert "it stays in queue://DLQ: too large" in parked.reason
