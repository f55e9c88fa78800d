"""Runs the index of messages in queues, without taking or sending any."""

from collections.abc import Callable
from typing import Final

from amqsidecar.broker import Link
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.left_behind import REFUSED
from amqsidecar.runtime.attempts import Attempts
from amqsidecar.runtime.in_place import InPlaceIndex
from amqsidecar.runtime.intake_keeper import NONE_KNOWN
from amqsidecar.runtime.service import LinkLoop
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.runtime.worker import KeptSchedule
from amqsidecar.telemetry.health import Health

INSTANCE: Final = "observer"
"""In the place of an instance's name; a broker sees it as part of the client id."""
_TURN_S: Final = 1.0


class Observer:
    """Looks until `stop`, over one link at a time; it makes nothing in the broker.

    Attributes:
        stop: see `LinkLoop`.
        service_clock: runs recurring work meanwhile.

    Args:
        make_link: returns a link for an instance.
        schedule: receives the rows; no other thread uses it.
        index: finds the rows.
        attempts: to connect.
        health: receives the state.
    """

    def __init__(
        self,
        *,
        make_link: Callable[[str], Link],
        schedule: KeptSchedule,
        index: InPlaceIndex,
        clock: Clock,
        attempts: Attempts,
        health: Health,
    ) -> None:
        self._make_link = make_link
        self._kept = schedule
        self._index = index
        self._clock = clock
        self._health = health
        self._loop = LinkLoop("observer", attempts, health)
        self.stop = self._loop.stop
        self.service_clock = ServiceClock(self._loop.wake, clock)

    def run(self) -> None:
        """Run until `stop`.

        Raises:
            BrokerRefused: a broker refused us for good when all were tried for the first time.
            ConfigError: at the first attempt a file can't be used.
        """
        self.service_clock.start()
        try:
            self._loop.run(self._run_link)
        finally:
            self.service_clock.stop()
            self._kept.close()

    def _run_link(self) -> None:
        self.service_clock.look()
        link = self._make_link(INSTANCE).look()
        with self._loop.current(link):
            is_up = False
            since_s = self._clock.monotonic_s()
            try:
                while self._loop.goes_on(since_s):
                    if not self._index.due_in_s:
                        with self._kept.open() as schedule:
                            self._index.look(schedule, link)
                        self._report_intake()
                    if not is_up:
                        self._loop.up(link.description, mode="observe: nothing is taken or sent")
                        is_up = True
                    link.wait(min(_TURN_S, self._index.due_in_s))
                    self.service_clock.look()
            finally:
                self._index.leave()

    def _report_intake(self) -> None:
        """Report the queues that are looked into.

        Raises:
            BrokerRefused: not one of them can be.
        """
        refused = {one.queue.name: one.meaning for one in self._index.left if one.reason == REFUSED}
        count = len(self._index.queues)
        if refused and len(refused) == count:
            raise BrokerRefused("; ".join(refused.values()))
        self._health.intake(count - len(refused), refused, "" if count else NONE_KNOWN)
