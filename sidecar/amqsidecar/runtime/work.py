"""The contract between the service's loop and its modes: the work over one open link."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from amqsidecar.broker import IntakeQueue, IntakeSession, LookSession
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.cycle_events import CycleObserver
from amqsidecar.engine.engine import Engine
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.model.destination import Destination

MAX_MESSAGES = 1000
"""Of one cycle, unless the link or the operator says otherwise."""

MakeJudge = Callable[[LookSession, IntakeNames], Judge]
"""Makes the judge of an open link: its rules may come from the live broker."""


class EngineParts(NamedTuple):
    """The inputs of every engine of a service.

    Attributes:
        observe: hears of each cycle.
        max_messages: of one cycle; 0 = by broker.
    """

    clock: Clock
    observe: CycleObserver
    crash_point: CrashPoint
    max_messages: int

    def cycle_size(self, link: LookSession) -> int:
        """Return the maximum number of messages of one cycle over a link."""
        return self.max_messages or link.features.preferred_batch or MAX_MESSAGES


class Work(Protocol):
    """Redelivery over one session that is ours."""

    @property
    def engine(self) -> Engine:
        """Runs the cycles."""
        ...

    @property
    def names(self) -> IntakeNames:
        """The queues that the link reads; updated at each look for queues."""
        ...

    @property
    def cycle_size(self) -> int:
        """Maximum messages of one cycle."""
        ...

    def queues_besides(self) -> Sequence[IntakeQueue]:
        """Return the final dead-letter queues to read now, and the queues of notes and reports."""
        ...

    def meet(self, queues: Sequence[Destination]) -> None:
        """Take note of the queues that the link reads from now on."""
        ...

    def look_for_tokens(self) -> None:
        """Look for tokens of other schedules and report them."""
        ...

    def tend(self) -> bool:
        """Do due work between two turns; return whether `queues_besides` has changed.

        Raises:
            LinkLost: the connection is gone.
            StoreUnavailable: the store fails, or another process has taken the instance over.
        """
        ...


class OpenedLink(NamedTuple):
    """A session that was just opened.

    Attributes:
        instance: name of the instance that it was opened for.
        link: the session; its opener closes it.
        begin: waits until the instance is ours. Called with whether to stop waiting, and with the
            receiver of the time when the next message is due. None = stopped before.
    """

    instance: str
    link: IntakeSession
    begin: Callable[[Callable[[], bool], Callable[[int], None]], Work | None]


OpenLink = Callable[[], OpenedLink]
"""Opens a link to the current broker.

Raises LinkLost, BrokerRefused, ConfigError, StoreUnavailable.
"""
