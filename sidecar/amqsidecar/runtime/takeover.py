"""Takeover of instances that are gone for good, where several sidecars share a schedule.

Messages of an unfinished cycle are locked until the cycle is settled. The sidecar that began it
settles it when it comes back; this does so for one that does not come back, in the same way: by
that instance's token, never by guessing.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event as Flag
from threading import Thread

import structlog

from amqsidecar.broker import Link, TakeSession
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.errors import BrokerError, ConfigError, StoreError
from amqsidecar.schedule import OpenSchedule, Schedule

TOKEN_WAIT_S = 2.0
"""How long one attempt to get the token takes."""

log = structlog.get_logger("amqsidecar.takeover")


class Takeover:
    """Looks for such instances again and again, in a thread with a store and a link of its own."""

    def __init__(
        self,
        *,
        open_schedule: OpenSchedule,
        open_instance: Callable[[str], Schedule],
        make_link: Callable[[str], Link],
        make_engine: Callable[[TakeSession, Schedule], CycleEngine],
        every_s: float,
        taken_over: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            open_schedule: opens the shared schedule to look.
            open_instance: opens it as the holder of an instance.
            make_link: returns a link for an instance.
            make_engine: returns an engine that settles a cycle.
            every_s: time between two looks.
            taken_over: called with each instance that was settled.
        """
        self._open_schedule = open_schedule
        self._open_instance = open_instance
        self._make_link = make_link
        self._make_engine = make_engine
        self._every_s = every_s
        self._taken_over = taken_over
        self._stop = Flag()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look while the block runs."""
        thread = Thread(target=self._run, name="takeover")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def look(self) -> None:
        """Settle what is possible now; the next check handles the rest."""
        try:
            with closing(self._open_schedule()) as schedule:
                abandoned = schedule.abandoned()
        except (ConfigError, StoreError) as error:
            log.warning("takeover_failed", reason=str(error))
            return
        for instance in abandoned:
            if self._stop.is_set():
                return
            try:
                self._settle(instance)
            except StoreError as error:
                # Why no warning: most of the time another sidecar was faster.
                log.info("takeover_left", instance=instance, reason=str(error))
            except (BrokerError, ConfigError) as error:
                log.warning("takeover_failed", instance=instance, reason=str(error))

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.look()
            except Exception:
                # Why: otherwise the thread would end, and the takeovers with it.
                log.exception("takeover_failed", reason="a fault of amqsidecar")

    def _settle(self, instance: str) -> None:
        """Be the instance for a moment; if the process dies inside, it is abandoned as before."""
        with closing(self._open_instance(instance)) as schedule:
            state = schedule.state()
            if state.unfinished is None:
                return
            link = self._make_link(instance)
            with closing(link.take(TOKEN_QUEUE_PREFIX + instance)) as session:
                is_settled = self._make_engine(session, schedule).recover(state, TOKEN_WAIT_S)
        if is_settled:
            self._taken_over()
            log.info("taken_over", instance=instance, cycle=state.unfinished.cycle)
        else:
            log.warning(
                "takeover_waits",
                instance=instance,
                reason="its token is still held by a hanging process, or by the broker for a "
                "dead one",
            )
