"""Looks for the reason when a broker is silent for too long."""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock

_SILENCE_S = 10.0
_LINGERS_NOT = struct.pack("ii", 1, 0)


class Silence:
    """The maximum silent wait for one broker: a third of the idle timeout, at most 10 s.

    Attributes:
        ask: called when a wait was that long, and again each time after as long; it may raise.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self.ask: Callable[[], None] = ask_nobody
        self.after_s = min(_SILENCE_S, endpoint.idle_timeout_s / 3 or _SILENCE_S)
        self.clock = clock


class Patience:
    """One wait, which begins now."""

    def __init__(self, silence: Silence) -> None:
        self._silence = silence
        self.begin()

    def begin(self) -> None:
        """Restart the wait."""
        self._ends_at_s = self._silence.clock.monotonic_s() + self._silence.after_s

    def left_s(self) -> float:
        """Return how long it lasts from now on; asks and restarts when it is over."""
        left_s = self._ends_at_s - self._silence.clock.monotonic_s()
        if left_s > 0:
            return left_s
        self._silence.ask()
        self.begin()
        return self._silence.after_s


def ask_nobody() -> None:
    """Find nothing."""


def reset(connected: socket.socket) -> None:
    """Close a socket so that the peer notices at once, even if it does not read.

    Never raises.

    Why: otherwise a broker that reads nothing notices the end only when it writes, and then only
    at its second write.
    """
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGERS_NOT)
