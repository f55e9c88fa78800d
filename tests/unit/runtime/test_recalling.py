"""When a queue is read whole for chosen messages that the broker does not hand over."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

import pytest

from amqsidecar.broker import Delivery, Features, IntakeQueue, IntakeSession
from amqsidecar.engine.recall import FinalQueues
from amqsidecar.errors import BrokerRefused, ManagementRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import Recall, RowState
from amqsidecar.runtime.recalling import Recalling
from support.stores.opened import opened
from support.stores.rows import taken_row
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock


class Silent:
    """A link that hands nothing over, tells nothing, and shows a chosen message by a browse."""

    def __init__(self, refused: BrokerRefused) -> None:
        self.refused = refused
        self.features = Features(choosing=self)

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        raise self.refused

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        return 1

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        assert queue.redelivery_ids
        yield cast(Delivery, None)


@pytest.mark.parametrize(
    ("refused", "is_whole"),
    [(BrokerRefused("no answer in 15 s"), False), (ManagementRefused("no right to manage"), True)],
)
def test_a_broker_that_is_only_slow_has_no_queue_read_whole(
    tmp_path: Path, refused: BrokerRefused, *, is_whole: bool
) -> None:
    clock = VirtualClock()
    store = opened(UnsyncedStore(tmp_path / "schedule.db", clock=clock))
    row = taken_row(
        1,
        state=RowState.EXHAUSTED,
        is_final=True,
        final_queue="queue://DLQ",
        recall=Recall.SEND,
        message=b"",
    )
    with store.transaction() as tx:
        tx.record_cycle(1, [row], [], list[AnyEvent]())
        tx.finish_cycle(1)
    recalling = Recalling(
        store,
        cast(IntakeSession, Silent(refused)),
        FinalQueues(),
        clock,
        final_suffix=".exhausted",
        keeps_exhausted=False,
    )
    for _ in range(5):
        recalling.tend()
        clock.advance(2_000)
    assert [not one.redelivery_ids for one in recalling.queues()] == [is_whole]
    store.close()
