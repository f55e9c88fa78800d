"""Wakes a thread that waits for a broker."""

import socket
from contextlib import suppress


class Waker:
    """Ends a `select` of another thread."""

    def __init__(self) -> None:
        self._sender, self.receiver = socket.socketpair()
        self._sender.setblocking(False)
        self.receiver.setblocking(False)

    def wake(self) -> None:
        """Make the receiver readable; for any thread, never raises."""
        with suppress(OSError):
            self._sender.send(b"\0")

    def reset(self) -> None:
        """Make the receiver unreadable."""
        with suppress(OSError):
            self.receiver.recv(4096)

    def close(self) -> None:
        """Close both ends; safe to call twice."""
        self._sender.close()
        self.receiver.close()
