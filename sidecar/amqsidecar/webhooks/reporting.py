"""The thread of one subscription: it stores found matters in the outbox, and sends notices.

It has a connection to the store of its own and holds no transaction while it sends, so a receiver
that hangs or a store that is away delays only its own notices.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.webhooks.matters import LOOK_S, Matters
from amqsidecar.webhooks.outbox import (
    PREFIX,
    HolderWatch,
    WantedMatters,
    WebhookOutbox,
    add_test,
    collect,
    due_notice,
    holds,
    read_outbox,
    settle,
    write_outbox,
)
from amqsidecar.webhooks.sending import Address, NotDelivered, send

SEND_S: Final = 1.0
"""Minimum time between two notices: the rate that chats accept."""
_SWAPS: Final = 5

log = structlog.get_logger("amqsidecar.webhooks")


class Reporting:
    """Reports to one subscription; its worker runs `look`."""

    def __init__(
        self,
        name: str,
        wanted: WantedMatters,
        address: Address,
        matters: Matters,
        *,
        schedule: KeptSchedule,
        clock: Clock,
        runner: str,
        metrics: Metrics,
        crash_point: CrashPoint,
    ) -> None:
        """Prepare; `runner` is a name that no other process has, "" = no other one reports."""
        self._name = name
        self._wanted = wanted
        self._address = address
        self._matters = matters
        self._kept = schedule
        self.worker = Worker(f"webhook_{name}", self.look, release=self._kept.close)
        self._clock = clock
        self._runner = runner
        self._metrics = metrics
        self._crash_point = crash_point
        self._watch = HolderWatch()

    def look(self) -> float:
        """Report new matters, and send one notice; return the seconds until the next look.

        If the process dies inside, a notice that is in the outbox is sent again by the next one.

        Raises:
            StoreError: the store can't be asked.
        """
        now_ms = self._clock.now_ms()
        with self._kept.open() as schedule:
            outbox = change_outbox(schedule, self._name, now_ms, partial(self._collect, schedule))
        if outbox is None:
            self._metrics.set_webhook(self._name, 0, 0)
            return LOOK_S
        self._metrics.set_webhook(self._name, len(outbox.pending), outbox.dropped)
        if (notice := due_notice(outbox, self._clock.now_ms())) is None:
            return LOOK_S
        self._crash_point("notice_kept")
        problem, pause_ms = "", None
        try:
            send(self._address, notice, self._clock.now_ms())
        except NotDelivered as error:
            problem, pause_ms = str(error), error.pause_ms
        result = "failed" if problem else "delivered"
        self._metrics.add("amqsidecar_webhook_attempts_total", 1, self._name, result)
        self._crash_point("notice_sent")
        now_ms = self._clock.now_ms()
        note = partial(settle, number=notice.id, problem=problem, now_ms=now_ms, pause_ms=pause_ms)
        with self._kept.open() as schedule:
            outbox = change_outbox(schedule, self._name, now_ms, note)
        about = {"subscription": self._name, "notice": notice.id}
        if not problem:
            log.info("webhook_delivered", **about)
        elif outbox and all(one.id != notice.id for one in outbox.pending):
            log.error("webhook_dropped", reason=problem, **about)
        elif not notice.attempts:
            log.warning("webhook_failed", reason=problem, **about)
        return SEND_S

    def _collect(self, schedule: Schedule, outbox: WebhookOutbox) -> bool:
        """Add notices of found matters; return False where another process sends."""
        now_ms = self._clock.now_ms()
        is_silent = self._watch.is_silent(outbox, self._clock.monotonic_s())
        if not holds(outbox, self._runner, now_ms, is_silent=is_silent):
            return False
        found = self._matters.look(schedule)
        collect(outbox, found, self._matters.known.find, now_ms, self._wanted)
        return True


def change_outbox(
    schedule: Schedule, name: str, now_ms: int, change: Callable[[WebhookOutbox], bool]
) -> WebhookOutbox | None:
    """Change an outbox, anew where another process did meanwhile.

    Return it as it is kept; None = it was left as it is, for `change` said False.
    """
    for _ in range(_SWAPS):
        before = schedule.read_value(PREFIX + name) or b""
        outbox = read_outbox(before, now_ms)
        if not change(outbox):
            return None
        after = write_outbox(outbox)
        if after == before or schedule.swap_value(PREFIX + name, before, after):
            return outbox
    return None


def request_test(schedule: Schedule, name: str, actor: str, now_ms: int) -> bool:
    """Ask the holder of an outbox for a notice; returns False if there is no room for it."""
    add = partial(add_test, actor=actor, now_ms=now_ms)
    return change_outbox(schedule, name, now_ms, add) is not None
