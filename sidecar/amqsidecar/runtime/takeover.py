"""Takeover of instances that are gone for good, where several sidecars share a schedule.

Messages of an unfinished cycle are locked until the cycle is settled. The sidecar that began it
settles it when it comes back; this does so for one that does not come back, in the same way: by
that instance's token, never by guessing.
"""

from collections.abc import Callable
from contextlib import closing

import structlog

from amqsidecar.broker import Link, TakeSession
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.errors import BrokerError, ConfigError, StoreError
from amqsidecar.runtime.worker import Worker
from amqsidecar.schedule import OpenSchedule, Schedule

TOKEN_WAIT_S = 2.0
"""How long one attempt to get the token takes."""

log = structlog.get_logger("amqsidecar.takeover")


class Takeover:
    """Looks for such instances again and again, in a thread with a store and a link of its own.

    Attributes:
        worker: runs `look`.

    Args:
        open_schedule: opens the shared schedule to look.
        open_instance: opens it as the holder of an instance.
        make_link: returns a link for an instance.
        make_engine: returns an engine that settles a cycle.
        every_s: time between two looks.
        report: takes the numbers of instances that a look settled, and that it could not.
    """

    def __init__(
        self,
        *,
        open_schedule: OpenSchedule,
        open_instance: Callable[[str], Schedule],
        make_link: Callable[[str], Link],
        make_engine: Callable[[TakeSession, Schedule], CycleEngine],
        every_s: float,
        report: Callable[[int, int], None],
    ) -> None:
        self._open_schedule = open_schedule
        self._open_instance = open_instance
        self._make_link = make_link
        self._make_engine = make_engine
        self._every_s = every_s
        self._report = report
        self.worker = Worker(
            "takeover",
            self.look,
            first_pause_s=every_s,
            retry_s=(every_s,),
            waits_for_step=True,
        )

    def look(self) -> float:
        """Settle abandoned instances where possible; return the seconds until the next look.

        Raises:
            ConfigError, StoreError: the schedule can't be opened or asked.
        """
        with closing(self._open_schedule()) as schedule:
            abandoned = schedule.abandoned()
        settled = left = 0
        for instance in abandoned:
            if self.worker.stop.is_set():
                break
            try:
                is_settled = self._settle(instance)
            except StoreError as error:
                # Why no warning: most of the time another sidecar was faster.
                log.info("takeover_left", instance=instance, reason=str(error))
                continue
            except (BrokerError, ConfigError) as error:
                log.warning("takeover_failed", instance=instance, reason=str(error))
                is_settled = False
            settled += is_settled is True
            left += is_settled is False
        self._report(settled, left)
        return self._every_s

    def _settle(self, instance: str) -> bool | None:
        """Be the instance for a moment; if the process dies inside, it is abandoned as before.

        Returns whether its cycle is settled now; None = somebody else did it.
        """
        with closing(self._open_instance(instance)) as schedule:
            state = schedule.state()
            if state.unfinished is None:
                return None
            link = self._make_link(instance)
            with closing(link.take(TOKEN_QUEUE_PREFIX + instance)) as session:
                is_settled = self._make_engine(session, schedule).recover(state, TOKEN_WAIT_S)
        if is_settled:
            log.info("taken_over", instance=instance, cycle=state.unfinished.cycle)
        else:
            log.warning(
                "takeover_waits",
                instance=instance,
                reason="its token is still held by a hanging process, or by the broker for a "
                "dead one",
            )
        return is_settled
