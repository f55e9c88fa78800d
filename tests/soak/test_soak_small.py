"""Nothing stays in the process of what goes through it: the short form of `make soak`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from soak.backlog import ArtemisBacklog, origin_names
from soak.watch import WatchedSidecar
from support.brokers.real import ArtemisBroker

MESSAGES = 17_000
ORIGINS = 3_000
BUSY_ORIGINS = 20
DELAY_MS = 3_000

GROWTH_MAX_MIB = 16
"""Less than the bodies of those that go through, which have 17 MiB and would come on top of what a
busy process grows by anyway: up to 12 were seen."""

GROWTH_MAX_BLOCKS = MESSAGES // 4
"""So that not even one object of every fourth message stays."""


@pytest.fixture
def broker() -> Iterator[ArtemisBroker]:
    # Why beforehand: to make a queue when a message is sent there takes several times as long.
    addresses = "".join(
        f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>'
        for name in ("DLQ", *origin_names(ORIGINS))
    )
    with ArtemisBroker(addresses=addresses) as running:
        yield running


@pytest.mark.broker
def test_what_went_through_leaves_nothing_in_memory(broker: ArtemisBroker, tmp_path: Path) -> None:
    """Every cache is filled by thousands of origins first; then messages come, wait and go."""
    with WatchedSidecar(tmp_path / "soak", broker, delay_ms=DELAY_MS) as sidecar:
        sidecar.start()
        with ArtemisBacklog(broker) as dead:
            dead.put(ORIGINS, origin_names(ORIGINS))
            dead.put(1_000, origin_names(BUSY_ORIGINS))
        sidecar.watch(lambda one: one.sent >= ORIGINS + 1_000, within_s=120, every_s=0.2)
        warm, before = sidecar.sample(), sidecar.objects()

        with ArtemisBacklog(broker) as dead:
            dead.put(MESSAGES, origin_names(BUSY_ORIGINS))
        samples = sidecar.watch(
            lambda one: one.sent >= warm.sent + MESSAGES, within_s=120, every_s=0.2
        )
        after = sidecar.objects()

    grown = (after.types - before.types).most_common(5)
    assert max(one.rss for one in samples) <= warm.rss + GROWTH_MAX_MIB
    assert after.blocks <= before.blocks + GROWTH_MAX_BLOCKS, grown
    assert sum(count for _, count in grown) <= GROWTH_MAX_BLOCKS, grown
    assert max(one.threads for one in samples) <= warm.threads + 2
    assert max(one.files for one in samples) <= warm.files + 6
