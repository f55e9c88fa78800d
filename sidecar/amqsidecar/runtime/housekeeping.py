"""Recurring work beside the cycle: gauges of the schedule, and bounded history."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import wraps
from pathlib import Path
from threading import Event

import structlog

from amqsidecar.clock import Clock, system_wall_ms
from amqsidecar.errors import ConfigError, StoreError
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.failure import MINUTES_KEPT_MS
from amqsidecar.model.marker import ServiceMark
from amqsidecar.model.operation import UNDO_MS
from amqsidecar.model.schedule import ExhaustedTally, RowFilter, RowState
from amqsidecar.operations.clock_gap import keep_clock_gap
from amqsidecar.operations.failures.former_groups import (
    learn_cause_groups,
    move_former_rows,
    read_cause_groups,
    read_failure_groups,
)
from amqsidecar.operations.retention import Retention
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.schedule import OpenSchedule, Schedule
from amqsidecar.telemetry.metrics import Metrics

GAUGES_EVERY_S = 5.0
LEDGER_EVERY_S = 30.0
FORGET_EVERY_S = 15.0
RETENTION_EVERY_S = 60.0
FORGOTTEN_AT_ONCE = 2_000
"""Events removed in one transaction, so that a cycle never waits long for the write lock."""
LEDGER_FORGOTTEN_AT_ONCE = 500
"""Rows of each kind that one transaction removes from a ledger."""
NEW_MS = 3_600_000
"""Time for which a cause is new."""
HOURS_AFTER_MS = 2 * 24 * 3_600_000
"""Counts of failures that are older are kept by the hour."""
WORK_S = 10.0
"""Maximum duration of one run; the rest is left for the next one."""

RulesChange = Callable[[], ServiceMark | None]
"""Returns the latest change of the broker's own settings; None = there was none."""

log = structlog.get_logger("amqsidecar.housekeeping")


def no_rules_change() -> None:
    """Return that rules do not change while the service runs."""


def no_learning(_known: CauseGroups, /) -> None:
    """Ignore the cause groups of a store."""


def _with_store(
    failure: str,
) -> Callable[[Callable[["Housekeeping", Schedule], None]], Callable[["Housekeeping"], None]]:
    """Open the store for a piece of work; where it fails, log that, and do it the next time."""

    def decorate(
        work: Callable[["Housekeeping", Schedule], None],
    ) -> Callable[["Housekeeping"], None]:
        @wraps(work)
        def run(self: "Housekeeping") -> None:
            try:
                with closing(self.open_schedule()) as store:
                    work(self, store)
            except (ConfigError, OSError, StoreError) as error:
                log.warning(failure, reason=str(error))

        return run

    return decorate


