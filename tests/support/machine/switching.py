"""Threads that take turns as often as the interpreter lets them."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Final

THREADS: Final = 4


def run_together(act: Callable[[int], object]) -> None:
    """Call an act with each number below `THREADS`, all at once; raise the first error."""
    together, before = Barrier(THREADS), sys.getswitchinterval()

    def run(number: int) -> None:
        together.wait()
        act(number)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(run, range(THREADS)))
    finally:
        sys.setswitchinterval(before)


class OneAtATime:
    """Notes whether two threads were ever in its blocks at once.

    Attributes:
        were_two: whether they were.
    """

    def __init__(self) -> None:
        self.were_two = False
        self._inside: list[object] = []

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Stay in the block for some turns of other threads."""
        me = object()
        self._inside.append(me)
        for _ in range(50):
            self.were_two |= len(self._inside) > 1
        yield
        self._inside.remove(me)
