"""Every benchmark works, with small values; what it measures is printed by `make bench`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.dead_letters import dead_letters
from bench.lateness import bench_lateness
from bench.moving import bench_moving
from bench.stages import OWN_PROGRAM, bench_stages
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.versions import CLASSIC_5, CLASSIC_6

MAKE: dict[str, Callable[[], Broker]] = {
    "artemis": ArtemisBroker,
    "classic_5": lambda: ClassicBroker(CLASSIC_5),
    "classic_6": lambda: ClassicBroker(CLASSIC_6),
}


@pytest.fixture(
    scope="module",
    params=[
        "artemis",
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("classic_5", "classic_6")),
    ],
)
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker whose dead-letter queue holds nothing of other tests."""
    with MAKE[request.param]() as broker:
        yield broker


@pytest.mark.broker
def test_all_dead_letters_are_moved_back(own_broker: Broker, tmp_path: Path) -> None:
    """Each mover moves all there are, one after the other."""
    moving, _remarks = bench_moving(own_broker, tmp_path, count=150, rounds=1, warm_up=100)

    assert moving.sidecar > 0
    assert moving.bare_cpu_us > 0


@pytest.mark.broker
def test_stages_take_no_longer_than_the_process(own_broker: Broker, tmp_path: Path) -> None:
    wire = "core" if own_broker.kind == "artemis" else "openwire"
    with dead_letters(own_broker, "bench.stages") as dead:
        told = bench_stages(dead, tmp_path / "stages", 1_500, wire, OWN_PROGRAM)

    assert 0 < told.moved <= 1_500
    assert {"judge", "make and encode re-sends"} < told.stages_ns.keys()
    assert sum(told.stages_ns.values()) <= told.process_ns


# Why in proof: it is another measure of what is moved above.
@pytest.mark.proof
@pytest.mark.broker
def test_all_messages_of_a_steady_load_come_back(own_broker: Broker, tmp_path: Path) -> None:
    found = bench_lateness(own_broker, tmp_path, per_second=100, seconds=1, warm_up_s=1)

    assert found.per_second > 0
