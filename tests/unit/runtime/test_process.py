"""The interpreter's settings of a service."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from amqsidecar.runtime.process import COLLECTED_AFTER, collect_seldom


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
