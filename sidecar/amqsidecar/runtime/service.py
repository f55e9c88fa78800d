"""The service: owns the link, reconnects, and drives the engine until `stop`."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from threading import Lock

import structlog

from amqsidecar.broker import BrokerDescription, IntakeSession, LookSession
from amqsidecar.clock import Clock, ClockStep
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost, StoreUnavailable
from amqsidecar.runtime.attempts import Attempts, describe_broker, log_link_up
from amqsidecar.runtime.intake_keeper import IntakeKeeper
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.runtime.work import OpenedLink, OpenLink, Work
from amqsidecar.telemetry.health import Health

SHORTEST_LOOK_S = 1.0
"""Minimum time between two looks for queues, however often the broker announces new queues."""

log = structlog.get_logger("amqsidecar.service")


def log_clock_step(step: ClockStep) -> None:
    """Log a step of the wall clock, and its effect on delays."""
    log.warning(
        "clock_stepped",
        set_by_s=step.by_ms / 1000,
        behind_wall_clock_s=step.behind_ms / 1000,
        meaning="waiting messages keep their delay: the schedule follows the machine's uptime and "
        "closes the gap to the wall clock by a twentieth of the time that passes",
    )


class LinkLoop:
    """Runs one link after another until `stop`; pauses after a link that failed or was lost.

    Args:
        attempts: decide the pauses, and the broker to try next.
        health: receives the state of the links.
    """

    def __init__(self, name: str, attempts: Attempts, health: Health) -> None:
        self._log = structlog.get_logger(f"amqsidecar.{name}")
        self._attempts = attempts
        self._health = health
        self._is_stopped = False
        # Why no event: its lock is not to be taken by a signal in a wait of the same thread.
        self._until_stop = Lock()
        self._until_stop.acquire()
        self._link: LookSession | None = None
        self._is_up = False
        self._logs_in_anew = False
        self._renewals = deque[str]()

    def renew(self, reason: str) -> None:
        """End the current link soon and open another; may be called from any thread."""
        self._renewals.append(reason)
        self.wake()

    def stop(self) -> None:
        """End soon; may be called from a signal handler and from any thread."""
        self._is_stopped = True
        # Why: it is free already where this is called again.
        with suppress(RuntimeError):
            self._until_stop.release()
        self.wake()

    def wake(self) -> None:
        """End a running wait of the link; may be called from any thread."""
        link = self._link
        if link is not None:
            link.wake()

    def is_stopped(self) -> bool:
        """Return whether `stop` was called."""
        return self._is_stopped

    def run(self, run_link: Callable[[], None]) -> None:
        """Call `run_link` until `stop`.

        Raises:
            BrokerRefused: a broker refused us for good when all were tried for the first time.
            ConfigError: at the first attempt a file can't be used.
        """
        is_first = True
        while not self._is_stopped:
            self._is_up = False
            try:
                run_link()
            except (LinkLost, BrokerRefused, ConfigError) as error:
                reason, pause_s = self._attempts.fault(error, was_up=self._is_up, is_first=is_first)
                self._pause(reason, pause_s)
            except StoreUnavailable as failed:
                self._health.store_failed(str(failed))
                self._pause(f"the store fails: {failed}", self._attempts.ended())
            is_first = False

    @contextmanager
    def current(self, session: LookSession) -> Iterator[None]:
        """Other threads can wake this session until the block ends; then close it."""
        self._link = session
        try:
            yield
        finally:
            self._link = None
            session.close()

    def up(self, description: BrokerDescription, **facts: str) -> None:
        """Report that the current link works."""
        is_again = self._attempts.has_been_up and not self._logs_in_anew
        self._is_up = True
        self._logs_in_anew = False
        self._attempts.up()
        self._health.link_up(describe_broker(self._attempts.current, description))
        if is_again:
            self._health.reconnected()
        log_link_up(self._attempts.current, description, **facts)

    def goes_on(self, since_s: float) -> bool:
        """Return whether to keep the link that was up then: not after `stop` or an old log-in."""
        if self._is_stopped:
            return False
        reason = self._renewals.popleft() if self._renewals else ""
        if self._attempts.login_outdated(since_s):
            reason = "a newer token exists; logging in with it"
        self._logs_in_anew = bool(reason)
        if reason:
            self._log.info("logging_in_anew", reason=reason)
        return not reason

    def _pause(self, reason: str, pause_s: float) -> None:
        self._health.link_down(reason)
        self._log.warning("link_down", reason=reason, next_attempt_s=round(pause_s, 2))
        self._until_stop.acquire(timeout=pause_s)


class Service:
    """One sidecar, one link at a time; its mode decides the work over a link.

    Attributes:
        stop, wake, renew: see `LinkLoop`; the running cycle is finished.

    Args:
        intake: keeps the queues that are read.
        attempts: to connect.
        look_at_clock: returns whether the wall clock was set.
        prefetch: 0 = the broker's default.
        max_wait_s: maximum wait of a turn; changes of the store by another process are seen
            after this.
        discovery_interval_s: how often dead-letter queues are looked for again.
        health: receives the state.
    """

    def __init__(
        self,
        *,
        open_link: OpenLink,
        intake: IntakeKeeper,
        attempts: Attempts,
        clock: Clock,
        look_at_clock: Callable[[], ClockStep],
        prefetch: int,
        max_wait_s: float,
        discovery_interval_s: float,
        health: Health,
    ) -> None:
        self._open_link = open_link
        self._intake = intake
        self._clock = clock
        self._look_at_clock = look_at_clock
        self._prefetch = prefetch
        self._max_wait_s = max_wait_s
        self._discovery_interval_s = discovery_interval_s
        self._health = health
        self._loop = LinkLoop("service", attempts, health)
        self.stop, self.wake, self.renew = self._loop.stop, self._loop.wake, self._loop.renew
        self._look_again = Flag()
        self.service_clock = ServiceClock(self.wake, clock)

    def look_again(self) -> None:
        """Look for dead-letter queues again, soon; may be called from any thread."""
        self._look_again.set()
        self.wake()

    def run(self) -> None:
        """Run until `stop`.

        Raises:
            BrokerRefused: a broker refused us for good when all were tried for the first time.
            ConfigError: at the first attempt a file can't be used.
        """
        self.service_clock.start()
        self.service_clock.every(self._discovery_interval_s, "discovery", self.look_again)
        try:
            self._loop.run(self._run_link)
        finally:
            self.service_clock.stop()

    def _run_link(self) -> None:
        self._watch_clock()
        opened = self._open_link()
        # Why here: another thread may renew the token while the instance is waited for.
        since_s = self._clock.monotonic_s()
        with self._loop.current(opened.link):
            work = opened.begin(self._loop.is_stopped, self.service_clock.wake_at)
            if work is not None:
                self._work(opened, work, since_s)

    def _work(self, opened: OpenedLink, work: Work, since_s: float) -> None:
        """Redeliver over a session until `stop`, or until its log-in is outdated."""
        link = opened.link
        self._look_for_queues(link, work)
        work.look_for_tokens()
        self._loop.up(link.description, instance=opened.instance)
        self._drive(link, work, since_s)
        work.engine.settle_up()

    def _drive(self, link: IntakeSession, work: Work, since_s: float) -> None:
        not_before_s = self._clock.monotonic_s() + SHORTEST_LOOK_S
        has_changed = False
        while self._loop.goes_on(since_s):
            work.engine.turn(self._max_wait_s)
            self._watch_clock()
            finals_changed = work.tend()
            if link.queues_changed():
                has_changed = True
            if finals_changed:
                self._look_for_queues(link, work)
            is_time = has_changed and self._clock.monotonic_s() >= not_before_s
            if self._look_again.is_set():
                self._look_again.clear()
                is_time = True
                work.look_for_tokens()
            if is_time:
                has_changed = False
                self._look_for_queues(link, work)
                not_before_s = self._clock.monotonic_s() + SHORTEST_LOOK_S

    def _watch_clock(self) -> None:
        step = self._look_at_clock()
        self._health.clock(step)
        if step.by_ms:
            log_clock_step(step)
        self.service_clock.look()

    def _look_for_queues(self, link: IntakeSession, work: Work) -> None:
        prefetch = self._prefetch or 2 * work.cycle_size
        items = self._intake.look(link, work.names, prefetch, work.queues_besides())
        work.meet(link.queues_read())
        self._health.left_behind(items)
