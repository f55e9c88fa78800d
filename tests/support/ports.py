"""Free loopback ports that stay usable while a broker is down and comes back."""

import contextlib
import random
import socket

# Why: below the range that the kernel gives to outgoing connections. A client that reconnects to a
# dead broker's port inside that range can be given the same port and end up connected to itself.
LOWEST = 15_000
HIGHEST = 31_999

_given: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on and that this process did not give yet."""
    for _ in range(1_000):
        port = random.randint(LOWEST, HIGHEST)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise RuntimeError(
        f"no free port of 127.0.0.1 between {LOWEST} and {HIGHEST}: end processes that listen there"
    )


def is_open(port: int) -> bool:
    """Say whether something on 127.0.0.1 accepts connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
