"""The thread of one subscription: it looks, keeps what it found in the outbox, and sends.

It has a connection to the store of its own and holds no transaction while it sends, so a receiver
that hangs or a store that is away delays only its own notices.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import ConfigError, StoreError
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.operations.failures.former_groups import read_cause_groups
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import OpenSchedule, Schedule
from amqsidecar.telemetry.health import Readiness
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.webhooks.matters import (
    OwnerOf,
    WantedMatters,
    read_groups_of,
    read_oldest_of,
    read_operations_of,
    read_recoveries_of,
    read_stranded,
)
from amqsidecar.webhooks.outbox import (
    PREFIX,
    Kind,
    Matter,
    Notice,
    NoticePace,
    WebhookOutbox,
    add_test,
    collect,
    due_notice,
    pack_outbox,
    read_outbox,
    settle,
)
from amqsidecar.webhooks.sending import Address, NotDelivered, send

LOOK_S: Final = 2.0
SLOW_S: Final = 30.0
"""Between looks at what changes slowly, or costs more."""
GROUPS_S: Final = 60.0
"""Between looks at groups where nothing happened."""
SHARE: Final = 100
"""Where much happens, one part in so many of the time is spent on looks at groups."""
SEND_S: Final = 1.0
"""At least between two notices: what chats accept."""
BEAT_S: Final = 10.0
LEASE_S: Final = 40.0
"""A holder that gave no sign for so long has lost the outbox; more than a beat and a request."""
_SWAPS: Final = 5

log = structlog.get_logger("amqsidecar.webhooks")


class WebhookSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription: its matters, its address and its pace."""

    name: str
    wanted: WantedMatters
    address: Address
    pace: NoticePace


