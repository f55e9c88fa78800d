"""Runs operations in the service, and follows their messages.

A command runs its own operation while it lives; the console leaves that to the service. When a
process dies, the next one continues from the state in the store.
"""

from collections.abc import Callable
from typing import Final

import structlog

from amqsidecar.clock import Clock
from amqsidecar.errors import SidecarError, StoreError
from amqsidecar.model.operation import SENDS, Operation, OperationState, is_working, left_to_newer
from amqsidecar.model.row_changes import Exhausting
from amqsidecar.model.signal import REMEMBERED_MS
from amqsidecar.operations.follow import follow, judge
from amqsidecar.operations.markers import end_waits
from amqsidecar.operations.operate import carry_out, leave, pause
from amqsidecar.operations.retention import announced
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.metrics import Metrics

LOOK_EVERY_S: Final = 1.0
COUNT_EVERY_S: Final = 5.0
ALL_WAITS_EVERY_S: Final = 30.0
RECENT_MS: Final = 60_000

_COUNTED = 50

log = structlog.get_logger("amqsidecar.operations")


class Operating:
    """Carries out, follows and judges operations in a thread with a store of its own.

    Attributes:
        worker: runs `look`; operations that are under way go on after the next start.

    Args:
        schedule: no other thread uses it.
        suffix: of final dead-letter queues.
        runner: a name that no other process has.
        wake: called when rows may have become due.
        metrics: shows and counts operations.
        exhausting: see `end_wait`.
    """

    def __init__(
        self,
        *,
        schedule: KeptSchedule,
        clock: Clock,
        suffix: str,
        runner: str,
        wake: Callable[[], None],
        metrics: Metrics,
        exhausting: Exhausting | None = None,
    ) -> None:
        self.worker = Worker("operations", self.look, release=self.close)
        self._stop = self.worker.stop
        self._kept = schedule
        self._clock = clock
        self._suffix = suffix
        self._runner = runner
        self._wake = wake
        self._metrics = metrics
        self._exhausting = exhausting
        self._all_waits_at_s = clock.monotonic_s()
        self._judge_at_s = self._count_at_s = clock.monotonic_s()
        self._counted: dict[int, tuple[int, int]] | None = None
        self._left = set[int]()

    def look(self) -> float:
        """Do one turn of each operation; returns after how many seconds there is more to do.

        Raises:
            StoreError: the store can't be asked.
        """
        with self._kept.open() as store:
            return self._look(store)

    def close(self) -> None:
        """Release the operations of this runner, then close the store; safe to call twice."""
        if not self._kept.is_open:
            return
        try:
            with self._kept.open() as store:
                for operation in store.open_operations():
                    leave(store, operation.id, self._runner)
        except StoreError as error:
            log.warning("operations_failed", reason=str(error))
        self._kept.close()

    def _look(self, store: Schedule) -> float:
        now_s = self._clock.monotonic_s()
        found = store.open_operations()
        working, due = sum(map(is_working, found)), announced(found, self._clock.now_ms())
        self._metrics.set_value("amqsidecar_operations_running", working)
        self._metrics.set_value("amqsidecar_retention_announced", due)
        if now_s >= self._count_at_s:
            self._count_at_s = now_s + COUNT_EVERY_S
            self._count(store)
        pause_s = self._end_waits(store, now_s)
        for operation in found:
            if (why := left_to_newer(operation)) and operation.id not in self._left:
                self._left.add(operation.id)
                log.warning("operation_left", operation=operation.id, reason=why)
            if is_working(operation) and not self._stop.is_set():
                pause_s = min(pause_s, self._turn(store, operation))
        if now_s >= self._judge_at_s and not self._stop.is_set():
            self._judge_at_s = now_s + LOOK_EVERY_S
            self._judge(store, [one for one in found if one.action in SENDS])
        return pause_s

    def _end_waits(self, store: Schedule, now_s: float) -> float:
        """End waits by events of the last minute, and now and then by all that are remembered.

        Returns:
            The seconds until there is more to do.
        """
        now_ms, is_all = self._clock.now_ms(), now_s >= self._all_waits_at_s
        count = end_waits(store, 0 if is_all else now_ms - RECENT_MS, now_ms, self._exhausting)
        if count:
            self._wake()
            return 0.0
        if is_all:
            self._all_waits_at_s = now_s + ALL_WAITS_EVERY_S
            # Why not sooner: a message of a cycle that has not ended is left until then.
            store.forget_signals(now_ms, REMEMBERED_MS + RECENT_MS)
        return LOOK_EVERY_S

    def _turn(self, store: Schedule, operation: Operation) -> float:
        try:
            turn = carry_out(store, operation.id, self._runner, self._suffix, self._clock.now_ms)
        except SidecarError:
            raise
        except Exception as error:
            # Why paused: the others go on, and people see it.
            reason = f"an internal error of amqsidecar ({type(error).__name__}); see its log"
            log.exception("operation_failed", operation=operation.id, reason=reason)
            pause(store, operation.id, self._clock.now_ms(), "service", reason)
            return LOOK_EVERY_S
        if turn.changed:
            self._wake()
        after = turn.operation
        if not is_working(after):
            log.info(
                "operation_ended",
                operation=after.id,
                action=after.action,
                state=after.state,
                changed=after.changed,
                reason=after.state_reason,
            )
        if turn.next_at_ms is None:
            return LOOK_EVERY_S
        return max(0.0, (turn.next_at_ms - self._clock.now_ms()) / 1000)

    def _judge(self, store: Schedule, operations: list[Operation]) -> None:
        if operations and follow(store):
            for operation in operations:
                judge(store, operation, self._clock.now_ms())

    def _count(self, store: Schedule) -> None:
        """Count operations' changes since the last call, and operations stopped by themselves."""
        now = {one.id: one for one in store.operations(_COUNTED)}
        stopped = [one for one in now.values() if one.state is OperationState.STOPPED]
        self._metrics.set_value("amqsidecar_operations_stopped", len(stopped))
        counts = {number: (one.changed, one.came_back) for number, one in now.items()}
        if self._counted is not None:
            for number, (changed, came_back) in counts.items():
                before = self._counted.get(number, (0, 0))
                self._metrics.operations_changed(
                    now[number].action, changed - before[0], came_back - before[1]
                )
        self._counted = counts
