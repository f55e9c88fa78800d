"""Recurring work beside the cycle: gauges of the schedule, and bounded history."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import structlog

from amqsidecar.clock import Clock
from amqsidecar.errors import StoreError
from amqsidecar.model.schedule import Tally
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.store import Store

GAUGES_EVERY_S = 5.0
RETENTION_EVERY_S = 60.0
FORGOTTEN_AT_ONCE = 5_000
"""Events removed in one transaction, so that a cycle never waits long for the write lock."""

log = structlog.get_logger("amqsidecar.housekeeping")


class Gauges(Protocol):
    """Where the state of the schedule is shown."""

    def set_waiting(self, tallies: Sequence[Tally]) -> None:
        """Show how many rows there are by destination and state."""
        ...

    def set_next_due(self, next_due_ms: int | None, now_ms: int) -> None:
        """Show how long the oldest row is overdue."""
        ...

    def set_store_size(self, size_bytes: int) -> None:
        """Show the space that the store takes."""
        ...


class Housekeeping:
    """Opens the store anew for each piece of work: jobs run in threads of the clock."""

    def __init__(
        self,
        *,
        make_store: Callable[[], Store],
        clock: Clock,
        gauges: Gauges,
        keep_ms: int,
        max_events: int,
    ) -> None:
        self._make_store = make_store
        self._clock = clock
        self._gauges = gauges
        self._keep_ms = keep_ms
        self._max_events = max_events

    def plan(self, service_clock: ServiceClock) -> None:
        """Do the work at its times from now on."""
        service_clock.every(GAUGES_EVERY_S, "gauges", self.show)
        service_clock.every(RETENTION_EVERY_S, "retention", self.forget)

    def show(self) -> None:
        """Show the state of the schedule."""
        try:
            with self._opened() as store:
                self._gauges.set_waiting(store.tallies())
                self._gauges.set_next_due(store.next_due_ms(), self._clock.now_ms())
                self._gauges.set_store_size(store.size_bytes())
        except StoreError as error:
            log.warning("gauges_failed", reason=str(error))

    def forget(self) -> None:
        """Remove events that are too old or too many."""
        before_ms = self._clock.now_ms() - self._keep_ms
        try:
            with self._opened() as store:
                removed = _repeat(lambda: store.forget_history(before_ms, FORGOTTEN_AT_ONCE))
                removed += _repeat(lambda: store.trim_history(self._max_events, FORGOTTEN_AT_ONCE))
                store.shrink()
        except StoreError as error:
            log.warning("retention_failed", reason=str(error))
            return
        if removed:
            log.info("history_forgotten", events=removed)

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        store = self._make_store()
        try:
            store.open()
            yield store
        finally:
            store.close()


def _repeat(step: Callable[[], int]) -> int:
    """Remove portions until one is not full; return how many events that were."""
    removed = 0
    while True:
        portion = step()
        removed += portion
        if portion < FORGOTTEN_AT_ONCE:
            return removed
