"""Redelivers planned messages that a sidecar's schedule holds: they are made due, it sends them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Event as Flag

from amqsidecar.clock import Clock
from amqsidecar.model import row_changes
from amqsidecar.model.redrive import PlannedMessage
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.runtime.redrive.redrive import was_redriven
from amqsidecar.schedule import OpenSchedule
from amqsidecar.store import Store

NOT_IN_STORE = "not_in_store"
"""Reason: the schedule does not hold it back, or not any more."""

_ROWS_OF_ONE_MESSAGE = 100


class StoreHand:
    """The schedule of one sidecar, which may be running; see `Hand`."""

    def __init__(self, store: Store, *, plan_id: str, clock: Clock) -> None:
        """Make it; the store is open."""
        self._store = store
        self._clock = clock
        self._actor = f"redrive:{plan_id}"
        self._woken = Flag()
        self._pending: list[tuple[int, int]] = []
        self.taken = 0
        self.left: Counter[str] = Counter()

    def begin(self, batch: Sequence[PlannedMessage], began_ms: int) -> None:
        """Find the rows of a batch that were not made due in an earlier run."""
        self.taken, self.left, self._pending = 0, Counter(), []
        for message in batch:
            if was_redriven(self._store, message.redelivery_id, self._actor):
                self.taken += 1
                continue
            wanted = RowFilter(redelivery_id=message.redelivery_id)
            rows = self._store.list_rows(wanted, _ROWS_OF_ONE_MESSAGE)
            held = [row.id for row in rows if row.state is not RowState.WAITING]
            if held:
                self._pending.append((began_ms + message.offset_ms, held[0]))
            else:
                self.left[NOT_IN_STORE] += 1

    def step(self, wait_s: float) -> None:
        """Make due what is, in one action; its events are written with it."""
        now_ms = self._clock.now_ms()
        ids = tuple(row_id for due_at_ms, row_id in self._pending if due_at_ms <= now_ms)
        if ids:
            self._pending = [one for one in self._pending if one[0] > now_ms]
            changed = self._store.change(RowFilter(ids=ids), row_changes.retry(now_ms, self._actor))
            self.taken += changed
            if changed < len(ids):
                self.left[NOT_IN_STORE] += len(ids) - changed
            return
        next_due_ms = min((due_at_ms for due_at_ms, _ in self._pending), default=None)
        if next_due_ms is not None:
            wait_s = min(wait_s, (next_due_ms - now_ms) / 1000)
        self._woken.wait(wait_s)

    @property
    def is_done(self) -> bool:
        """Whether each message of the batch was made due or left."""
        return not self._pending

    def unsent(self) -> tuple[int, int]:
        """Return nothing: the sidecar that has the schedule sends them."""
        return 0, 0

    def wake(self) -> None:
        """End a running wait."""
        self._woken.set()


@contextmanager
def store_hand(open_schedule: OpenSchedule, *, plan_id: str, clock: Clock) -> Iterator[StoreHand]:
    """Open the schedule; a sidecar may be running on it.

    Raises:
        StoreUnavailable: it can't be opened.
    """
    with closing(open_schedule()) as schedule:
        yield StoreHand(schedule, plan_id=plan_id, clock=clock)
