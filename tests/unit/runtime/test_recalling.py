"""When a queue is read whole for chosen messages that the broker does not hand over."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

import pytest

from amqsidecar.broker import Delivery, Features, IntakeQueue, IntakeSession
from amqsidecar.engine.recall import FinalQueues
from amqsidecar.errors import BrokerRefused, ManagementRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import Recall, RowFilter, RowState
from amqsidecar.runtime.recalling import Recalling
from support.stores.newer import newer_operation
from support.stores.opened import opened
from support.stores.rows import take_rows, taken_row
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock


class Silent:
    """A link that hands nothing over, tells nothing, and shows a chosen message by a browse."""

    def __init__(self, refused: BrokerRefused | None = None) -> None:
        self.refused = refused
        self.features = Features(choosing=None if refused is None else self)
        self.held = 1

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        assert self.refused is not None
        raise self.refused

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        return self.held

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        assert queue.redelivery_ids
        yield cast(Delivery, None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UnsyncedStore]:
    """A schedule that wants one message out of a queue."""
    made = opened(UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock()))
    row = taken_row(
        1,
        state=RowState.EXHAUSTED,
        is_final=True,
        final_queue="queue://DLQ",
        recall=Recall.SEND,
        message=b"",
    )
    take_rows(made, 1, [row])
    yield made
    made.close()


def recalling_over(link: Silent, store: UnsyncedStore, clock: VirtualClock) -> Recalling:
    session = cast(IntakeSession, link)
    finals = FinalQueues()
    return Recalling(
        store, session, finals, clock, final_suffix=".exhausted", keeps_exhausted=False
    )


@pytest.mark.parametrize(
    ("refused", "is_whole"),
    [(BrokerRefused("no answer in 15 s"), False), (ManagementRefused("no right to manage"), True)],
)
def test_a_broker_that_is_only_slow_has_no_queue_read_whole(
    store: UnsyncedStore, refused: BrokerRefused, *, is_whole: bool
) -> None:
    clock = VirtualClock()
    recalling = recalling_over(Silent(refused), store, clock)
    for _ in range(5):
        recalling.tend()
        clock.advance(2_000)
    assert [not one.redelivery_ids for one in recalling.queues()] == [is_whole]


@pytest.mark.parametrize(("held", "at_last_ms"), [(0, 200), (1, 2_000)])
def test_a_queue_is_read_whole_until_it_is_empty_or_nothing_has_come_for_long(
    store: UnsyncedStore, held: int, at_last_ms: int
) -> None:
    """The rest of a broker that stands for a second must not go ahead of what is put back."""
    clock, link = VirtualClock(), Silent()
    recalling = recalling_over(link, store, clock)

    def is_read_after(wait_ms: int) -> bool:
        clock.advance(wait_ms)
        recalling.tend()
        return bool(recalling.queues())

    assert is_read_after(0)
    with store.transaction() as tx:
        tx.remove([1])
    assert is_read_after(2_000)
    assert is_read_after(6_000)
    link.held = held
    assert not is_read_after(at_last_ms)


def test_messages_that_a_newer_version_discards_are_left_to_it(tmp_path: Path) -> None:
    """It may want more than this version can read, such as a file of them."""
    store = opened(UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock()))
    discard = newer_operation(action=Action.DISCARD, needs_third=True)
    kept, gone = store.add_operation(discard), store.add_operation(newer_operation())
    rows = [
        taken_row(
            number,
            state=RowState.EXHAUSTED,
            recall=Recall.DROP,
            recall_operation=operation.id,
            final_queue="queue://DLQ",
        )
        for number, operation in ((1, kept), (2, gone))
    ]
    take_rows(store, 1, rows)
    recalling_over(Silent(), store, VirtualClock()).tend()
    assert [row.id for row in store.list_rows(RowFilter(), 9)] == [1]
    store.close()
