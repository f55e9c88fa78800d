"""Operations on a real store: carried out by steps, by anybody, followed, judged."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from amqsidecar.errors import StoreUnavailable
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.ledger import MemberOutcome, RowKey
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, DuplicateSuppressed, Exhausted, Returned
from amqsidecar.model.failure import EXPIRED
from amqsidecar.model.operation import (
    CAREFUL,
    LEASE_MS,
    Action,
    Operation,
    OperationPace,
    OperationState,
    OutcomeKind,
    Selection,
    lacks_sends,
)
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import (
    DueRow,
    Recall,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    TakenRow,
)
from amqsidecar.model.signal import DEFAULT_WAIT_MS
from amqsidecar.operations import browse, listing, operate
from amqsidecar.operations import preview as preview_module
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.browse import list_page
from amqsidecar.operations.follow import UNSENT_MS, follow, judge
from amqsidecar.operations.listing import Listing, list_messages
from amqsidecar.operations.operate import Turn, Wish, begin, carry_out
from amqsidecar.operations.preview import (
    BEING_SENT,
    FINAL,
    IN_FINAL_QUEUE,
    Preview,
    SkippedRows,
    preview,
)
from amqsidecar.operations.progress import (
    OperationResult,
    doing,
    list_members,
    read_progress,
)
from amqsidecar.operations.select import resolve, selector
from amqsidecar.operations.timeline import describe_all
from amqsidecar.runtime.operating import COUNT_EVERY_S, Operating
from amqsidecar.runtime.worker import KeptSchedule
from amqsidecar.telemetry.metrics import Metrics
from support.audit import audited
from support.stores.newer import newer_operation
from support.stores.opened import opened
from support.stores.rows import resent, taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

QUEUE = "queue://orders"
MINUTE = 60_000


OF_ACME = {"encoding": ENCODING, "message": kept([(b"tenant", b"ACME")], b"")}
OF_OTHERS = {"encoding": ENCODING, "message": kept([(b"tenant", b"other")], b"")}
SUFFIX = ".exhausted"


class Stage:
    """A store with held rows, and an engine that sends what is due."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.path = folder / "schedule.db"
        self.store = self.open_schedule()
        self.cycle = self.store.state().cycle
        self.began = self.store.tail()
        self.metrics = Metrics()
        self.woken: list[int] = []

    def open_schedule(self) -> UnsyncedStore:
        return opened(UnsyncedStore(self.path, clock=self.clock))

    def hold(self, count: int, **fields: Any) -> list[TakenRow]:
        first = self.store.allocate_ids(count)
        rows = [
            taken_row(number, **({"state": RowState.HELD} | fields))
            for number in range(first, first + count)
        ]
        self._commit(rows, [], [took(row) for row in rows])
        return rows

    def lie(self, count: int) -> list[TakenRow]:
        """Let messages wait in their dead-letter queue."""
        where = {"is_final": True, "final_queue": "queue://DLQ", "recall": Recall.RULES}
        return self.hold(count, state=RowState.EXHAUSTED, **where)

    def _commit(
        self, taken: Sequence[TakenRow], sent: Sequence[DueRow], events: Sequence[AnyEvent]
    ) -> None:
        self.cycle += 1
        with self.store.transaction() as tx:
            tx.record_cycle(self.cycle, taken, sent, events)
        with self.store.transaction() as tx:
            tx.finish_cycle(self.cycle)

    def send(self) -> list[DueRow]:
        """Send all that is due."""
        now_ms = self.clock.now_ms()
        with self.store.transaction() as tx:
            due = tx.claim_due(now_ms, 10_000)
        if due:
            self._commit([], due, [resent(row, now_ms) for row in due])
        return due

    def come_back(self, rows: Sequence[DueRow]) -> None:
        now_ms = self.clock.now_ms()
        events = [
            Returned(
                at_ms=now_ms,
                id=row.id + 100_000,
                redelivery_id=row.redelivery_id,
                source="queue://DLQ",
                origin=row.destination,
                redelivery_count=row.redelivery_count,
            )
            for row in rows
        ]
        with self.store.transaction() as tx:
            tx.record(events)

    def begin(self, action: Action = Action.RETRY, runner: str = "me", **wish: Any) -> Operation:
        plain = Wish(action=action, selection=Selection(), actor="cli:anna")
        return begin(
            self.store, msgspec.structs.replace(plain, **wish), self.clock.now_ms(), runner
        )

    def operation(self, number: int) -> Operation:
        found = self.store.operation(number)
        assert found is not None
        return found

    def turn(self, operation: Operation, runner: str = "me") -> Turn:
        return carry_out(self.store, operation.id, runner, SUFFIX, self.clock.now_ms)

    def finish(self, operation: Operation) -> Operation:
        for _ in range(100):
            if operation.state is not OperationState.RUNNING:
                return operation
            turn = self.turn(operation)
            operation = turn.operation
            if turn.next_at_ms is not None:
                self.clock.advance(turn.next_at_ms - self.clock.now_ms())
        raise AssertionError("it never ends")

    def operating(self) -> Operating:
        return Operating(
            schedule=KeptSchedule(self.open_schedule),
            clock=self.clock,
            suffix=SUFFIX,
            runner="service",
            wake=lambda: self.woken.append(self.clock.now_ms()),
            metrics=self.metrics,
        )

    def states(self) -> Counter[RowState]:
        return Counter(row.state for row in self.store.list_rows(RowFilter(), 10_000))

    def changes(self, kind: str) -> Counter[str]:
        """Return how often an event of this kind happened to each message."""
        events = self.store.events_after(self.began, 100_000).events
        return Counter(one.redelivery_id for one in events if one.__struct_config__.tag == kind)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.store.close()


