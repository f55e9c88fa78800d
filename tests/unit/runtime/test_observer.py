"""The observer's loop against a broker in memory: one claim per test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pytest

from amqsidecar.broker import BrokerKind, Delivery, Features, IntakeQueue, LookSession
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.observation import ObservationTally, Observed, ObservedDeaths
from amqsidecar.errors import BrokerRefused, DiscoveryRefused, LinkLost
from amqsidecar.model.decision import Decision, Redeliver
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.sidecar_names import FINAL_SUFFIX
from amqsidecar.runtime.attempts import Attempts
from amqsidecar.runtime.observer import Observer, ObserverLog
from amqsidecar.telemetry import health
from support.brokers.memory import ENCODING, MemoryBroker, MemoryLink, StoredMessage
from support.brokers.one import OneBroker
from support.virtual_clock import VirtualClock

DLQ = "DLQ"


class Rules:
    def decide(self, _dead_letter: object, _chance: object) -> Decision:
        return Redeliver(500, 1, "again")


class Said(ObserverLog):
    def __init__(self) -> None:
        self.items: list[Observed] = []
        self.summaries: list[int] = []

    def observe(self, items: Sequence[Observed]) -> None:
        self.items += items

    def summary(self, tally: ObservationTally) -> None:
        self.summaries.append(tally.actions.total())


class Health(health.Health):
    def __init__(self) -> None:
        super().__init__(needs_token=False)
        self.told: list[str] = []

    def link_up(self, broker: str) -> None:
        self.told.append("up")

    def link_down(self, reason: str) -> None:
        self.told.append(f"down: {reason}")

    def reconnected(self) -> None:
        self.told.append("reconnected")

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        self.told.append(f"intake {read_count} {sorted(refused)} {problem}".rstrip())

    def left_behind(self, items: Sequence[LeftBehind]) -> None:
        self.told.append(f"left {len(items)}")


class LookingLink(MemoryLink):
    """Only looks; some queues can't be looked into."""

    refused: frozenset[str] = frozenset()
    fails: Callable[[], None] = staticmethod(lambda: None)

    def take(self, token_queue: str) -> Self:
        raise AssertionError("an observer takes nothing")

    def browse(self, intake: IntakeQueue, at_most: int) -> list[Delivery]:
        if intake.destination.name in self.refused:
            raise BrokerRefused(f"no right to browse {intake.destination}")
        self.fails()
        found = super().browse(intake, at_most)
        # Why: the memory broker gives no ids.
        return [
            Delivery(id(message), one.source, one.message, one.provenance, one.encoding)
            for one, message in zip(found, self.broker.queue(intake.destination.name), strict=False)
        ]

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        raise AssertionError("an observer takes nothing")


class HearingLink(LookingLink):
    """Reports deaths of queue `heard`."""

    deaths: list[str]

    @property
    def features(self) -> Features:
        return Features(deaths=self)

    def listen(self) -> Self:
        self.deaths = []
        return self

    def heard(self) -> list[Delivery]:
        found = [
            Delivery(
                None,
                queue("orders"),
                b"",
                Provenance(origin=queue("orders"), message_id=one),
                ENCODING,
            )
            for one in self.deaths
        ]
        self.deaths.clear()
        return found


def make_judge(_link: LookSession, names: IntakeNames) -> Judge:
    send_rules = SendRules(BrokerKind.CLASSIC, names.covers, FINAL_SUFFIX)
    return Judge(Rules(), send_rules, lambda: 0.5)


