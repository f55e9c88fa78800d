"""Free loopback ports that stay usable while a broker is down and comes back."""

import fcntl
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from support.maven import cache_root

# Why: below the range that the kernel gives to outgoing connections. A client that reconnects to a
# dead broker's port inside that range can be given the same port and end up connected to itself.
LOWEST = 15_000
HIGHEST = 31_999

# Why not the shared one: Hypothesis gives that the same seed in each process.
_chance = random.SystemRandom()
_given: set[int] = set()
# Why in the cache: who looks for what a test left behind looks into its temporary folder.
_reservations = (cache_root() / "reserved-ports").open("ab")


def free_port() -> int:
    """Return a free port that no living test process was given before."""
    for _ in range(1_000):
        port = _chance.randint(LOWEST, HIGHEST)
        if port not in _given and _is_reserved(port) and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(
        f"no free port between {LOWEST} and {HIGHEST}: end processes that listen there"
    )


def _is_reserved(port: int) -> bool:
    """Reserve a port until this process ends in any way; return whether it is ours now.

    Why: a broker listens seconds after it was given its ports, and not while it is down.
    """
    try:
        # Why a lock on one byte: one file, and the kernel frees it with the process.
        fcntl.lockf(_reservations, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Why all addresses: a listener on any of them counts.
        probe.bind(("", port))
        return True
    return False


def is_open(port: int) -> bool:
    """Say whether something on 127.0.0.1 accepts connections at the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose packets are dropped, as by the network once a host has gone.

    Its backlog is full.
    """
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(listening.getsockname())
        yield int(listening.getsockname()[1])
