"""What the watcher does when the broker can't be asked, and which broker it asks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import Held, Missed, OutcomeProved, Resent
from amqsidecar.model.operation import Action, OperationPace, Selection
from amqsidecar.model.outcome import Counters, Observation
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.row_changes import TAKEN_BACK, RowChange
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.browse import read_missing, read_unknown
from amqsidecar.operations.operate import Wish, begin
from amqsidecar.runtime import final_queues
from amqsidecar.runtime.open_resends import OpenResends
from amqsidecar.runtime.watching import PROOFS_AT_ONCE, Watching
from amqsidecar.runtime.worker import KeptSchedule
from amqsidecar.stores.sqlite.store import SqliteStore
from support.brokers.memory import MemoryBroker, MemoryLink
from support.stores.rows import take_rows, taken_row, took


class Link(MemoryLink):
    """A link whose queues are as the test says."""

    def __init__(self, brokers: "Stage") -> None:
        super().__init__(MemoryBroker())
        self.brokers = brokers
        self.url = brokers.current
        self.is_open = False

    def look(self) -> Self:
        if self.brokers.refusal is not None:
            raise self.brokers.refusal
        self.is_open = True
        return super().look()

    def close(self) -> None:
        self.is_open = False
        super().close()

    def queue_counters(self, destinations: Sequence[Destination]) -> dict[Destination, Counters]:
        if self.brokers.forbidden in destinations:
            raise self.brokers.forbids
        depth = self.brokers.depth
        return {one: Counters(depth=depth, acknowledged=7, removed=0) for one in destinations}

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        self.brokers.browsed += 1
        return (
            Delivery(None, queue.destination, b"", Provenance(redelivery_id=one or None), "test")
            for one in self.brokers.lying
        )


class Clock(SystemClock):
    """A clock that the test sets."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


FINAL = "queue://DLQ.exhausted"


