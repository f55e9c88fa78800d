"""Runs cycles on a store as the engine does, without a broker, and measures each of them."""

import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

from amqsidecar.model.event import AnyEvent
from amqsidecar.store import Store, StoreTransaction
from bench.ten_million.rows import Model, Scale
from support.stores.rows import resent, scheduled, took

EVER_MS = 2**52
"""Whatever waits is due by then."""


class Spread(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(ordered[last // 2], ordered[last * 99 // 100], ordered[last])

    def __str__(self) -> str:
        return f"{self.p50:.1f}, {self.p99:.1f}, {self.max:.1f} ms"


class Found(NamedTuple):
    """What cycles cost.

    Attributes:
        claims: from asking for what is due to having it.
        claim_cpu_ms: processor time of one of them.
        commits: of the store's transaction.
        cycles: from asking for the transaction to its being durable.
        cpu_us: processor time of the cycles' thread per message taken and sent.
        written_kib: what this process wrote to files, per message taken and sent.
    """

    claims: Spread
    claim_cpu_ms: float
    commits: Spread
    cycles: Spread
    cpu_us: float
    written_kib: float
    cycle_count: int


class Cycles:
    """Takes and sends as many messages in each cycle; what waits keeps its number.

    Args:
        scale: the store.
        model: what is taken.
        batch: messages taken and sent in one cycle.
        every_s: when the next one begins, at the earliest; 0 = at once.
    """

    def __init__(self, scale: Scale, model: Model, batch: int, every_s: float = 0.0) -> None:
        self._scale = scale
        self._model = model
        self._batch = batch
        self._every_s = every_s
        self._claims: list[float] = []
        self._commits: list[float] = []
        self._cycles: list[float] = []
        self._cpu_s = 0.0
        self._claim_cpu_s = 0.0
        self._written_before = _written_bytes()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run_until_told)

    def run(self, cycles: int) -> Found:
        """Run this many, and return what they cost."""
        store = self._opened()
        for _ in range(cycles):
            self._cycle(store)
        self._close(store)
        return self.found()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def found(self) -> Found:
        """Return what the cycles cost so far."""
        count = len(self._cycles)
        return Found(
            Spread.of(self._claims),
            self._claim_cpu_s / count * 1000,
            Spread.of(self._commits),
            Spread.of(self._cycles),
            self._cpu_s / count / self._batch * 1e6,
            (_written_bytes() - self._written_before) / count / self._batch / 1024,
            count,
        )

    def _run_until_told(self) -> None:
        store = self._opened()
        pause_s = 0.0
        while not self._cycles or not self._is_over.wait(pause_s):
            began_s = time.monotonic()
            self._cycle(store)
            pause_s = max(0.0, began_s + self._every_s - time.monotonic())
        self._close(store)

    def _opened(self) -> Store:
        store = self._scale.store()
        self._before = self._number = store.reopen().cycle
        return store

    def _close(self, store: Store) -> None:
        """Finish the last cycle, and let the number be what the token in the broker says."""
        with store.transaction() as tx:
            self._finish(tx)
            tx.set_cycle(self._before)
        store.close()

    def _finish(self, tx: StoreTransaction) -> None:
        if self._number > self._before:
            tx.finish_cycle(self._number)

    def _cycle(self, store: Store) -> None:
        now_ms = int(time.time() * 1000)
        first = store.allocate_ids(self._batch)
        taken = self._model.rows(first, self._batch, now_ms)
        events: list[AnyEvent] = [event for row in taken for event in (took(row), scheduled(row))]
        cpu_s, began_s = time.thread_time(), time.perf_counter()
        with store.transaction() as tx:
            self._finish(tx)
            claiming_s, claiming_cpu_s = time.perf_counter(), time.thread_time()
            due = tx.claim_due(EVER_MS, self._batch)
            self._claim_cpu_s += time.thread_time() - claiming_cpu_s
            claimed_s = time.perf_counter()
            events += [resent(row, now_ms) for row in due]
            self._number += 1
            tx.record_cycle(self._number, taken, due, events)
            written_s = time.perf_counter()
        ended_s = time.perf_counter()
        self._cpu_s += time.thread_time() - cpu_s
        self._claims.append((claimed_s - claiming_s) * 1000)
        self._commits.append((ended_s - written_s) * 1000)
        self._cycles.append((ended_s - began_s) * 1000)


def _written_bytes() -> int:
    said = Path("/proc/self/io").read_text()
    return int(said.partition("wchar: ")[2].split()[0])