# --- carrying out ------------------------------------------------------------------------------


def test_an_operation_changes_each_row_once_and_ends(stage: Stage) -> None:
    stage.hold(1_200)
    done = stage.finish(stage.begin(reason="mended", expected=1_200))
    assert (done.state, done.matched, done.changed) == (OperationState.DONE, 1_200, 1_200)
    assert (done.runner, done.ended_at_ms is not None) == ("", True)
    assert stage.states() == {RowState.WAITING: 1_200}
    assert set(stage.changes("retried").values()) == {1}


def test_what_comes_later_is_left_alone(stage: Stage) -> None:
    stage.hold(3)
    begun = stage.begin()
    stage.hold(2)
    assert stage.finish(begun).changed == 3
    assert stage.states() == {RowState.WAITING: 3, RowState.HELD: 2}


def test_what_somebody_holds_after_the_preview_stays_held(stage: Stage) -> None:
    rows = stage.hold(12)
    store, ids = stage.store, tuple(row.id for row in rows)
    seen = preview(store, Action.RETRY, Selection(), suffix=".x")
    store.change(RowFilter(ids=ids[:4]), row_changes.release(1, "ben"))
    store.change(RowFilter(ids=ids[:2]), row_changes.hold(2, "ben"))
    done = stage.finish(stage.begin(since=seen.since, expected=seen.count))
    assert (done.state, done.changed, done.overtaken) == (OperationState.DONE, 8, 4)
    assert stage.states() == {RowState.HELD: 2, RowState.WAITING: 10}


@pytest.mark.parametrize("chosen", [{}, {"event": "invoice-1"}, {"ids": (1, 2, 3)}])
def test_a_person_changes_the_wait_for_an_event(stage: Stage, chosen: dict[str, Any]) -> None:
    """To be longer, for another event, or until a person releases it; what is held stays so."""
    stage.hold(2, gate="invoice-1", due_at_ms=stage.clock.now_ms() + MINUTE)
    stage.hold(1)

    def held(until: str, longest_ms: int = DEFAULT_WAIT_MS, **filters: Any) -> list[RowView]:
        chosen = Selection(rows=RowFilter(**filters))
        found = look(stage, Action.HOLD, **filters)
        operation = stage.finish(
            stage.begin(Action.HOLD, selection=chosen, until=until, longest_ms=longest_ms)
        )
        assert (found.count, operation.changed) == (2, 2)
        rows = stage.store.list_rows(RowFilter(state=RowState.HELD), 9)
        assert [row.awaits for row in rows] == [until or None, until or None, None]
        return rows

    until_ms = stage.clock.now_ms() + 60 * MINUTE
    rows = held("invoice-1", 60 * MINUTE, **chosen)
    assert [row.due_at_ms for row in rows[:2]] == [until_ms] * 2
    held("invoice-2", **chosen)
    chosen = chosen if "event" not in chosen else {"event": "invoice-2"}
    assert held("", **chosen)[0].reason == "held by cli:anna"
    assert look(stage, Action.HOLD, **chosen).count == 0


def test_an_operation_begins_when_it_is_time(stage: Stage) -> None:
    rows = stage.hold(3)
    begin_at_ms = stage.clock.now_ms() + 3_600_000
    begun = stage.begin(pace=OperationPace(begin_at_ms=begin_at_ms))
    turn = stage.turn(begun)
    assert (turn.changed, turn.next_at_ms) == (0, begin_at_ms)
    assert doing(turn.operation, stage.clock.now_ms()).startswith("it begins at ")
    stage.store.change(RowFilter(ids=(rows[0].id,)), row_changes.release(1, "ben"))
    stage.store.change(RowFilter(ids=(rows[0].id,)), row_changes.hold(1, "ben"))
    stage.clock.advance(3_599_999)
    assert stage.turn(begun).changed == 0
    stage.clock.advance(1)
    done = stage.finish(begun)
    assert (done.changed, done.overtaken) == (2, 1)


def test_an_operation_knows_what_ran_when_it_began(stage: Stage) -> None:
    stage.hold(1)
    stage.begin()
    ended = stage.begin(Action.HOLD, actor="console:ben", selection=Selection())
    operate.cancel(stage.store, ended.id, 1, "ben")
    assert stage.begin(Action.HOLD).beside == ((Action.RETRY, "cli:anna"),)


def test_an_operation_on_nothing_ends_at_once(stage: Stage) -> None:
    done = stage.finish(stage.begin())
    assert (done.state, done.changed) == (OperationState.DONE, 0)