class Housekeeping:
    """Opens the store for each piece of work: jobs run in threads of the clock."""

    def __init__(
        self,
        *,
        open_schedule: OpenSchedule,
        clock: Clock,
        metrics: Metrics,
        keep_ms: int,
        max_events: int,
        retention: Retention | None = None,
        folder: Path | None = None,
        rules_change: RulesChange = no_rules_change,
        learn: Callable[[CauseGroups], None] = no_learning,
        forget_outboxes: Callable[[Schedule, int], Iterable[str]] = lambda *_: (),
        sleep: Callable[[float], object] | None = None,
        wall_ms: Callable[[], int] = system_wall_ms,
        keeps_clock_gap: bool = False,
    ) -> None:
        self.open_schedule = open_schedule
        self._clock = clock
        self._metrics = metrics
        self._keep_ms = keep_ms
        self._max_events = max_events
        self._retention = retention
        self._folder = folder
        self._rules_change = rules_change
        self._learn = learn
        self._forget_outboxes = forget_outboxes
        self._kept_change: ServiceMark | None = None
        self._stopping = Event()
        self._sleep = sleep
        self._wall_ms = wall_ms
        self._keeps_clock_gap = keeps_clock_gap

    def plan(self, service_clock: ServiceClock) -> None:
        """Do the work at its times from now on, until the clock is stopped."""
        self._stopping = service_clock.stopping
        service_clock.every(GAUGES_EVERY_S, "gauges", self.show)
        service_clock.every(LEDGER_EVERY_S, "ledger_gauges", self.show_ledger)
        service_clock.every(FORGET_EVERY_S, "forgetting", self.forget)
        if self._retention is not None:
            service_clock.every(RETENTION_EVERY_S, "retention", self.announce)

    @_with_store("gauges_failed")
    def show(self, store: Schedule) -> None:
        """Show the state of the schedule, and keep that of the clock."""
        behind_ms = self._wall_ms() - self._clock.now_ms() if self._keeps_clock_gap else 0
        keep_clock_gap(store, behind_ms)
        self._metrics.set_waiting(store.tallies())
        self._metrics.set_next_due(store.next_due_ms(), self._clock.now_ms())
        self._metrics.set_value("amqsidecar_store_size_bytes", store.size_bytes())
        if self._folder is not None:
            free = shutil.disk_usage(self._folder).free
            self._metrics.set_value("amqsidecar_store_available_bytes", free)

    @_with_store("gauges_failed")
    def show_ledger(self, store: Schedule) -> None:
        """Show the number of new causes, and messages that gates delay; tend former groups."""
        now_ms = self._clock.now_ms()
        known = read_cause_groups(store)
        self._learn(learn_cause_groups(store))
        move_former_rows(store, known, now_ms)
        self._metrics.set_new_causes(_new_causes(store, known, now_ms - NEW_MS))
        self._metrics.set_gate_waiting(store.gate_tallies(now_ms))
        exhausted = store.exhausted_tallies()
        self._metrics.set_in_place(exhausted)
        self._metrics.set_oldest(_oldest(store, exhausted), now_ms)
        self._keep_rules_change(store)

    def _keep_rules_change(self, schedule: Schedule) -> None:
        change = self._rules_change()
        if change is not None and change != self._kept_change:
            schedule.add_service_mark(change)
            self._kept_change = change

    @_with_store("retention_failed")
    def announce(self, store: Schedule) -> None:
        """Announce the operations of the retention."""
        for number, reason in (
            self._retention.announce(store, self._clock.now_ms()) if self._retention else ()
        ):
            log.warning("retention_announced", operation=number, reason=reason)

    @_with_store("history_not_forgotten")
    def forget(self, store: Schedule) -> None:
        """Remove events that are too old or too many, and other expired records of a ledger."""
        now_ms = self._clock.now_ms()
        before_ms, hours_ms = now_ms - self._keep_ms, now_ms - HOURS_AFTER_MS
        ends_s = self._clock.monotonic_s() + WORK_S
        limit, part = FORGOTTEN_AT_ONCE, LEDGER_FORGOTTEN_AT_ONCE

        def forget_ledger() -> int:
            return store.forget_ledger(before_ms, hours_ms, part, now_ms - MINUTES_KEPT_MS)

        removed = self._repeat(ends_s, limit, lambda: store.forget_history(before_ms, limit))
        removed += self._repeat(ends_s, limit, lambda: store.trim_history(self._max_events, limit))
        self._repeat(ends_s, part, forget_ledger)
        # Why both clocks: commands go by the wall clock, which may have been set back.
        undo_ms = min(now_ms, self._wall_ms()) - UNDO_MS
        if not store.room().is_enough:
            # Why all: what was discarded is the first to give way.
            undo_ms = now_ms
        self._repeat(ends_s, part, lambda: store.forget_discarded(undo_ms, part))
        self._repeat(ends_s, True, store.shrink)
        if removed:
            log.info("history_forgotten", events=removed)
        for name in self._forget_outboxes(store, now_ms):
            log.info("webhook_forgotten", subscription=name)

    def _repeat(self, ends_s: float, whole: int, step: Callable[[], int]) -> int:
        """Do steps until one finds less than a whole portion; return how much it was altogether."""
        done = 0
        while True:
            began_s = self._clock.monotonic_s()
            portion = step()
            done += portion
            now_s = self._clock.monotonic_s()
            if portion < whole or now_s >= ends_s or self._stopping.is_set():
                return done
            # Why: a lock that is free for a moment only is hardly ever got by a cycle.
            (self._sleep or self._stopping.wait)(max(0.03, now_s - began_s))


def _oldest(store: Schedule, exhausted: Sequence[ExhaustedTally]) -> dict[RowState, int]:
    """Return when the oldest message of each state that waits for a person was taken."""
    found = {}
    for state in (RowState.HELD, RowState.PARKED):
        for row in store.list_rows(RowFilter(state=state), 1):
            found[state] = row.received_at_ms
    if exhausted:
        found[RowState.EXHAUSTED] = min(one.since_ms for one in exhausted)
    return found


def _new_causes(ledger: Schedule, known: CauseGroups, since_ms: int) -> Counter[str]:
    """Return how many groups began since, by destination."""
    groups = read_failure_groups(ledger, known)
    return Counter(group.destination for group in groups if group.first_at_ms > since_ms)