class World:
    """One observer, its link, and what it says; time passes by waiting."""

    def __init__(
        self,
        link_type: type[LookingLink] = LookingLink,
        find: Callable[..., Sequence[IntakeQueue]] = lambda _link: [IntakeQueue(queue(DLQ))],
        **settings: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker()
        self.link = link_type(self.broker)
        self.said, self.health = Said(), Health()
        self.steps: list[Callable[[], None]] = []
        self.link.on_wait = self._wait
        self.observer = Observer(
            make_link=lambda _instance: self.link,
            make_judge=make_judge,
            find_intake=find,
            dead_letter_queue_of=lambda _delivery: queue(DLQ),
            observation=ObservedDeaths(holds_backlog=False, backlog_threshold=0),
            clock=self.clock,
            attempts=Attempts(OneBroker(), 0.001, 30.0, lambda: 0.5),
            **{
                "intake_queues": (),
                "discovery_interval_s": 30.0,
                "interval_s": 10.0,
                "max_messages": 10_000,
                **settings,
            },
            health=self.health,
            observer_log=self.said,
        )

    def _wait(self, timeout_s: float) -> None:
        self.clock.advance(max(1, round(timeout_s * 1000)))
        if self.steps:
            self.steps.pop(0)()
        else:
            self.observer.stop()

    def die(self, *names: str) -> None:
        for name in names:
            self.broker.die(DLQ, StoredMessage(name.encode()), queue("orders"))

    def run(self, *steps: Callable[[], None]) -> None:
        self.steps = list(steps)
        self.observer.run()


def nothing() -> None:
    """A second passes."""


def test_it_looks_at_each_interval_and_takes_nothing() -> None:
    world = World(interval_s=2)
    world.die("a", "b")
    world.run(lambda: world.die("c"), nothing, nothing)
    assert len(world.said.items) == 3
    assert [one.body for one in world.broker.queue(DLQ)] == [b"a", b"b", b"c"]
    assert world.broker.tokens == []
    assert world.said.summaries == [3]


def test_stop_is_heard_before_the_next_look() -> None:
    world = World(interval_s=1000)
    world.run(lambda: world.die("late"))
    assert world.said.items == []
    assert world.clock.monotonic_s() < 1010


def test_it_sums_up_every_minute_and_at_the_end() -> None:
    world = World(interval_s=1000)
    world.die("a")
    world.run(*[nothing] * 130)
    assert world.said.summaries == [1, 1, 1]


def test_a_lost_link_is_replaced_and_nothing_counts_twice() -> None:
    world = World(interval_s=1)

    def lose() -> None:
        world.link.fails = once(LinkLost("gone"))

    world.die("a")
    world.run(lose, nothing, lambda: world.die("b"), nothing)
    assert len(world.said.items) == 2
    ups = [one for one in world.health.told if "intake" not in one]
    assert ups == ["up", "down: the link to the broker is lost: gone", "up", "reconnected"]


def once(error: Exception) -> Callable[[], None]:
    left = [error]

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


def test_a_refused_queue_is_left_out_and_the_others_are_seen() -> None:
    world = World(find=lambda _link: [IntakeQueue(queue("secret")), IntakeQueue(queue(DLQ))])
    world.link.refused = frozenset({"secret"})
    world.die("a")
    world.run()
    assert len(world.said.items) == 1
    assert "intake 1 ['queue://secret']" in world.health.told


def test_where_no_queue_may_be_seen_it_ends() -> None:
    world = World()
    world.link.refused = frozenset({DLQ})
    with pytest.raises(BrokerRefused, match="no right to browse queue://DLQ"):
        world.run()
    assert world.said.summaries == [0]


def test_where_discovery_is_refused_it_goes_on_and_is_not_ready() -> None:
    def refuse(_link: object) -> Sequence[IntakeQueue]:
        raise DiscoveryRefused("no right to ask")

    world = World(find=refuse)
    world.run()
    assert "intake 0 [] no dead-letter queue is known, so nothing is observed" in world.health.told


def test_deaths_are_heard_between_looks_and_count_once() -> None:
    world = World(HearingLink, interval_s=1000)
    link = world.link
    assert isinstance(link, HearingLink)
    world.run(lambda: link.deaths.extend(["x", "y", "x"]))
    assert [(one.message_id, one.source) for one in world.said.items] == [
        ("x", "queue://DLQ"),
        ("y", "queue://DLQ"),
    ]


def test_deaths_that_went_to_a_queue_that_is_not_read_are_not_reported() -> None:
    def elsewhere(_link: object) -> Sequence[IntakeQueue]:
        return [IntakeQueue(Destination(queue(DLQ).kind, "OTHER"))]

    world = World(HearingLink, find=elsewhere)
    link = world.link
    assert isinstance(link, HearingLink)
    world.run(lambda: link.deaths.append("x"))
    assert world.said.items == []
