"""Takeover of instances that are gone for good, where several sidecars share a schedule.

What an unfinished cycle took, and what it was to send, is kept from everybody until the cycle is
settled. The sidecar that began it settles it when it comes back; this does so for one that does not
come back, in the same way: by that instance's token, never by guessing.
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
from amqsidecar.store import SharedStore, Store

TOKEN_WAIT_S = 2.0
"""How long one attempt to get the token takes."""

log = structlog.get_logger("amqsidecar.takeover")


class Takeover:
    """Looks for such instances again and again, in a thread with a store and a link of its own."""

    def __init__(
        self,
        *,
        make_store: Callable[[str | None], SharedStore],
        make_link: Callable[[str], Link],
        make_engine: Callable[[TakeSession, Store], CycleEngine],
        every_s: float,
        taken_over: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            make_store: returns a store that will be this instance, or only look: None.
            make_link: returns a link for an instance.
            make_engine: returns what settles a cycle.
            every_s: time between two looks.
            taken_over: told of each instance that was settled.
        """
        self._make_store = make_store
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
        """Settle what can be settled now; the rest is left to the next look."""
        try:
            with closing(self._make_store(None)) as store:
                store.open()
                abandoned = store.abandoned()
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
                # Why: the thread would end, and nobody would look any more.
                log.exception("takeover_failed", reason="a fault of amqsidecar")

    def _settle(self, instance: str) -> None:
        """Be the instance for a moment; if the process dies inside, it is abandoned as before."""
        with closing(self._make_store(instance)) as store:
            state = store.open()
            if state.unfinished is None:
                return
            link = self._make_link(instance)
            with closing(link.take(TOKEN_QUEUE_PREFIX + instance)) as session:
                is_settled = self._make_engine(session, store).recover(state, TOKEN_WAIT_S)
        if is_settled:
            self._taken_over()
            log.info("taken_over", instance=instance, cycle=state.unfinished.cycle)
        else:
            log.warning(
                "takeover_waits",
                instance=instance,
                reason="its token is still held, by a process that hangs or by the broker for one "
                "that is gone",
            )