class Stage:
    """A store, its watcher, and brokers as the test says, whose links it keeps."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.current = "amqp://one"
        self.refusal: BrokerRefused | LinkLost | None = None
        self.made: list[Link] = []
        self.clock = Clock()
        self.depth = 0
        self.lying: list[str] = []
        self.browsed = 0
        self.forbidden: Destination | None = None
        self.forbids: BrokerRefused | LinkLost = BrokerRefused("User is not authorized")
        self.newer_token_s = 0.0
        self.watching = self.make_watching()

    def login_outdated(self, since_s: float) -> bool:
        return since_s < self.newer_token_s

    def make(self, instance: str) -> Link:
        assert instance == "it-watch"
        self.made.append(Link(self))
        return self.made[-1]

    def make_watching(self, resends: OpenResends | None = None, **options: Any) -> Watching:
        return Watching(
            schedule=KeptSchedule(lambda: self.store),
            brokers=self,
            instance="it-watch",
            clock=self.clock,
            window_ms=60_000,
            interval_s=5,
            resends=OpenResends(60_000, lambda _: None) if resends is None else resends,
            keeps_proofs=resends is not None,
            **options,
        )

    def turn(self, then_s: float = 0) -> None:
        """Look; then time passes."""
        self.watching.turn(self.store)
        self.clock.now_s += then_s

    def keep_one(self) -> None:
        row = taken_row(self.store.allocate_ids(1))
        take_rows(self.store, 1, [row], [took(row)])

    def exhaust(self, count: int, final_queue: str = FINAL) -> None:
        first = self.store.allocate_ids(count)
        rows = [
            taken_row(number, is_final=True, final_queue=final_queue)
            for number in range(first, first + count)
        ]
        cycle = self.store.open().cycle + 1
        with self.store.transaction() as transaction:
            transaction.record_cycle(cycle, rows, [], [took(row) for row in rows])
            transaction.finish_cycle(cycle)
            sent = transaction.claim_due(10_000, count)
            transaction.record_cycle(cycle + 1, [], sent, [])
            transaction.finish_cycle(cycle + 1)

    def counts(self) -> list[int]:
        """Return the numbers of messages that lie in final queues, by the schedule."""
        return [one.count for one in self.store.exhausted_tallies()]

    def look_after(self, seconds: float, depth: int) -> list[tuple[str, int]]:
        """Look once more, and return the missing messages that screens show then."""
        self.clock.now_s += seconds
        self.depth = depth
        self.turn()
        return [(one.queue, one.count) for one in read_missing(self.store, self.clock.now_ms())]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with closing(SqliteStore(tmp_path / "schedule.db", clock=SystemClock())) as store:
        store.open()
        yield Stage(store)


def test_nothing_is_asked_while_nothing_waits(stage: Stage) -> None:
    stage.turn()

    assert stage.made == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokerRefused("not yours"), ["unread_queues_not_counted"]),
        (LinkLost("gone"), ["unread_queues_not_counted", "outcomes_not_watched"]),
    ],
)
def test_a_queue_that_the_user_may_not_look_at_keeps_no_other_from_being_watched(
    stage: Stage, error: BrokerRefused | LinkLost, told: list[str]
) -> None:
    stage.forbidden, stage.forbids = queue("DLQ.others"), error
    stage.watching = stage.make_watching(find_unread=lambda _link: [queue("DLQ.others")])
    stage.keep_one()
    with capture_logs() as logs:
        for _ in range(3):
            stage.turn(then_s=31)
    assert [one["event"] for one in logs] == told
    seen = {one.destination for one in stage.store.recent_observations(0)}
    assert seen == {taken_row(1).destination}
    assert [one.is_open for one in stage.made] == [False, True][-len(told) :]


def test_messages_of_an_unread_queue_are_counted_once_two_looks_agree(stage: Stage) -> None:
    stage.watching = stage.make_watching(find_unread=lambda _link: [queue("DLQ.exhausted")])

    def seen_after(seconds: float, depth: int) -> list[tuple[str, int, bool]]:
        stage.clock.now_s += seconds
        stage.depth = depth
        stage.turn()
        found = read_unknown(stage.store, stage.clock.now_ms())
        return [(one.queue, one.count, one.at_least) for one in found]

    assert seen_after(0, 12) == []
    assert seen_after(31, 5) == [("queue://DLQ.exhausted", 5, False)]
    assert seen_after(31, 9) == [("queue://DLQ.exhausted", 5, False)]
    stage.exhaust(1)
    assert seen_after(31, 9) == []
    assert seen_after(31, 9) == [("queue://DLQ.exhausted", 8, False)]
    assert seen_after(31, 1) == []
    stage.clock.now_s += 10_000
    assert read_unknown(stage.store, stage.clock.now_ms()) == []


class ProvenResends(OpenResends):
    """Re-sends that are all proved at once."""

    def judge(self, latest: Mapping[str, Observation], now_ms: int) -> list[OutcomeProved]:
        del latest
        return [
            OutcomeProved(
                at_ms=now_ms,
                redelivery_id=f"m-{at}",
                destination="queue://a",
                outcome="consumed",
                redelivery_count=1,
                lateness_ms=0,
            )
            for at in range(2 * PROOFS_AT_ONCE + 1)
        ]


class CountedStore(SqliteStore):
    """Remembers how many proofs each write holds."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=SystemClock())
        self.writes: list[int] = []

    def record_outcomes(self, proved: Sequence[OutcomeProved]) -> None:
        super().record_outcomes(proved)
        self.writes.append(len(proved))


def test_cycles_wait_for_few_proofs_at_once(tmp_path: Path) -> None:
    with closing(CountedStore(tmp_path / "proofs.db")) as store:
        store.open()
        stage = Stage(store)
        stage.watching = stage.make_watching(ProvenResends(60_000, lambda _: None))
        stage.turn()
        assert store.writes == [PROOFS_AT_ONCE, PROOFS_AT_ONCE, 1]


def test_queue_of_a_kept_message_is_looked_at_before_it_is_re_sent(stage: Stage) -> None:
    stage.keep_one()

    stage.turn(then_s=5)
    stage.turn()

    seen = stage.store.observations(str(queue("orders")), 0, 2**53)[-1]
    assert (seen.depth, seen.acknowledged, seen.steady_since_ms) == (0, 7, stage.clock.now_ms())


