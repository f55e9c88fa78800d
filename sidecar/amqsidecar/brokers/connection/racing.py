"""TCP connections opened side by side: an address that drops packets holds up no other."""

import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any, Final

_HEAD_START_S: Final = 0.5
"""How long an attempt is alone before the next one joins it.

Why: a kernel accepts at once, or repeats a lost packet after 1 s; RFC 8305 allows 0.1 to 2 s.
"""

_Opened = socket.socket | Exception


def open_socket(
    place: tuple[str, int], others: Sequence[tuple[str, int]], timeout_s: float
) -> socket.socket:
    """Return a socket that is connected to the first address of a host that accepts.

    Args:
        place: host and port.
        others: hosts and ports that may be used instead; their connections are closed at once.
        timeout_s: for each address.

    Raises:
        OSError: the host is unknown, no address of it accepts, or another host accepts first.
    """
    # Why before the race: a slow look-up of a name says nothing about the host.
    found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
    ours = [partial(_open, family, address, timeout_s) for family, *_, address in found]
    theirs = [partial(socket.create_connection, other, timeout_s) for other in others]
    failures: list[Exception] = []
    with closing(race([*ours, *theirs])) as outcomes:
        for number, outcome in outcomes:
            is_ours = number < len(ours)
            if isinstance(outcome, socket.socket):
                if is_ours:
                    return outcome
                outcome.close()
                host, port = others[number - len(ours)]
                raise TimeoutError(f"it does not answer, but {host}:{port} does")
            if is_ours:
                failures.append(outcome)
                if len(failures) == len(ours):
                    break
    raise failures[0]


def race(
    attempts: Sequence[Callable[[], socket.socket]],
) -> Generator[tuple[int, _Opened], None, None]:
    """Yield number and outcome of each attempt as they end.

    An attempt begins once another has failed, or after `_HEAD_START_S`. Closing the generator
    closes the sockets that it has not yielded; nothing was sent over them.
    """
    # Why not SimpleQueue: a wait for it may never end in CPython 3.11.
    ended: Queue[tuple[int, _Opened]] = Queue()
    lock = Lock()
    is_over = False

    def run(number: int) -> None:
        outcome: _Opened
        try:
            outcome = attempts[number]()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            outcome = error
        with lock:
            if not is_over:
                ended.put((number, outcome))
            elif isinstance(outcome, socket.socket):
                outcome.close()

    begun = yielded = 0
    try:
        while yielded < len(attempts):
            if begun < len(attempts):
                Thread(target=run, args=(begun,), daemon=True).start()
                begun += 1
            try:
                outcome = ended.get(timeout=_HEAD_START_S if begun < len(attempts) else None)
            except Empty:
                continue
            yielded += 1
            yield outcome
    finally:
        with lock:
            is_over = True
            while not ended.empty():
                _, late = ended.get()
                if isinstance(late, socket.socket):
                    late.close()


def _open(family: int, address: Any, timeout_s: float) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout_s)
        opened.connect(address)
    except BaseException:
        opened.close()
        raise
    return opened