def test_cancelling_leaves_each_row_changed_with_its_event_or_untouched(stage: Stage) -> None:
    stage.hold(1_200)
    begun = stage.begin()
    stage.turn(begun)
    cancelled = operate.cancel(stage.store, begun.id, stage.clock.now_ms(), "cli:anna", "wrong")
    assert stage.turn(begun).changed == 0
    assert (cancelled.state, cancelled.state_reason) == ("cancelled", "wrong (by cli:anna)")
    assert stage.states() == {RowState.WAITING: 500, RowState.HELD: 700}
    waiting = stage.store.list_rows(RowFilter(state=RowState.WAITING), 10_000)
    assert stage.changes("retried") == {row.redelivery_id: 1 for row in waiting}


def test_paused_it_waits_and_resumed_it_goes_on(stage: Stage) -> None:
    stage.hold(1_200)
    begun = stage.begin()
    stage.turn(begun)
    operate.pause(stage.store, begun.id, stage.clock.now_ms(), "console:ben")
    turn = stage.turn(begun)
    assert (turn.changed, turn.next_at_ms) == (0, None)
    with pytest.raises(ActionRefused, match="there is no operation 9"):
        operate.pause(stage.store, 9, 0, "x")
    resumed = operate.resume(stage.store, begun.id, stage.clock.now_ms(), "console:ben")
    assert stage.finish(resumed).changed == 1_200
    with pytest.raises(ActionRefused, match="operation 1 is done"):
        operate.cancel(stage.store, begun.id, 0, "x")
    assert set(stage.changes("retried").values()) == {1}


def test_another_runner_goes_on_once_the_first_gives_no_sign(stage: Stage) -> None:
    stage.hold(1_200)
    begun = stage.begin()
    stage.turn(begun)
    assert stage.turn(begun, "you").changed == 0
    stage.clock.advance(LEASE_MS)
    assert stage.turn(begun, "you").changed == 500
    assert stage.turn(begun).changed == 0, "the first one comes back to life"
    assert stage.turn(begun, "you").changed == 200
    assert set(stage.changes("retried").values()) == {1}