class Reporting:
    """Reports to one subscription.

    Attributes:
        worker: runs `look`.
    """

    def __init__(
        self,
        subscription: WebhookSubscription,
        *,
        open_schedule: OpenSchedule,
        clock: Clock,
        runner: str,
        is_shared: bool,
        owner_of: OwnerOf,
        readiness: Callable[[], Readiness],
        metrics: Metrics,
        crash_point: CrashPoint,
    ) -> None:
        """Prepare.

        Args:
            subscription: see there.
            open_schedule: opens the schedule.
            clock: the time.
            runner: a name that no other process has.
            is_shared: whether other processes may report to it, too.
            owner_of: the team of a destination.
            readiness: of this sidecar.
            metrics: counts notices.
            crash_point: of tests.
        """
        self._name = subscription.name
        self.worker = Worker(f"webhook_{self._name}", self.look, release=self.close)
        self._subscription = subscription
        self._kept = KeptSchedule(open_schedule)
        self._clock = clock
        self._runner = runner
        self._is_shared = is_shared
        self._owner_of = owner_of
        self._readiness = readiness
        self._metrics = metrics
        self._crash_point = crash_point
        self._key = PREFIX + self._name
        self._found: dict[Kind, list[Matter]] = {}
        self._tail = ""
        self._known = CauseGroups()
        self._groups_at_s = self._changed_at_s = self._beat_at_s = 0.0
        self._slow_at_s = clock.monotonic_s() + SLOW_S
        self._seen = ("", -1)
        self._seen_at_s = 0.0

    def look(self) -> float:
        """Report what is new, and send one notice; returns the seconds until the next look.

        If the process dies inside, a notice that is in the outbox is sent again by the next one.

        Raises:
            StoreError: the store can't be asked.
        """
        with self._kept.open() as schedule:
            before = schedule.read_value(self._key) or b""
            outbox = read_outbox(before, self._clock.now_ms())
            if not self._holds(outbox):
                return LOOK_S
            self._collect(schedule, outbox)
            notice = due_notice(outbox, self._clock.now_ms())
            after = pack_outbox(outbox)
            if after != before and not schedule.swap_value(self._key, before, after):
                return SEND_S
        self._metrics.set_webhook(self._name, len(outbox.pending), outbox.dropped)
        if notice is None:
            return LOOK_S
        self._crash_point("notice_kept")
        problem, pause_ms = self._send(notice)
        self._crash_point("notice_sent")
        with self._kept.open() as schedule:
            self._settle(schedule, notice, problem, pause_ms)
        return SEND_S

    def _holds(self, outbox: WebhookOutbox) -> bool:
        """Whether this process sends; if so, the outbox has its sign of life."""
        if not self._is_shared:
            return True
        now_s = self._clock.monotonic_s()
        if outbox.holder not in ("", self._runner):
            sign = outbox.holder, outbox.beat
            if sign != self._seen:
                self._seen, self._seen_at_s = sign, now_s
            if now_s - self._seen_at_s < LEASE_S:
                return False
        if outbox.holder != self._runner or now_s >= self._beat_at_s:
            outbox.holder, outbox.beat = self._runner, outbox.beat + 1
            self._beat_at_s = now_s + BEAT_S
        return True

    def _collect(self, schedule: Schedule, outbox: WebhookOutbox) -> None:
        """Look at what may have changed, and add notices to the outbox."""
        wanted, found = self._subscription.wanted, dict[Kind, list[Matter]]()
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        tail = schedule.tail()
        if now_s >= self._groups_at_s or (tail != self._tail and now_s >= self._changed_at_s):
            self._tail = tail
            self._groups_at_s = now_s + GROUPS_S
            self._known = read_cause_groups(schedule)
            since_ms = outbox.begun_ms
            found |= read_groups_of(schedule, self._known, since_ms, now_ms, self._owner_of)
            spent_s = self._clock.monotonic_s() - now_s
            self._changed_at_s = now_s + SHARE * spent_s
        if Kind.OPERATION in wanted.kinds:
            found[Kind.OPERATION] = read_operations_of(schedule, self._owner_of)
        if now_s >= self._slow_at_s:
            self._slow_at_s = now_s + SLOW_S
            if Kind.NOT_RECOVERING in wanted.kinds:
                recoveries = read_recoveries_of(schedule, now_ms, self._owner_of)
                found[Kind.NOT_RECOVERING] = recoveries
            if Kind.OLDEST in wanted.kinds:
                oldest = read_oldest_of(schedule, wanted.oldest_ms, now_ms, self._owner_of)
                found[Kind.OLDEST] = list(oldest)
            readiness = self._readiness()
            # Why: without a link nobody has looked for tokens.
            if readiness.link.up:
                found[Kind.STRANDED] = list(read_stranded(schedule, readiness, now_ms))
        for kind, matters in found.items():
            if kind in wanted.kinds:
                self._found[kind] = [one for one in matters if wanted.wants(one)]
        collect(outbox, self._found, self._known.find, now_ms, self._subscription.pace)

    def _send(self, notice: Notice) -> tuple[str, int | None]:
        """Return why a notice was not delivered, and the pause that the receiver wants."""
        try:
            send(self._subscription.address, notice, self._clock.now_ms())
        except NotDelivered as error:
            self._metrics.webhook_sent(self._name, is_delivered=False)
            return str(error), error.pause_ms
        except ConfigError as error:
            return str(error), None
        self._metrics.webhook_sent(self._name, is_delivered=True)
        log.info("webhook_delivered", subscription=self._name, notice=notice.id)
        return "", None

    def _settle(
        self, schedule: Schedule, notice: Notice, problem: str, pause_ms: int | None
    ) -> None:
        for _ in range(_SWAPS):
            before = schedule.read_value(self._key) or b""
            outbox = read_outbox(before, self._clock.now_ms())
            dropped = settle(outbox, notice.id, problem, self._clock.now_ms(), pause_ms)
            if schedule.swap_value(self._key, before, pack_outbox(outbox)):
                break
        if problem and not notice.attempts:
            log.warning("webhook_failed", subscription=self._name, reason=problem)
        if dropped is not None:
            log.error("webhook_dropped", subscription=self._name, notice=notice.id, reason=problem)

    def close(self) -> None:
        """Leave the outbox to others, then close the store; safe to call twice."""
        if self._is_shared and self._kept.is_open:
            try:
                with self._kept.open() as schedule:
                    before = schedule.read_value(self._key) or b""
                    outbox = read_outbox(before, self._clock.now_ms())
                    if outbox.holder == self._runner:
                        outbox.holder = ""
                        schedule.swap_value(self._key, before, pack_outbox(outbox))
            except StoreError as error:
                log.info("webhook_not_left", subscription=self._name, reason=str(error))
        self._kept.close()


def request_test(schedule: Schedule, name: str, actor: str, now_ms: int) -> bool:
    """Ask the holder of an outbox for a notice; returns False if there is no room for it."""
    for _ in range(_SWAPS):
        before = schedule.read_value(PREFIX + name) or b""
        outbox = read_outbox(before, now_ms)
        if not add_test(outbox, actor, now_ms):
            return False
        if schedule.swap_value(PREFIX + name, before, pack_outbox(outbox)):
            return True
    return False
