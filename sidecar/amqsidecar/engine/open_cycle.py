"""A cycle from its begin to the broker's answer, and how it ended."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import msgspec

from amqsidecar.broker import Delivery, Resend
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import DueRow, Recall, TakenRow
from amqsidecar.model.signal import Signal
from amqsidecar.store import StoreTransaction


class CycleEnd(msgspec.Struct, frozen=True):
    """How the broker ended a cycle.

    Attributes:
        is_committed: False = it was rolled back.
    """

    number: int
    is_committed: bool

    def write(self, tx: StoreTransaction) -> None:
        """Finish or undo the cycle in the store."""
        if self.is_committed:
            tx.finish_cycle(self.number)
        else:
            tx.undo_cycle(self.number)


class OpenCycle:
    """A cycle that the broker has not answered yet.

    Attributes:
        number: that its token carries.
        now_ms: its start; messages due by then are sent.
        started_s: its start by the monotonic clock.
        before: how the cycle before it ended, which is written with it; None = the store has it.
        store: the transaction of the store, until it is kept or given up.
        deliveries: that it takes.
        due: rows that it sends.
        immediate: messages that it takes and sends without a row (`immediate.py`).
        resends: of `sent`, in its order.
        first_id: number of the row of the first delivery.
        replaced: rows that are removed when it is finished, by the rows that replace them.
        signals: external events whose reports it takes; stored even if it is undone.
        events: recorded only with the cycle; `blocked` even if it is undone.
    """

    def __init__(self, number: int, now_ms: int, started_s: float, before: CycleEnd | None) -> None:
        self.number = number
        self.now_ms = now_ms
        self.started_s = started_s
        self.before = before
        self.store = ExitStack()
        self.deliveries: Sequence[Delivery] = ()
        self.due: list[DueRow] = []
        self.immediate: list[TakenRow] = []
        self.replaced: dict[int, int] = {}
        self.first_id = 0
        self.resends: list[Resend] = []
        self.signals: list[Signal] = []
        self.events: list[AnyEvent] = []
        self.blocked: list[AnyEvent] = []

    @property
    def does_something(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.deliveries or self.due)

    @property
    def from_place(self) -> dict[int, TakenRow]:
        """The messages that it sends out of dead-letter queues, by the numbers of their rows."""
        lies = (row for row in self.immediate if row.recall is Recall.RULES)
        return {self.replaced[row.id]: row for row in lies}

    @property
    def sent(self) -> list[DueRow | TakenRow]:
        """All that it sends."""
        return [*self.due, *self.immediate]

    def give_up(self) -> None:
        """Undo its writes in the store, which are not durable yet."""
        with suppress(_GivenUp), self.store:
            raise _GivenUp


class _GivenUp(Exception):
    """Ends a store transaction that is not to be kept."""


class RunningAhead:
    """The cycle that is begun while the broker commits the one before it.

    Its store transaction becomes durable only once the broker has committed that one.
    """

    def __init__(self) -> None:
        self._committing: OpenCycle | None = None
        self._begun: OpenCycle | None = None
        self._until_s = 0.0

    def allow_until(self, until_s: float) -> None:
        """Begin cycles ahead until then, by the monotonic clock."""
        self._until_s = until_s

    @contextmanager
    def committing(self, cycle: OpenCycle) -> Iterator[None]:
        """Set the cycle that the broker commits meanwhile."""
        self._committing = cycle
        try:
            yield
        finally:
            self._committing = None

    def before(self, now_s: float) -> OpenCycle | None:
        """Return the cycle that the broker commits; None = none may be begun beside it now."""
        return self._committing if now_s <= self._until_s else None

    def begin(self, before: OpenCycle, now_ms: int, started_s: float) -> OpenCycle:
        """Return the next cycle, as if the one before it were committed."""
        end = CycleEnd(before.number, is_committed=True)
        self._begun = OpenCycle(before.number + 1, now_ms, started_s, end)
        return self._begun

    def is_begun(self, cycle: OpenCycle) -> bool:
        """Return whether a cycle is the one that was begun ahead."""
        return cycle is self._begun

    @property
    def begun(self) -> Sequence[OpenCycle]:
        """The cycle that was begun ahead, if there is one."""
        return () if self._begun is None else (self._begun,)

    def take(self) -> OpenCycle | None:
        """Return the cycle that was begun ahead, once the one before it is committed."""
        begun, self._begun = self._begun, None
        return begun
