"""Whether a broker speaks the second wire on the port of the first one.

A broker that does not may leave the question without an answer. So it is asked by a greeting, for
which nobody waits long, and the answer is remembered. A later answer to the greeting counts, too.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost

_PATIENCE_S = 3.0
"""How long an answer is waited for. The port has just answered over the first wire."""
_AGAIN_S = 300.0
"""How long a missing answer counts."""


class Greeting(Protocol):
    """A connection on which only a greeting was sent."""

    def is_answered(self, timeout_s: float) -> bool:
        """Return whether the peer speaks the wire, within a time limit."""

    def close(self) -> None:
        """Hang up."""


class _NotGreeted:
    """There is no greeting on its way."""

    def is_answered(self, _timeout_s: float, /) -> bool:
        return False

    def close(self) -> None:
        pass


class SecondWireMemory:
    """The state of one broker's second wire, for all its links.

    Attributes:
        reason: why it does not speak the second wire; "" = it does, or was not asked.
        is_refused: it does, but not with us.
        again_at_s: when it may be asked again, monotonic.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.is_refused = False
        self.again_at_s = 0.0


class SecondWire:
    """The second wire of one link.

    Args:
        greet: connects and sends the greeting of the wire.
        place: host and port, for messages.
        clock: where the time comes from.
        memory: shared by the links to this broker.
        patience_s: how long an answer is waited for.
    """

    def __init__(
        self,
        greet: Callable[[], Greeting],
        place: str,
        clock: Clock,
        memory: SecondWireMemory,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._greet = greet
        self._place = place
        self._clock = clock
        self._memory = memory
        self._patience_s = patience_s
        self._greeting: Greeting = _NotGreeted()
        self._is_alone = False

    @property
    def reason(self) -> str:
        """Why the broker does not speak it; "" = it does, or was not asked."""
        return self._memory.reason

    def is_known_absent(self) -> bool:
        """Return whether a recent missing answer still counts, so that no question is needed."""
        self._is_alone = bool(self._memory.reason) and not self._is_due()
        return self._is_alone

    def _is_due(self) -> bool:
        return self._clock.monotonic_s() >= self._memory.again_at_s

    def ask(self) -> bool:
        """Return whether the broker speaks it; waits some seconds at most.

        Raises:
            LinkLost, BrokerRefused: it can't be asked.
        """
        self._begin()
        if self._greeting.is_answered(self._patience_s):
            self.opened()
            return True
        self._miss(
            f"{self._place} does not answer in AMQP: add AMQP to the protocols of the acceptor"
        )
        return False

    def opened(self) -> None:
        """Note that the broker speaks it."""
        self._memory.reason = ""
        self._is_alone = False
        self._end()

    def failed(self, error: BrokerError) -> None:
        """Note that it did not open."""
        self._end()
        self._miss(str(error), is_refused=isinstance(error, BrokerRefused))

    def _miss(self, reason: str, *, is_refused: bool = False) -> None:
        self._memory.reason = reason
        self._memory.is_refused = is_refused
        self._memory.again_at_s = self._clock.monotonic_s() + _AGAIN_S
        self._is_alone = True

    def why_left(self) -> str:
        """Return why messages of the second wire stay behind; "" = it reads them. Never waits.

        Raises:
            LinkLost: this link has the first wire alone, and the broker speaks the second by now.
        """
        if not self._is_alone:
            return ""
        memory = self._memory
        # Why not where we were refused: it would greet us, and refuse us again.
        if memory.reason and self._is_due() and not memory.is_refused:
            memory.again_at_s = self._clock.monotonic_s() + _AGAIN_S
            with suppress(BrokerError):
                self._begin()
        if not memory.reason or self._greeting.is_answered(0):
            self.opened()
            raise LinkLost(f"{self._place} accepts AMQP now: both wires are opened")
        return memory.reason

    def _begin(self) -> None:
        self._end()
        self._greeting = self._greet()

    def _end(self) -> None:
        greeting, self._greeting = self._greeting, _NotGreeted()
        greeting.close()
