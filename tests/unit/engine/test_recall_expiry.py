"""What is taken out of a final queue and goes back there lies there no longer than before."""

import random
from pathlib import Path

import pytest

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.manual import Manual
from amqsidecar.engine.recall import FinalQueues, RecallJudge
from amqsidecar.model import row_changes
from amqsidecar.model.destination import queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.schedule import RowFilter, RowState
from simulation.rules import DLQ, CountingRules
from support.stores.rows import taken_row
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

FINAL = queue("DLQ.exhausted")
NOW_MS = 1_000_000
ENCODING = "amqp/1.0"


@pytest.mark.parametrize(
    ("expires_at_ms", "left_ms"), [(0, 0), (NOW_MS + 500, 500), (NOW_MS - 500, 1)]
)
@pytest.mark.parametrize("is_known", [True, False])
def test_it_keeps_the_time_that_it_has_left(
    tmp_path: Path, expires_at_ms: int, left_ms: int, is_known: bool
) -> None:
    store = UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock())
    store.open()
    known = taken_row(1, is_final=True, state=RowState.EXHAUSTED, final_queue=str(FINAL))
    with store.transaction() as tx:
        tx.record_cycle(1, [known] if is_known else [], [], list[AnyEvent]())
        tx.finish_cycle(1)
    finals = FinalQueues()
    finals.replace([FINAL])
    send_rules = SendRules(BrokerKind.ARTEMIS, lambda one: one.name == DLQ, ".exhausted")
    inner = Judge(CountingRules(), send_rules, random.Random(1).random)
    judge = RecallJudge(
        inner, store, finals, (), Manual(), keeps_exhausted=False, holds_backlog=True
    )
    provenance = Provenance(
        origin=queue("orders"), redelivery_id=known.redelivery_id, expires_at_ms=expires_at_ms
    )
    delivery = Delivery(7, FINAL, b"message", provenance, ENCODING)
    judge.prepare([delivery])
    taken = judge.judge(delivery, "uid", 9, NOW_MS, is_backlog=False)
    assert taken.row is not None
    assert taken.row.expiration_ms == left_ms
    with store.transaction() as tx:
        tx.record_cycle(2, [taken.row], [], list[AnyEvent]())
        tx.finish_cycle(2)
    store.change(RowFilter(ids=(9,)), row_changes.give_back(NOW_MS, {9: NOW_MS}))
    with store.transaction() as tx:
        [back] = [row for row in tx.claim_due(NOW_MS, 9) if row.id == 9]
    assert (back.destination, back.is_final, back.expiration_ms) == (str(FINAL), True, left_ms)
    store.close()