def test_the_target_of_a_redirect_that_begins_later_is_looked_at_before(stage: Stage) -> None:
    stage.keep_one()
    wish = Wish(
        action=Action.REDIRECT,
        selection=Selection(),
        actor="anna",
        pace=OperationPace(begin_at_ms=stage.clock.now_ms() + 60_000),
        target="repair",
    )
    begin(stage.store, wish, stage.clock.now_ms())

    stage.turn(then_s=5)
    stage.turn()

    seen = stage.store.observations(str(queue("repair")), 0, 2**53)[-1]
    assert seen.steady_since_ms == stage.clock.now_ms()


def test_link_follows_the_service_to_another_broker(stage: Stage) -> None:
    stage.keep_one()
    stage.turn()

    stage.current = "amqp://two"
    stage.turn()

    assert [(link.url, link.is_open) for link in stage.made] == [
        ("amqp://one", False),
        ("amqp://two", True),
    ]


@pytest.mark.parametrize("error", [BrokerRefused("not yours"), LinkLost("gone")])
def test_broker_that_can_not_be_asked_is_reported_once_and_tried_ever_more_seldom(
    stage: Stage, error: BrokerRefused | LinkLost
) -> None:
    stage.keep_one()
    tried_at_s = []
    with capture_logs() as logs:
        for number in range(300):
            stage.refusal = type(error)(f"{error}: connection {number}")
            before = len(stage.made)
            stage.turn()
            if len(stage.made) > before:
                tried_at_s.append(stage.clock.now_s)
            stage.clock.now_s += 1

    pauses = [later - sooner for sooner, later in pairwise(tried_at_s)]
    assert [line["event"] for line in logs] == ["outcomes_not_watched"]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == 60.0


def test_what_is_missing_in_a_final_queue_is_reported_and_what_left_an_empty_one_is_forgotten(
    stage: Stage,
) -> None:
    stage.exhaust(5)
    assert stage.look_after(0, 3) == []
    assert stage.look_after(11, 3) == [(FINAL, 2)]
    assert stage.counts() == [5]

    stage.look_after(31, 0)
    assert stage.counts() == [5]
    stage.look_after(11, 0)

    assert stage.store.exhausted_tallies() == []
    assert stage.store.count_rows(RowFilter()) == 0
    (last,) = stage.store.history("test-000000000001")[-1:]
    assert isinstance(last, Missed)
    assert last.destination == FINAL
    assert stage.look_after(60, 0) == []


def test_deaths_after_the_look_are_not_missing(stage: Stage) -> None:
    stage.exhaust(5)
    for depth in range(5, 60, 5):
        assert stage.look_after(31, depth) == []
        stage.exhaust(5)
        assert read_missing(stage.store, stage.clock.now_ms()) == []


@pytest.mark.parametrize(
    "act",
    [
        row_changes.take_back(1, "ann"),
        row_changes.retry(1, "ann"),
        row_changes.redirect(1, "ann", "queue://x"),
        row_changes.discard(1, "ann", 7),
    ],
    ids=["take back", "retry", "redirect", "discard"],
)
def test_nothing_is_missing_while_messages_are_taken_out(stage: Stage, act: RowChange) -> None:
    stage.exhaust(5)
    stage.look_after(0, 5)
    assert stage.store.change(RowFilter(ids=(1,)), act) == 1
    for _ in range(3):
        assert stage.look_after(31, 0) == []
    assert sum(one.count for one in stage.store.exhausted_tallies()) == 5


def test_messages_taken_back_between_two_looks_are_not_missing(stage: Stage) -> None:
    stage.exhaust(5)
    stage.look_after(0, 3)
    taken = Held(at_ms=1, id=1, redelivery_id="test-1", destination=FINAL, reason=TAKEN_BACK)
    cycle = stage.store.open().cycle + 1
    take_rows(stage.store, cycle, [], [taken])
    assert stage.look_after(11, 3) == []
    assert stage.look_after(11, 3) == [(FINAL, 2)]


def test_messages_of_others_do_not_hide_missing_messages(stage: Stage) -> None:
    stage.exhaust(5)
    stage.lying = [f"test-{number:012d}" for number in range(1, 6)] + ["", "", "", ""]
    stage.look_after(0, 9)
    stage.look_after(31, 9)

    stage.lying = stage.lying[2:]
    stage.look_after(31, 7)
    assert stage.counts() == [5]
    stage.look_after(11, 7)

    assert stage.counts() == [3]
    assert isinstance(stage.store.history("test-000000000002")[-1], Missed)
    (unknown,) = read_unknown(stage.store, stage.clock.now_ms())
    assert unknown.count == 4

    browsed = stage.browsed
    stage.lying = stage.lying[:-1]
    for _ in range(4):
        stage.look_after(31, 6)
    assert stage.counts() == [3]
    assert stage.browsed - browsed <= 3


