"""Takes dead letters of seeded faults the way that the service takes them, and counts groups."""

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.clock import SystemClock
from amqsidecar.engine.judging.judge import Judge, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.messages.kept_message import chosen_cause
from amqsidecar.model.decision import Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.sidecar_names import PROPERTY_CAUSE
from amqsidecar.stores.sqlite.store import SqliteStore
from support.histories.faults import BARE, FAULTS, say
from support.stores.rows import take_rows

CYCLE = 1_000
START_MS = 1_800_000_000_000


class _Always:
    """Redelivers all."""

    def decide(self, _dead_letter: object, _chance: object) -> Redeliver:
        return Redeliver(3_600_000, 1, "test")


def dead_letters(count: int, seed: int) -> tuple[list[Delivery], Mapping[int, int]]:
    """Return dead letters at one queue, and how many there are of each fault.

    Every other fault is said by its consumer in a property, the others in the broker's words.
    """
    chance = random.Random(seed)
    drawn = [chance.randrange(len(FAULTS)) for _ in range(count)]
    found = []
    for number, fault in enumerate(drawn):
        is_said = fault % 2 == 1
        words = say(chance, FAULTS[fault], BARE) if is_said else say(chance, FAULTS[fault])
        headers = [(b"order", b"%d" % number)]
        if is_said:
            headers.append((PROPERTY_CAUSE.encode(), words.encode()))
        provenance = Provenance(origin=queue("orders"), cause=None if is_said else words)
        found.append(Delivery(number, queue("DLQ"), kept(headers, b"body"), provenance, ENCODING))
    return found, Counter(drawn)


def groups_of(deliveries: list[Delivery], folder: Path) -> list[int]:
    """Return how many deaths each group has, after the judge and a store have had them all."""
    judge = Judge(
        _Always(),
        SendRules(BrokerKind.CLASSIC, lambda _: False, ".exhausted"),
        lambda: 0.5,
        Readers(cause=chosen_cause([PROPERTY_CAUSE])),
    )
    store = SqliteStore(folder / "schedule.db", clock=SystemClock())
    uid = store.open().uid
    try:
        for cycle, begin in enumerate(range(0, len(deliveries), CYCLE), start=1):
            some = deliveries[begin : begin + CYCLE]
            first = store.allocate_ids(len(some))
            verdicts = [
                judge.judge(one, uid, first + at, START_MS + cycle, is_backlog=False)
                for at, one in enumerate(some)
            ]
            rows = [verdict.row for verdict in verdicts if verdict.row is not None]
            events = [event for verdict in verdicts for event in verdict.events]
            take_rows(store, cycle, rows, events)
        return [group.total for group in store.failure_groups(0, 1_000)]
    finally:
        store.close()