def test_a_step_of_a_runner_that_lost_its_lease_inside_is_rolled_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.hold(10)
    begun = stage.begin()
    step_operation = UnsyncedStore.step_operation

    def stolen(store: UnsyncedStore, number: int, *arguments: Any, **named: Any) -> Operation:
        store.change_operation(
            number, lambda one: msgspec.structs.replace(one, runner="you", runner_until_ms=2**50)
        )
        return step_operation(store, number, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(UnsyncedStore, "step_operation", stolen)
        assert stage.turn(begun).changed == 0
    assert stage.states() == {RowState.HELD: 10}
    assert stage.operation(begun.id).after_id == 0


def test_a_lease_that_is_given_up_is_free_at_once(stage: Stage) -> None:
    stage.hold(10)
    begun = stage.begin()
    operate.leave(stage.store, begun.id, "me")
    assert stage.turn(begun, "you").changed == 10


def test_references_that_name_no_row_are_reported(stage: Stage) -> None:
    [row] = stage.hold(1)
    references = [str(row.id), row.redelivery_id, "9" * 30, "9" * 5_000, "nobody"]
    assert resolve(stage.store, references) == ((row.id,), references[2:])


def test_only_messages_with_a_property_are_changed(stage: Stage) -> None:
    stage.hold(3, **OF_ACME)
    stage.hold(4, **OF_OTHERS)
    chosen = Selection(properties=(("tenant", "ACME"),))
    found = preview(stage.store, Action.RETRY, chosen, suffix=".x")
    assert (found.count, found.looked_at, found.is_whole) == (3, 7, True)
    done = stage.finish(stage.begin(selection=chosen))
    assert (done.matched, done.changed) == (3, 3)
    assert stage.states() == {RowState.WAITING: 3, RowState.HELD: 4}


def test_discarded_rows_are_gone_and_redirected_ones_go_elsewhere(stage: Stage) -> None:
    rows = stage.hold(4)
    ids = tuple(row.id for row in rows)
    stage.finish(stage.begin(Action.DISCARD, selection=Selection(rows=RowFilter(ids=ids[:2]))))
    done = stage.finish(stage.begin(Action.REDIRECT, target="elsewhere"))
    assert (done.target, done.changed) == ("queue://elsewhere", 2)
    assert {row.destination for row in stage.send()} == {"queue://elsewhere"}
    assert stage.states() == {}


def test_the_service_undoes_a_discard_also_one_that_has_not_ended(stage: Stage) -> None:
    stage.hold(1_200)
    before = stage.store.list_rows(RowFilter(), 10_000)
    begun = stage.begin(Action.DISCARD)
    stage.turn(begun)
    assert stage.states() == {RowState.HELD: 700}
    operate.undo(stage.store, begun.id, stage.clock.now_ms(), "ann", "the wrong one")
    operating = stage.operating()
    for _ in range(5):
        operating.look()
        stage.clock.advance(1_000)
    operating.close()
    assert stage.store.list_rows(RowFilter(), 10_000) == before
    undone = stage.operation(begun.id)
    assert undone is not None
    assert (undone.state, undone.restored, undone.changed) == (OperationState.UNDONE, 500, 500)
    assert doing(undone, stage.clock.now_ms()) == "500 of 500 messages were put back"
    assert set(stage.changes("restored").values()) == {1}
    with pytest.raises(ActionRefused, match="no message that operation 1 discarded is kept"):
        operate.undo(stage.store, begun.id, stage.clock.now_ms(), "ann")


def test_a_discard_is_undone_while_a_cycle_takes_its_messages_out_of_their_queue(
    stage: Stage,
) -> None:
    lying = stage.hold(3, state=RowState.EXHAUSTED, is_final=True, final_queue=QUEUE + SUFFIX)
    done = stage.finish(stage.begin(Action.DISCARD))
    taken = [taken_row(row.id + 10, state=RowState.EXHAUSTED, recall=Recall.DROP) for row in lying]
    numbers = {new.id: old.id for new, old in zip(taken, lying, strict=True)}
    with stage.store.transaction() as tx:
        tx.record_cycle(stage.cycle + 1, taken, [], [], replaced=numbers)
    assert operate.undoable(stage.store, done) == 3
    undone = operate.undo(stage.store, done.id, stage.clock.now_ms(), "ann")
    assert undone.state is OperationState.UNDOING


def test_an_older_operation_leaves_what_was_put_back_after_it_began(stage: Stage) -> None:
    stage.hold(4)
    discarded = stage.finish(stage.begin(Action.DISCARD))
    stage.hold(2)
    retry = stage.begin()
    operate.undo(stage.store, discarded.id, stage.clock.now_ms(), "ann")
    while stage.turn(discarded, "service").next_at_ms is not None:
        stage.clock.advance(1_000)
    done = stage.finish(retry)
    assert (done.changed, done.overtaken) == (2, 4)
    assert stage.states() == {RowState.HELD: 4, RowState.WAITING: 2}


def test_what_is_on_its_way_to_its_final_queue_is_redelivered_once_more(stage: Stage) -> None:
    stage.hold(1, redelivery_count=4)
    stage.finish(stage.begin(Action.CANCEL))
    stage.finish(stage.begin(Action.REDIRECT, target="queue://elsewhere"))
    [row] = stage.send()
    assert (row.destination, row.is_final, row.redelivery_count) == ("queue://elsewhere", False, 4)


@pytest.mark.parametrize(
    "chosen", [{"ids": (1,)}, {"destination": QUEUE}, {}], ids=["number", "destination", "all"]
)
def test_a_person_holds_what_the_rules_redeliver_from_its_queue(
    stage: Stage, chosen: dict[str, Any]
) -> None:
    [lying] = stage.lie(1)
    operation = stage.finish(
        stage.begin(Action.HOLD, selection=Selection(rows=RowFilter(**chosen)))
    )
    assert operation.changed == 1
    [row] = stage.store.list_rows(RowFilter(ids=(lying.id,)), 1)
    assert (row.recall, row.reason) == (Recall.HELD, "held by cli:anna")
    assert stage.changes("held") == {lying.redelivery_id: 1}
    due_at_ms = row.due_at_ms
    released = stage.finish(
        stage.begin(Action.RELEASE, selection=Selection(rows=RowFilter(**chosen)))
    )
    assert released.changed == 1
    [row] = stage.store.list_rows(RowFilter(ids=(lying.id,)), 1)
    assert (row.recall, row.reason) == (Recall.RULES, None)
    assert (row.state, row.due_at_ms) == (
        RowState.EXHAUSTED,
        max(due_at_ms, stage.clock.now_ms()),
    )


def test_nothing_is_held_in_its_queue_until_an_event_that_would_not_release_it(
    stage: Stage,
) -> None:
    [lying] = stage.lie(1)
    [waiting] = stage.hold(1, state=RowState.WAITING)
    for chosen in (RowFilter(ids=(lying.id,)), RowFilter()):
        with pytest.raises(ActionRefused, match=f"message {lying.id} waits in its dead-letter"):
            stage.begin(Action.HOLD, selection=Selection(rows=chosen), until="invoice-4711")
    assert stage.store.operations(1) == []
    for chosen in (RowFilter(ids=(waiting.id,)), RowFilter(state=RowState.WAITING)):
        stage.begin(Action.HOLD, selection=Selection(rows=chosen), until="invoice-4711")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"pace": OperationPace(per_second=1e-300)}, "from one message an hour"),
        ({"pace": OperationPace(window_ms=2**63 - 1)}, "at most 30 days"),
        ({"action": Action.REDIRECT, "target": "a,b"}, "no name of one destination"),
        ({"action": Action.REDIRECT, "target": "topic://prices.>"}, "no name of one destination"),
        ({"action": Action.REDIRECT, "target": "orders.*.new"}, "no name of one destination"),
        ({"action": Action.REDIRECT, "target": "temp-queue://ID:1"}, "temporary"),
        ({"action": Action.REDIRECT, "target": "amqsidecar.token.a"}, "the sidecar's own"),
        (
            {"action": Action.HOLD, "selection": Selection(rows=RowFilter(state=RowState.PARKED))},
            "hold is for waiting messages, not for parked ones",
        ),
        ({"action": Action.HOLD, "longest_ms": 1}, "name the event, too"),
        ({"action": Action.HOLD, "until": ".."}, "visible characters, and is not"),
    ],
)
def test_what_makes_no_sense_is_refused(stage: Stage, wish: dict[str, Any], words: str) -> None:
    with pytest.raises(ActionRefused, match=words):
        stage.begin(**wish)
    assert stage.store.operations(1) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("queue://DLQ", "DLQ"),
        ("queue://DLA::DLQ.orders", "queue://DLA::DLQ.orders"),
        ("queue://DLA::DLQ.orders", "DLA"),
        ("queue://DLA::DLQ.orders", "DLQ.orders"),
    ],
)
def test_nothing_is_redirected_in_a_circle(stage: Stage, source: str, target: str) -> None:
    with stage.store.transaction() as tx:
        tx.set_hold(source, 0)
    with pytest.raises(ActionRefused, match="would circulate"):
        stage.begin(Action.REDIRECT, target=target)
    assert stage.begin(Action.REDIRECT, target="orders").target == "queue://orders"