def test_a_big_final_queue_hides_no_row_of_a_small_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(final_queues, "BROWSED_MAX", 9)
    stage.exhaust(9, "queue://DLQ.big")
    stage.exhaust(2)
    for _ in range(2):
        stage.look_after(31, 0)
    assert stage.store.exhausted_tallies() == []


def test_looks_that_see_only_a_part_hide_no_theft(stage: Stage) -> None:
    stage.exhaust(5)
    stage.lying = [f"test-{number:012d}" for number in range(1, 6)] + ["", "", "", ""]
    for _ in range(2):
        stage.look_after(31, 9)

    stolen, stage.lying = stage.lying[:2], stage.lying[3:]
    browsed = stage.browsed
    for _ in range(4):
        stage.look_after(31, 7)
    assert stage.counts() == [5]
    # Each look tries again, and none comes sooner because the one before saw a part.
    assert stage.browsed - browsed == 4
    stage.look_after(11, 7)
    assert stage.browsed - browsed == 4

    stage.lying = [f"test-{number:012d}" for number in range(3, 6)] + ["", "", "", ""]
    for _ in range(2):
        stage.look_after(31, 7)
    assert stage.counts() == [5 - len(stolen)]


def test_a_theft_between_the_two_looks_that_prove_another_one_is_found(stage: Stage) -> None:
    stage.exhaust(5)
    stage.lying = [f"test-{number:012d}" for number in range(1, 6)]
    stage.look_after(31, 5)
    for left in (3, 2, 2, 2):
        stage.lying = stage.lying[-left:]
        stage.look_after(31, left)
    assert stage.counts() == [2]


def test_what_comes_to_an_empty_final_queue_after_the_look_is_not_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.exhaust(1)
    look = Link.queue_counters

    def look_late(link: Link, found: Sequence[Destination]) -> Mapping[Destination, Counters]:
        counters = look(link, found)
        stage.exhaust(1)
        return counters

    monkeypatch.setattr(Link, "queue_counters", look_late)
    for _ in range(2):
        stage.turn(then_s=11)

    # Each look counts twice; what came after the first look is not forgotten by the second.
    assert stage.counts() == [5 - 2]


def test_a_newer_token_ends_the_link_that_has_the_old_one(stage: Stage) -> None:
    stage.keep_one()
    stage.turn(then_s=31)
    stage.newer_token_s = stage.clock.now_s
    stage.turn()
    stage.turn()
    assert [link.is_open for link in stage.made] == [False, True]


def test_a_queue_in_which_re_sent_messages_lie_is_watched_until_it_was_empty(stage: Stage) -> None:
    orders, clock = "queue://orders", stage.clock
    stage.turn()
    resent = Resent(
        at_ms=clock.now_ms(),
        id=1,
        redelivery_id="test-1",
        destination=orders,
        redelivery_count=1,
        lateness_ms=0,
    )
    cycle = stage.store.open().cycle + 1
    take_rows(stage.store, cycle, [], [resent])
    stage.depth = 12
    for _ in range(10):
        stage.turn(then_s=31)
    looks = stage.store.observations(orders, clock.now_ms() - 60_000, clock.now_ms())
    assert looks[-1].depth == 12

    stage.depth = 0
    for _ in range(10):
        stage.turn(then_s=31)
    looks = stage.store.observations(orders, clock.now_ms() - 400_000, clock.now_ms())
    assert looks[-1].depth == 0
    assert looks[-1].at_ms < clock.now_ms() - 200_000


def test_a_stop_while_a_link_is_opened_is_not_slept_through(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no link to wake yet."""
    stage.keep_one()
    looked = Link.look

    def look(link: Link) -> Link:
        stage.watching.worker.stop.set()
        return looked(link)

    monkeypatch.setattr(Link, "look", look)
    monkeypatch.setattr(Link, "wait", lambda _link, timeout_s: pytest.fail(f"rests {timeout_s} s"))
    stage.watching._step()
    assert [one.is_open for one in stage.made] == [True]
