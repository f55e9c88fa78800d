"""The index of what lies in queues: every message gets one row, and a row ends with its message."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, IntakeQueue, LookSession
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.manual import ALL, Manual
from amqsidecar.errors import BrokerRefused
from amqsidecar.model import row_changes
from amqsidecar.model.decision import Decision, Discard, Redeliver, WrittenLine
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import Missed
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.schedule import RowFilter
from amqsidecar.runtime.in_place import ADDED_AT_ONCE, InPlaceIndex
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.stores.sqlite.store import SqliteStore
from support.brokers.memory import ENCODING, MemoryBroker, MemoryLink
from support.virtual_clock import VirtualClock

DLQ = queue("DLQ")


class Rules:
    decision: Decision = Redeliver(500, 1, "again")

    def decide(self, _dead_letter: object, _chance: object) -> Decision:
        return self.decision


class Link(MemoryLink):
    """A broker with one queue, which may hide what another reader has in hand.

    Attributes:
        lying: message ids in the queue.
        ends_at: messages that a browse shows.
    """

    def __init__(self, kind: BrokerKind) -> None:
        super().__init__(MemoryBroker())
        self.description = BrokerDescription(kind, "1", (ENCODING,))
        self.lying: list[str] = []
        self.hidden: set[str] = set()
        self.ends_at = 10_000
        self.is_counted = True
        self.size_bytes = 10
        self.browsed = 0
        self.refusal = ""
        self.after_first: Callable[[], None] | None = None

    def browse(self, intake: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        if self.refusal:
            raise BrokerRefused(self.refusal)
        shown = [one for one in self.lying if one not in self.hidden]
        for one in shown[: min(at_most, self.ends_at)]:
            self.browsed += 1
            found = Provenance(origin=queue("orders"), message_id=one)
            yield Delivery(None, DLQ, b"x" * self.size_bytes, found, ENCODING)
            if self.after_first is not None:
                self.after_first()
                self.after_first = None

    def queue_counters(self, destinations: Sequence[Destination]) -> dict[Destination, Counters]:
        if not self.is_counted:
            return {}
        taken = sum(1 for one in self.lying if one.startswith("late"))
        return {DLQ: Counters(depth=len(self.lying), acknowledged=taken, removed=0)}


def make_judge(_link: LookSession, names: IntakeNames) -> Judge:
    send_rules = SendRules(BrokerKind.CLASSIC, names.covers, ".exhausted")
    return Judge(Rules(), send_rules, lambda: 0.5)


class World:
    """An index over a link, a store, and time that the test lets pass."""

    def __init__(self, store: SqliteStore, kind: BrokerKind, **options: Any) -> None:
        self.store, self.link, self.clock = store, Link(kind), VirtualClock()
        self.left: tuple[LeftBehind, ...] = ()
        self.discards = Counter[str]()
        self.mode = LiveMode(Manual([ALL]))
        self.index = InPlaceIndex(
            named=[IntakeQueue(DLQ)],
            find_intake=lambda _link: (),
            make_judge=make_judge,
            clock=self.clock,
            report=self._report,
            report_discards=self.discards.update,
            mode=self.mode,
            **{"interval_s": 5, "max_messages": 9_000, "max_per_second": 1_000_000, **options},
        )

    def _report(self, left: tuple[LeftBehind, ...]) -> None:
        self.left = left

    def go_on(self, seconds: float = 30) -> None:
        """Let time pass, in which the index goes on whenever it wants to."""
        ends_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < ends_s:
            if not self.index.due_in_s:
                self.index.look(self.store, self.link)
            self.clock.advance(max(10, round(self.index.due_in_s * 1000)))

    def rows(self) -> list[str]:
        rows = self.store.list_rows(RowFilter(), 20_000)
        return [str(row.message_id) for row in rows]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "schedule.db", clock=VirtualClock())
    store.open()
    yield store
    store.close()


@pytest.fixture(params=BrokerKind)
def world(request: pytest.FixtureRequest, store: SqliteStore) -> World:
    return World(store, request.param)


def ids(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_each_message_gets_one_row_and_rows_follow_what_others_take(world: World) -> None:
    world.link.lying = ids(2 * ADDED_AT_ONCE + 3)
    world.go_on()
    assert world.rows() == world.link.lying
    browsed = world.link.browsed
    world.go_on()
    assert world.link.browsed == browsed, "nothing changed, so nothing is browsed"

    position = world.store.tail()
    del world.link.lying[5:700:3]
    world.link.lying += ids(4, "late")
    world.go_on(60)
    assert world.rows() == world.link.lying
    events = world.store.events_after(position, 10_000).events
    gone = [one for one in events if isinstance(one, Missed)]
    assert len(gone) == 232

    world.link.lying = []
    world.go_on(60)
    assert world.rows() == []


def test_what_another_reader_has_in_hand_is_not_gone(store: SqliteStore) -> None:
    world = World(store, BrokerKind.ARTEMIS)
    world.link.lying = ids(30)
    world.go_on()
    world.link.hidden = {"m3", "m4"}
    world.link.lying.append("late")
    world.go_on(120)
    assert world.rows() == world.link.lying
    assert [(one.reason, one.count) for one in world.left] == [("not_shown", 2)]
    world.link.lying.remove("m3")
    world.link.hidden.clear()
    world.go_on(60)
    assert world.rows() == world.link.lying


@pytest.mark.parametrize("is_counted", [True, False])
def test_where_classic_ends_a_browse_the_rest_is_reported_and_kept(
    store: SqliteStore, *, is_counted: bool
) -> None:
    world = World(store, BrokerKind.CLASSIC)
    world.link.is_counted, world.link.ends_at = is_counted, 400
    world.link.lying = ids(1_000)
    world.go_on()
    assert world.rows() == world.link.lying[:400]
    [left] = world.left
    assert (left.reason, left.count) == ("browse_ends", 600 if is_counted else 0)
    assert "maxBrowsePageSize" in left.meaning
    # The first are consumed, one of the others too, and the browse goes on behind them.
    world.link.lying = [one for one in world.link.lying[100:] if one != "m250"]
    world.go_on(60)
    assert world.rows() == world.link.lying[:400]


def test_the_option_that_ends_a_pass_is_named(store: SqliteStore) -> None:
    world = World(store, BrokerKind.ARTEMIS, max_messages=700)
    world.link.lying = ids(1_000)
    world.go_on(60)
    assert len(world.rows()) == 700
    [left] = world.left
    assert (left.reason, left.count) == ("max_messages", 300)


def test_a_pass_keeps_its_pace_and_goes_on_where_it_was(store: SqliteStore) -> None:
    world = World(store, BrokerKind.ARTEMIS, max_per_second=100)
    world.link.lying = ids(2_000)
    world.go_on(12)
    assert 1_000 <= world.link.browsed <= 2_000
    world.go_on(12)
    assert world.rows() == world.link.lying
    assert world.link.browsed == 2_000


def test_large_messages_are_browsed_a_few_at_once(store: SqliteStore) -> None:
    world = World(store, BrokerKind.ARTEMIS)
    world.link.lying, world.link.size_bytes = ids(10), 3 << 20
    world.go_on(2)
    assert world.rows() == world.link.lying
    assert {one.size_bytes for one in store.list_rows(RowFilter(), 99)} == {3 << 20}


def test_what_left_the_queue_during_a_look_gets_no_second_row(world: World) -> None:
    """The page that shows it was handed over before it left."""
    world.link.lying = ids(3)
    world.go_on()
    row = world.store.list_rows(RowFilter(), 9)[1]

    def leave() -> None:
        del world.link.lying[1]
        world.store.change(RowFilter(ids=(row.id,)), row_changes.miss(0, str(DLQ)))

    world.link.lying.append("late")
    world.link.after_first = leave
    world.go_on(60)
    assert world.rows() == ["m0", "m2", "late"]


def test_a_refusal_is_reported_with_its_words(world: World) -> None:
    world.link.refusal = "User is not authorized to browse DLQ"
    world.go_on()
    [left] = world.left
    assert (left.reason, left.meaning) == ("refused", world.link.refusal)


def test_what_the_rules_would_discard_is_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.link.lying = ["kept"]
    world.go_on()
    assert not +world.discards
    monkeypatch.setattr(Rules, "decision", Discard(WrittenLine("dropAll", "a.xml:1")))
    world.link.lying += ["a", "b"]
    world.go_on(120)
    assert world.discards == {"queue://orders": 2}
