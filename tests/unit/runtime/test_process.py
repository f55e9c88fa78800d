"""The settings of a service's interpreter and C library."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator

import pytest

from amqsidecar.runtime.process import COLLECTED_AFTER, collect_seldom
from support.machine.processes import run_program


@pytest.fixture
def collector() -> Iterator[None]:
    """Restore the collector's settings."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Loop:
    """A reference cycle that counts those that were not freed yet."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Loop.alive += 1

    def __del__(self) -> None:
        Loop.alive -= 1


@pytest.mark.usefixtures("collector")
def test_reference_cycles_stay_bounded_where_they_are_looked_for_seldom() -> None:
    collect_seldom()
    most = 0
    for _ in range(4 * COLLECTED_AFTER):
        Loop()
        most = max(most, Loop.alive)
    assert most <= COLLECTED_AFTER + 1


CYCLES = """
import resource
from amqsidecar.runtime.process import tune_heap
tune_heap()
for cycle in range(20):
    if cycle == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytes(1_300) for _ in range(4_000)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_a_cycle_uses_the_memory_of_the_cycle_before() -> None:
    """Each would take 1,300 pages anew."""
    assert int(run_program([sys.executable, "-c", CYCLES]).stdout) < 1_300
