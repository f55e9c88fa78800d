"""What the SQLite store costs per message and stage.

Run it in `tests` with `python -m bench.bench_sqlite_store`.

Prints a table: microseconds per message for cycles that take and send as many messages, each
durable with a sync, and milliseconds per claim with more and more waiting. Nothing is asserted.
"""

import argparse
import contextlib
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from amqsidecar.clock import SystemClock
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import failure_cause
from amqsidecar.model.schedule import RowFilter, TakenRow
from amqsidecar.store import Store, StoreTransaction
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import resent, scheduled, taken_row, took

FAR_MS = 10_000_000
WARM_UP_CYCLES = 6  # PostgreSQL plans a statement for good after some uses.
CAUSE = (
    "java.lang.Throwable: Exceeded redelivery policy limit:RedeliveryPolicy {destination = null, "
    "maximumRedeliveries = 6}, cause:java.lang.IllegalStateException: order refused"
)


class Stages:
    """Sums of time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


def rows_from(
    first: int, count: int, due_at_ms: Callable[[int], int], body: bytes
) -> list[TakenRow]:
    return [
        taken_row(
            row_id,
            due_at_ms=due_at_ms(row_id),
            destination=f"queue://orders.{row_id % 20}",
            redelivery_id=f"3f2a9c01-{row_id:012d}",
            cause=CAUSE,
            cause_group=failure_cause(CAUSE, expired=False),
            message_id=f"ID:host-41523-1718000000000-1:1:1:1:{row_id}",
            message=body,
        )
        for row_id in range(first, first + count)
    ]


def events_of(taken: Sequence[TakenRow]) -> list[AnyEvent]:
    return [event for row in taken for event in (took(row), scheduled(row))]


def cycle(
    store: Store, number: int, batch: int, body: bytes, stages: Stages, is_owed: bool = True
) -> None:
    """Finish the last cycle, claim what it took, take as many new ones."""
    measure = stages.measure
    with measure("allocate"):
        first = store.allocate_ids(batch)
    taken = rows_from(first, batch, lambda _row_id: 1, body)
    events = events_of(taken)
    with measure("begin"):
        block = contextlib.ExitStack()
        tx: StoreTransaction = block.enter_context(store.transaction())
    with measure("finish"):
        if is_owed:
            tx.finish_cycle(number - 1)
    with measure("claim"):
        sent = tx.claim_due(FAR_MS // 2, batch)
    events += [resent(row) for row in sent]
    with measure("record"):
        tx.record_cycle(number, taken, sent, events)
    with measure("commit"):
        block.close()


def bench_cycles(store: Store, batch: int, cycles: int, waiting: int, body: bytes) -> None:
    store.reopen()
    number = fill(store, waiting, body)
    warm_up = Stages()
    for is_owed in (False, *[True] * WARM_UP_CYCLES):
        number += 1
        cycle(store, number, batch, body, warm_up, is_owed)
    stages = Stages()
    for _ in range(cycles):
        number += 1
        cycle(store, number, batch, body, stages)
    per_message = {
        stage: seconds / cycles / batch * 1e6 for stage, seconds in stages.seconds.items()
    }
    columns = "  ".join(f"{stage} {micros:6.2f}" for stage, micros in per_message.items())
    print(
        f"{batch:>6} per cycle, {waiting:>9} waiting:  {columns}  "
        f"all {sum(per_message.values()):6.2f} µs per message"
    )
    store.close()


def fill(store: Store, waiting: int, body: bytes) -> int:
    """Fill the store with this many waiting messages; return the last finished cycle."""
    number = store.reopen().cycle
    left = waiting
    while left:
        count = min(left, 5_000)
        left -= count
        number += 1
        first = store.allocate_ids(count)
        rows = rows_from(first, count, lambda row_id: FAR_MS + row_id * 7919 % FAR_MS, body)
        with store.transaction() as tx:
            tx.record_cycle(number, rows, [], [])
            tx.finish_cycle(number)
    return number


def bench_claims(store: Store, waiting: Sequence[int], body: bytes) -> None:
    store.reopen()
    filled = 0
    for count in waiting:
        fill(store, count - filled, body)
        filled = count
        print(f"{count:>9} waiting:  {bench_reads(store)}")


def bench_reads(store: Store) -> str:
    def claim(limit: int) -> Any:
        with store.transaction() as tx:
            return tx.claim_due(3 * FAR_MS, limit)

    reads: dict[str, Callable[[], Any]] = {
        "claim 100": functools.partial(claim, 100),
        "claim 1000": functools.partial(claim, 1_000),
        "next due": store.next_due_ms,
        "tallies": store.tallies,
    }
    columns = []
    for name, read in reads.items():
        millis = []
        for _ in range(50):
            began = time.perf_counter()
            read()
            millis.append((time.perf_counter() - began) * 1e3)
        columns.append(f"{name} {statistics.median(millis):7.3f} ms (worst {max(millis):.3f})")
    return "  ".join(columns) + f"  {store.size_bytes() / 2**20:.0f} MiB"


def bench_actions(store: Store, rows: int, body: bytes) -> None:
    store.reopen()
    fill(store, rows, body)
    for name, act in {
        "hold": row_changes.hold(FAR_MS, "bench"),
        "release": row_changes.release(FAR_MS, "bench"),
        "retry": row_changes.retry(FAR_MS, "bench"),
    }.items():
        began = time.perf_counter()
        changed = store.change(RowFilter(), act)
        seconds = time.perf_counter() - began
        print(
            f"{name:>9} {changed} rows: {seconds:.2f} s, {seconds / changed * 1e6:.1f} µs per row"
        )
    store.close()


def bench_all(
    make: Callable[[str], Store], cycles: int, waiting: Sequence[int], body: bytes
) -> Store:
    """Measure everything; returns the open store in which the most messages wait."""
    for batch in (1, 10, 100, 1_000):
        bench_cycles(make(f"cycles_{batch}"), batch, cycles, 0, body)
    bench_cycles(make("cycles_among_many"), 1_000, cycles, 100_000, body)
    bench_actions(make("actions"), 20_000, body)
    store = make("claims")
    bench_claims(store, waiting, body)
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--waiting", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--size", type=int, default=1024, help="bytes per message")
    options = parser.parse_args()
    body = os.urandom(options.size)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        bench_all(
            lambda what: SqliteStore(Path(name, f"{what}.db"), clock=SystemClock()),
            options.cycles,
            options.waiting,
            body,
        )


if __name__ == "__main__":
    main()
