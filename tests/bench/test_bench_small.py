"""Every benchmark works, with small values; what it measures is printed by `make bench`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.dead_letters import dead_letters
from bench.decisions import KINDS, bench_decisions
from bench.incident import bench_incident, incident_broker
from bench.lateness import bench_lateness
from bench.moving import bench_moving
from bench.proxying import bench_proxying
from bench.stages import OWN_PROGRAM, bench_stages
from bench.whole_cycle import bench_plugin, bench_sidecar, plugin_broker
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.versions import ARTEMIS, CLASSIC_5, CLASSIC_6

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


@pytest.mark.proof
@pytest.mark.broker
def test_all_messages_of_a_steady_load_come_back(own_broker: Broker, tmp_path: Path) -> None:
    found = bench_lateness(own_broker, tmp_path, per_second=100, seconds=1, warm_up_s=1)

    assert found.per_second > 0


@pytest.mark.proof
@pytest.mark.broker
@pytest.mark.parametrize("own_broker", ["classic_5", "classic_6"], indirect=True)
def test_all_rejected_messages_come_back(own_broker: Broker, tmp_path: Path) -> None:
    """Through the sidecar, and through the plugin where there is one."""
    ours = bench_sidecar(own_broker, tmp_path, 200)
    assert ours.whole > 0
    if own_broker.version == CLASSIC_6:
        with plugin_broker(own_broker.version) as broker:
            assert bench_plugin(broker, 200).whole > 0


@pytest.mark.proof
@pytest.mark.broker
@pytest.mark.parametrize(("version", "is_classic"), [(ARTEMIS, False), (CLASSIC_6, True)])
@pytest.mark.parametrize("by_broker_ms", [0, 1_000])
def test_all_messages_of_an_incident_come_back(
    version: str, is_classic: bool, by_broker_ms: int, tmp_path: Path
) -> None:
    """Through the sidecar, and by the broker alone."""
    with incident_broker(version, by_broker_ms, is_classic=is_classic) as broker:
        late = bench_incident(broker, 80, 1_000, None if by_broker_ms else tmp_path)
    assert -1_000 < late.p50 <= late.max


@pytest.mark.parametrize("kind", KINDS)
def test_all_cases_are_decided(kind: str, tmp_path: Path) -> None:
    assert bench_decisions(tmp_path, kind, rules=20, cases=500).batch_s > 0


def test_the_listener_is_measured_beside_a_direct_connection(tmp_path: Path) -> None:
    found = bench_proxying(tmp_path, requests=20, messages=100, large=2, rounds=1)
    assert {"direct", "listener"} <= found.keys()
    assert all(value > 0 for one in found.values() for value in one)
