"""What goes wrong in a simulated history, and how likely each fault is; one seed decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.schedule import DueRow, RowFilter, TakenRow
from amqsidecar.store import Store, StoreTransaction
from support.stores.memory import MemoryStore
from support.virtual_clock import VirtualClock

KINDS = (
    "kill",  # the process dies here
    "vanish",  # the process dies here with its host: the broker doesn't notice
    "cut",  # the link ends, and both sides notice
    "half_open",  # the link ends, and the broker doesn't notice: it may still get a request
    "restart",  # of the broker, which hands out again what was not settled
    "go_down",  # the same, and it takes a while until anybody can connect
    "reorder",  # the same, and queues come back in another order
    "set_clock",  # ahead or back
    "stop",  # the process is stopped while the world goes on, and wakes up again
    "slow",  # it takes long
    "operate",  # a person holds, releases, retries or cancels at this moment
)
STORE_KINDS = (
    "store_fails",  # a write fails: the disk is full
    "store_fails_late",  # a write fails, and is there nevertheless
    "store_is_slow",  # a write waits for the disk, or for another process
)
BROKER_KINDS = ("refuse_send", "end_link", "refuse_commit", "block", "hold_up", "purge_token")


class Faults:
    """Which faults a history has: some kinds, not all, so that each seed stresses something."""

    def __init__(
        self, chance: random.Random, clock: VirtualClock, *, may_purge: bool, hold_up: float
    ) -> None:
        self.chance = chance
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.died_at: Counter[str] = Counter()
        self.is_on = True
        rate = chance.choice([0.004, 0.015, 0.04])
        chosen = [kind for kind in KINDS if chance.random() < 0.45]
        self._chosen = chosen or [chance.choice(KINDS)]
        self._rate = rate * len(self._chosen) / 2
        self._store_rate = chance.choice([0.0, 0.0, 0.03])
        self._slow_rate = chance.choice([0.0, 0.0, 0.1])
        self.refuse_send = chance.choice([0.0, 0.0, 0.05, 0.2])
        self.refuse_commit = chance.choice([0.0, 0.0, 0.0, 0.1])
        self.end_link = chance.choice([0.0, 0.0, 0.0, 0.05])
        self.block = chance.choice([0.0, 0.0, 0.1])
        self.hold_up = hold_up
        purge_token = chance.choice([0.0, 0.0, 0.05])
        self.purge_token = purge_token if may_purge else 0.0

    def pick(self) -> str | None:
        """Return what goes wrong at this step; None = nothing."""
        if not self.is_on or self.chance.random() >= self._rate:
            return None
        kind = self.chance.choice(self._chosen)
        self.counts[kind] += 1
        return kind

    def happens(self, kind: str, rate: float) -> bool:
        """Return whether a fault of this kind happens now."""
        if not self.is_on or not rate or self.chance.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def fail_store(self, kind: str) -> None:
        """Make a write fail, perhaps."""
        if self.happens(kind, self._store_rate):
            raise StoreUnavailable(f"simulated: {kind}")

    def slow_store(self) -> None:
        """Delay a write, perhaps."""
        if self.happens("store_is_slow", self._slow_rate):
            self.clock.advance(self.chance.choice([5, 300, 2_000]))


def cycle_in_flight(store: Store) -> set[str]:
    """Return the messages of the unfinished cycle; of a real store only those it sends."""
    if not isinstance(store, MemoryStore):
        rows = [row for row in store.list_rows(RowFilter(), 1_000) if row.in_flight]
        return {(store.message(row.id) or b"").decode() for row in rows}
    contents = store.medium.contents
    if contents is None or contents.begun is None:
        return set()
    begun = contents.begun
    # Why not all: what is sent at once was never written.
    sent = [contents.rows[one].message for one in begun.sent if one in contents.rows]
    return {one.decode() for one in (*sent, *(row.message for row in begun.taken.values()))}


class FaultyStore:
    """A store whose writes can fail, and whose process can die before and after they are durable.

    There is nothing in between: that a torn write leaves nothing is SQLite's promise, which
    `end_to_end/crashes/test_sqlite_store_kill.py` proves on the real file.
    """

    def __init__(
        self,
        store: Store,
        faults: Faults,
        step: Callable[[str], None],
        doubt: Callable[[set[str]], None],
        messages: dict[int, set[str]],
    ) -> None:
        """Wrap a store.

        Args:
            store: that does the work.
            faults: that may happen.
            step: called at each step.
            doubt: called with the messages of a cycle in doubt.
            messages: receives those of each cycle, by its number; outlives processes.
        """
        self.inner = store
        self._faults = faults
        self._step = step
        self._doubt = doubt
        self._messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        self._step("writing")
        self._faults.slow_store()
        doubted: set[str] = set()
        with self.inner.transaction() as tx:
            settle, record_cycle = tx.settle_in_doubt, tx.record_cycle

            def settle_in_doubt(cycle: int) -> None:
                doubted.update(self._messages[cycle])
                settle(cycle)

            def remember(
                cycle: int,
                taken: Sequence[TakenRow],
                sent: Sequence[DueRow | TakenRow],
                *others: Any,
            ) -> None:
                record_cycle(cycle, taken, sent, *others)
                # Why added: this attempt may not become durable where an earlier one was.
                names = self._messages.setdefault(cycle, set())
                names.update(row.message.decode() for row in (*taken, *sent))

            tx.settle_in_doubt = settle_in_doubt  # type: ignore[method-assign]
            tx.record_cycle = remember  # type: ignore[method-assign,assignment]
            yield tx
            self._step("written, not durable")
            self._faults.fail_store("store_fails")
        self._doubt(doubted)
        self._step("durable")
        self._faults.fail_store("store_fails_late")