def test_messages_are_listed_by_a_property_a_bounded_number_at_a_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*stage.hold(3, **OF_ACME), *stage.hold(2), *stage.hold(1, message=b"t")]
    ids = [row.id for row in rows]
    monkeypatch.setattr(browse, "LOOKED_INTO", 4)
    select = selector(Selection(properties=(("tenant", "ACME"),)))

    def page(limit: int, after: int) -> tuple[list[int], int | str | None]:
        found = list_page(stage.store, RowFilter(), limit, str(after), select)
        return [row.id for row in found.rows], found.next_after

    assert page(2, 0) == (ids[:2], ids[1])
    assert page(3, 0) == (ids[:3], ids[2])
    assert page(9, 0) == (ids[:3], ids[3])
    assert page(9, ids[3]) == ([], None)


def test_a_page_of_what_rarely_matches_is_looked_for_a_bounded_number_of_pages(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only match is the oldest of seven; pages have two rows."""
    [first, *_] = [*stage.hold(1, **OF_ACME), *stage.hold(6)]
    wanted = Selection(properties=(("tenant", "ACME"),))

    def page(after: RowKey | None = None) -> Listing:
        return list_messages(stage.store, wanted, limit=2, after=after)

    whole = page()
    assert ([row.id for row in whole.rows], whole.looked_at) == ([first.id], 7)
    assert whole.next_after is None
    monkeypatch.setattr(listing, "PAGES_MAX", 3)
    begin = page()
    assert (begin.rows, begin.looked_at) == ([], 6)
    assert [row.id for row in page(begin.next_after).rows] == [first.id]
    monkeypatch.setattr(listing, "BYTES_MAX", 0)
    assert page().looked_at == 2


EXHAUSTED = {"final_queue": "queue://DLQ.exhausted", "redelivery_count": 4}


def test_exhausted_messages_that_are_kept_begin_a_new_life_carefully(stage: Stage) -> None:
    rows = stage.hold(3, state=RowState.EXHAUSTED, **EXHAUSTED)
    stage.hold(2)
    wanted = Selection(rows=RowFilter(state=RowState.EXHAUSTED))
    before = look(stage, state=RowState.EXHAUSTED)
    assert (before.count, before.left) == (3, [])
    stage.finish(stage.begin(selection=wanted, reason="OPS-1207"))
    assert [(row.redelivery_count, row.is_final) for row in stage.send()] == [(1, False)] * 3
    history = [
        Exhausted(at_ms=1, destination="queue://DLQ.exhausted", rule="r"),
        *stage.store.history(rows[0].redelivery_id)[1:2],
    ]
    assert describe_all(history)[1] == (
        "life 2 begins: to queue://orders by cli:anna because: OPS-1207"
    )


def test_exhausted_messages_in_their_final_queue_are_counted_and_given_up_ones_left(
    stage: Stage,
) -> None:
    stage.hold(2, state=RowState.WAITING, is_final=True, **EXHAUSTED)
    stage.send()
    found = look(stage, state=RowState.EXHAUSTED)
    assert (found.count, found.left) == (2, [])
    assert [(one.destination, one.count) for one in found.targets] == [("queue://orders", 2)]
    assert any("2 of them are in their final dead-letter queue" in note for note in found.notes)
    given_up = look(stage, Action.CANCEL, state=RowState.EXHAUSTED)
    assert (given_up.count, given_up.left) == (0, [SkippedRows(IN_FINAL_QUEUE, 2)])
    assert stage.finish(stage.begin()).changed == 2


# --- the preview -------------------------------------------------------------------------------


def look(stage: Stage, action: Action = Action.RETRY, **values: Any) -> Preview:
    rows = RowFilter(**{name: one for name, one in values.items() if name != "after"})
    chosen, after = Selection(rows=rows), values.get("after")
    return preview(stage.store, action, chosen, suffix=".x", after=after)


@pytest.mark.parametrize(
    ("action", "targets"),
    [
        (Action.RETRY, {"queue://orders": 4}),
        (Action.CANCEL, {"queue://DLQ.x": 3, "queue://decided": 1}),
        (Action.DISCARD, {}),
        (Action.HOLD, {}),
    ],
)
@pytest.mark.parametrize("are_looked_at", [True, False])
def test_a_preview_says_where_messages_would_be_sent(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    targets: dict[str, int],
    are_looked_at: bool,
) -> None:
    if not are_looked_at:
        monkeypatch.setattr(preview_module, "ROWS_MAX", 1)
    given = {"source": "queue://DLQ", "state": RowState.WAITING, "cause_group": "x"}
    stage.hold(3, **given)
    stage.hold(1, **given, final_queue="queue://decided")
    found = look(stage, action, cause_group="x")
    assert found.count == 4
    assert {one.destination: one.count for one in found.targets} == targets


def test_a_preview_says_what_is_being_sent_and_what_is_delayed(stage: Stage) -> None:
    rows = stage.hold(4, state=RowState.WAITING)
    with stage.store.transaction() as tx:
        due = tx.claim_due(stage.clock.now_ms(), 10)
        tx.postpone([rows[2].id], 2_000_000, "closed", "windows")
        tx.postpone([rows[3].id], 2_000_000, "the address is full")
        tx.record_cycle(stage.cycle + 1, [], due[:1], [])
    found = look(stage)
    assert (found.count, found.left) == (3, [SkippedRows(BEING_SENT, 1)])
    assert (found.delayed, found.gated) == (1, 1)
    assert look(stage, Action.HOLD).gated == 0
    assert found.example is not None
    assert found.example.id == rows[3].id


def test_a_preview_says_why_rows_are_left(stage: Stage) -> None:
    stage.hold(2)
    assert look(stage, Action.HOLD, state=RowState.HELD).left == [SkippedRows("held", 2)]
    stage.finish(stage.begin(Action.CANCEL))
    assert look(stage, Action.CANCEL).left == [SkippedRows(FINAL, 2)]


@pytest.mark.parametrize("rows_max", [1, 5_000])
def test_a_preview_says_what_expired_and_what_is_final(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    stage.hold(3, cause_group=EXPIRED)
    stage.hold(2, cause_group="timeout")
    monkeypatch.setattr(preview_module, "ROWS_MAX", rows_max)
    assert any(note.startswith("3 of them expired") for note in look(stage).notes)
    assert not any("expired" in note for note in look(stage, cause_group="timeout").notes)
    assert not any("expired" in note for note in look(stage, Action.HOLD).notes)
    if rows_max > 5:
        stage.finish(stage.begin(Action.CANCEL))
        assert any(note.startswith("5 of them are already going") for note in look(stage).notes)


def test_a_preview_names_running_operations(stage: Stage) -> None:
    stage.hold(2)
    stage.begin(actor="console:ben")
    [note] = look(stage, Action.HOLD, state=RowState.HELD).notes
    assert note.startswith("running operation 1 (retry by console:ben): it skips")


def test_a_preview_of_many_asks_the_tallies(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.hold(3, cause_group="timeout", received_at_ms=700)
    stage.hold(2, cause_group="refused", destination="queue://bills", received_at_ms=900)
    monkeypatch.setattr(preview_module, "ROWS_MAX", 1)
    found = look(stage)
    assert (found.count, found.is_whole, found.looked_at) == (5, True, 0)
    assert [(one.destination, one.count) for one in found.parts] == [
        (QUEUE, 3),
        ("queue://bills", 2),
    ]
    assert (found.oldest_at_ms, found.newest_at_ms) == (700, 900)
    assert "too many to examine each" in found.notes[0]
    assert look(stage, cause_group="timeout").count == 3
    assert look(stage, Action.RELEASE, destination="queue://bills").count == 2
    assert look(stage, Action.HOLD).count == 0


def test_a_preview_of_many_says_what_goes_past_gates(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = stage.hold(3, state=RowState.WAITING)
    with stage.store.transaction() as tx:
        tx.postpone([rows[0].id, rows[2].id], 2_000_000, "closed", "windows")
    monkeypatch.setattr(preview_module, "ROWS_MAX", 1)
    found = look(stage)
    assert (found.looked_at, found.count, found.gated) == (0, 3, 2)
    assert look(stage, Action.CANCEL).gated == 0
    stage.hold(2)
    assert (look(stage).gated, look(stage, state=RowState.HELD).gated) == (2, 0)


def test_a_preview_without_tallies_is_bounded_and_can_continue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.hold(5, cause="java.io: timeout")
    monkeypatch.setattr(preview_module, "ROWS_MAX", 3)
    first = look(stage, cause_contains="timeout")
    assert (first.count, first.is_whole, first.looked_at) == (3, False, 3)
    rest = look(stage, cause_contains="timeout", after=first.next_after)
    assert (rest.count, rest.is_whole, rest.next_after) == (2, True, None)


# --- following ---------------------------------------------------------------------------------


def test_a_careful_retry_stops_when_what_it_sends_comes_back(stage: Stage) -> None:
    stage.hold(1_000)
    begun = stage.begin(pace=CAREFUL)
    sent = 0
    for _ in range(1_000):
        with audited() as lines:
            turn = stage.turn(begun)
        due = stage.send()
        sent += len(due)
        stage.come_back(due[::3])
        if turn.operation.state is not OperationState.RUNNING:
            break
        stage.clock.advance(max(1, (turn.next_at_ms or 0) - stage.clock.now_ms()))
    stopped = turn.operation
    assert (stopped.state, sent <= 50) == (OperationState.STOPPED, True)
    assert "re-sent messages came back; no more than 10% may" in stopped.state_reason
    (line,) = lines
    assert (line["event.action"], line["amqsidecar.way"]) == ("operation-stopped", "rule")
    assert (line["event.reason"], line["amqsidecar.count"]) == (stopped.state_reason, sent)
    assert (line["user.name"], line["amqsidecar.asked_by"]) == ("amqsidecar", begun.actor)
    assert stage.states()[RowState.HELD] == 1_000 - sent
    found = read_progress(stage.store, begun.id, stage.clock.now_ms()).outcomes
    assert found is not None
    assert (found.came_back, found.resent) == (stopped.came_back, sent - stopped.came_back)

    def stopped_now() -> float:
        stage.operating().look()
        return stage.metrics.value("amqsidecar_operations_stopped")

    assert stopped_now() == 1
    operate.cancel(stage.store, begun.id, stage.clock.now_ms(), "cli:anna", "mended otherwise")
    assert stopped_now() == 0


def test_an_operation_that_is_done_says_what_is_not_sent_yet(stage: Stage) -> None:
    """Its state alone would read as success."""
    stage.hold(10)
    begun = stage.begin()
    assert result(stage) is OperationResult.UNFINISHED
    stage.turn(begun)
    found = read_progress(stage.store, begun.id, stage.clock.now_ms())
    assert (found.operation.state, found.result) == (OperationState.DONE, OperationResult.NOT_SENT)
    assert lacks_sends(found.operation)
    due = stage.send()
    follow(stage.store)
    assert result(stage) is OperationResult.OPEN
    [operation] = stage.store.operations(1)
    assert not lacks_sends(operation)
    stage.come_back(due[:1])
    follow(stage.store)
    stage.store.settle_members(
        begun.id,
        [
            MemberOutcome(one, OutcomeKind.CONSUMED, "")
            for one in (row.redelivery_id for row in due[1:])
        ],
    )
    assert result(stage) is OperationResult.CAME_BACK


def result(stage: Stage) -> OperationResult | None:
    return read_progress(stage.store, 1, stage.clock.now_ms()).result


def test_a_probe_that_stays_away_lets_the_rest_go(stage: Stage) -> None:
    stage.hold(40)
    begun = stage.begin(pace=OperationPace(probe=10))
    assert stage.turn(begun).changed == 10
    stage.clock.advance(10 * MINUTE)
    assert stage.turn(begun).changed == 0, "nobody has sent it yet"
    assert "waits for 10 more sends" in read_progress(stage.store, 1, 0).doing
    assert "pause and resume it" in read_progress(stage.store, 1, 0).doing
    stage.send()
    turn = stage.turn(begun)
    assert turn.next_at_ms == stage.clock.now_ms() + MINUTE
    doing = read_progress(stage.store, 1, stage.clock.now_ms()).doing
    assert doing.startswith("it sent 10 and counts returns until 1970-01-01 00:")
    stage.clock.advance(MINUTE)
    assert stage.turn(begun).changed == 30


def test_an_operation_that_keeps_its_pace_goes_on(stage: Stage) -> None:
    stage.hold(40)
    stage.turn(stage.begin(pace=OperationPace(per_second=4.0)))
    assert read_progress(stage.store, 1, stage.clock.now_ms() + 100).doing == "it goes on"


def test_only_what_happens_after_the_begin_is_read(stage: Stage) -> None:
    stage.hold(3)
    before = stage.store.tail()
    stage.begin()
    assert stage.store.followed_until() == before
    stage.turn(stage.operation(1))
    stage.begin(Action.HOLD)
    assert stage.store.followed_until() == before, "another is followed"


def test_a_duplicate_that_an_older_version_recorded_counts_as_sent(stage: Stage) -> None:
    [row] = stage.hold(1)
    stage.finish(stage.begin())
    event = DuplicateSuppressed(
        at_ms=stage.clock.now_ms(),
        id=row.id,
        redelivery_id=row.redelivery_id,
        destination=QUEUE,
        redelivery_count=1,
    )
    with stage.store.transaction() as tx:
        tx.record([event])
    assert follow(stage.store)
    assert stage.operation(1).resent == 1


def looked(at_ms: int, **values: Any) -> Observation:
    return Observation(destination=QUEUE, at_ms=at_ms, depth=0, **values)


def test_verdicts_have_their_evidence(stage: Stage) -> None:
    stage.hold(3)
    begun = stage.finish(stage.begin())
    sent_at_ms = stage.clock.now_ms()
    due = stage.send()
    stage.clock.advance(1_000)
    stage.come_back(due[:1])
    follow(stage.store)
    assert judge(stage.store, begun, stage.clock.now_ms()) == 0
    stage.clock.advance(2 * MINUTE)
    seen = looked(
        stage.clock.now_ms() - 1_000,
        acknowledged=7,
        removed=1,
        steady_since_ms=0,
        moved_at_ms=sent_at_ms + 1_000,
        empty_at_ms=stage.clock.now_ms() - 1_000,
    )
    stage.store.add_observations([seen])
    assert judge(stage.store, begun, stage.clock.now_ms()) == 2
    page = list_members(stage.store, begun.id, None, 2)
    assert [one.outcome for one in page.members] == [OutcomeKind.CAME_BACK, OutcomeKind.CONSUMED]
    assert "acknowledged" in page.members[1].evidence
    assert page.next_after is not None
    assert len(list_members(stage.store, begun.id, None, 2, page.next_after).members) == 1
    assert stage.store.open_operations() == []


def test_what_somebody_sent_elsewhere_is_not_said_to_be_consumed(stage: Stage) -> None:
    stage.hold(1)
    begun = stage.finish(stage.begin())
    stage.finish(stage.begin(Action.REDIRECT, target="elsewhere"))
    stage.send()
    follow(stage.store)
    assert stage.operation(1).resent == 1, "nobody waits for it any more"
    [member] = stage.store.members(begun.id, OutcomeKind.UNKNOWN, 10)
    assert member.evidence == "it was sent to queue://elsewhere: changed by another action"
    assert stage.store.member_counts(2) == {OutcomeKind.RESENT: 1}


def test_nobody_looked_is_unknown(stage: Stage) -> None:
    stage.hold(1)
    begun = stage.finish(stage.begin())
    stage.send()
    follow(stage.store)
    stage.clock.advance(2 * MINUTE)
    assert judge(stage.store, begun, stage.clock.now_ms()) == 1
    [member] = stage.store.members(begun.id, OutcomeKind.UNKNOWN, 10)
    assert member.evidence == "its queue was not examined after its window"


def test_a_message_that_came_back_just_now_is_not_said_to_be_consumed(stage: Stage) -> None:
    """What came back after the last look at the events is read before a verdict."""
    stage.hold(1)
    begun = stage.finish(stage.begin())
    due = stage.send()
    follow(stage.store)
    stage.clock.advance(2 * MINUTE)
    stage.come_back(due)
    assert judge(stage.store, begun, stage.clock.now_ms()) == 0
    assert stage.store.member_counts(begun.id) == {OutcomeKind.CAME_BACK: 1}


def test_what_is_never_sent_is_waited_for_one_day(stage: Stage) -> None:
    stage.hold(1)
    begun = stage.finish(stage.begin())
    stage.finish(stage.begin(Action.HOLD))
    stage.clock.advance(UNSENT_MS - 1_000)
    assert judge(stage.store, begun, stage.clock.now_ms()) == 0
    stage.clock.advance(1_000)
    assert judge(stage.store, begun, stage.clock.now_ms()) == 1
    assert stage.store.open_operations() == []


# --- the service -------------------------------------------------------------------------------


def test_the_service_carries_out_operations_without_a_runner(stage: Stage) -> None:
    stage.hold(700)
    stage.begin(runner="")
    operating = stage.operating()
    assert operating.look() < 0.2
    assert len(stage.woken) == 1
    assert stage.metrics.render()[0].count(b"amqsidecar_operations_running 1.0") == 1
    stage.clock.advance(1_000)
    operating.look()
    assert stage.operation(1).state is OperationState.DONE
    stage.send()
    stage.clock.advance(int(COUNT_EVERY_S * 1_000))
    assert operating.look() == 1.0
    samples = stage.metrics.render()[0].decode()
    assert 'amqsidecar_operation_messages_total{action="retry"} 700.0' in samples
    stage.clock.advance(2 * MINUTE)
    operating.look()
    assert stage.store.open_operations() == []
    operating.close()


def test_the_service_leaves_to_a_command_what_it_carries_out(stage: Stage) -> None:
    stage.hold(700)
    begun = stage.begin()
    stage.turn(begun)
    operating = stage.operating()
    assert operating.look() == 1.0
    assert stage.operation(1).changed == 500
    stage.clock.advance(LEASE_MS)
    operating.look()
    assert stage.operation(1).changed == 700
    operating.close()


def test_an_operation_that_breaks_is_paused_and_the_others_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_encoding: str, _message: bytes) -> None:
        raise ValueError("broken")

    stage.hold(2)
    broken = Selection(properties=(("tenant", "ACME"),))
    stage.begin(runner="", selection=broken)
    stage.begin(runner="")
    monkeypatch.setattr("amqsidecar.operations.select.chosen_properties", lambda _: breaks)
    operating = stage.operating()
    operating.look()
    first, second = stage.operation(1), stage.operation(2)
    assert first.state is OperationState.PAUSED
    assert (
        first.state_reason
        == "an internal error of amqsidecar (ValueError); see its log (by service)"
    )
    assert (second.state, second.changed) == (OperationState.DONE, 2)
    operating.close()


def test_a_store_that_fails_ends_a_look_and_not_the_thread(stage: Stage) -> None:
    stage.hold(1)
    stage.begin(runner="")
    failures = [True]
    opens = closes = 0

    class Failing(UnsyncedStore):
        def open(self) -> StoreState:
            nonlocal opens
            opens += 1
            return super().open()

        def close(self) -> None:
            nonlocal closes
            closes += 1
            super().close()

        def open_operations(self) -> list[Operation]:
            if failures:
                failures.clear()
                raise StoreUnavailable("disk full")
            return super().open_operations()

    stage.open_schedule = lambda: opened(  # type: ignore[method-assign]
        Failing(stage.path, clock=stage.clock)
    )
    operating = stage.operating()
    with pytest.raises(StoreUnavailable):
        operating.look()
    assert opens == closes == 1
    operating.look()
    assert stage.operation(1).state is OperationState.DONE
    operating.close()


def test_a_service_reports_once_that_it_leaves_an_operation_to_a_newer_version(
    stage: Stage,
) -> None:
    stage.hold(2)
    number = stage.store.add_operation(newer_operation(needs_third=True)).id
    operating = stage.operating()
    with capture_logs() as logs:
        operating.look()
        operating.look()
    operating.close()
    assert [(one["event"], one["operation"]) for one in logs] == [("operation_left", number)]
    assert "needs_third" in logs[0]["reason"]
    assert stage.states() == {RowState.HELD: 2}
