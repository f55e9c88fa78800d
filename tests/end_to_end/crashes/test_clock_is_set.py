"""A real sidecar whose wall clock is set back while messages wait."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.links.artemis_pair import PairOfCoreHarness
from support.links.harness import LinkHarness
from support.links.openwire import OpenWireHarness
from support.machine.set_clock import WallClock
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import eventually

HOUR_S = 3_600
DELAY_MS = 3_000
POLICY = f"""
plugins:
  - redelivery:
      default_entry: {{maximum_redeliveries: 3, initial_redelivery_delay_ms: {DELAY_MS}}}
"""
# The maker of the message, and the broker by the property with the sidecar's URL.
PAIR = (PairOfCoreHarness, "artemis", "pair_url")
OPENWIRE = (OpenWireHarness, "classic_6", "openwire_url")


@pytest.fixture
def wire(request: pytest.FixtureRequest, unique: str) -> Iterator[tuple[LinkHarness, str]]:
    """What makes messages, and the URL of the sidecar."""
    make, broker, url = request.param
    running = request.getfixturevalue(broker)
    harness = make(running, unique)
    yield harness, getattr(running, url)
    harness.close()


# Why no other wires: the schedule's clock knows none.
@pytest.mark.parametrize(
    ("wire", "is_killed"), [(PAIR, True), (OPENWIRE, False)], indirect=["wire"]
)
def test_what_waits_keeps_its_delay_when_the_clock_is_set_back(
    wire: tuple[LinkHarness, str], unique: str, tmp_path: Path, *, is_killed: bool
) -> None:
    """An hour back turned 12 s into an hour; after a restart as well."""
    harness, url = wire
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    clock, intake = WallClock(tmp_path), harness.intake()
    name = intake.destination.name
    sidecar = SidecarProcess(
        tmp_path,
        url,
        policy=policy,
        environ=clock.environ,
        program=COMMAND,
        sets=[
            f"intake.queues={name}",
            *([f"intake.origin={{{name}: {unique}.orders}}"] if intake.origin else []),
        ],
    )
    sidecar.start()
    try:
        harness.put_dead_letters(f"{unique}.orders", 1)
        eventually(lambda: sidecar.metric("amqsidecar_scheduled_total") == 1)
        began_s = time.monotonic()
        clock.set_by(-HOUR_S)
        if is_killed:
            sidecar.kill()
            sidecar.start()
        [message] = eventually(lambda: harness.drain(f"{unique}.orders"), what="it comes back")
        assert int(message.properties["amqsidecarRedeliveryCount"]) == 1
        assert time.monotonic() - began_s < HOUR_S / 2
        [told] = eventually(
            lambda: [one for one in sidecar.log_lines() if one["event"] == "clock_stepped"],
            what="the log says so",
        )
        assert told["set_by_s"] == pytest.approx(-HOUR_S, abs=60)
        assert sidecar.metric('amqsidecar_clock_steps_total{direction="back"}') == 1
        behind_s = json.loads(sidecar.get("/readyz")[1])["clock"]["behind_s"]
        assert behind_s == pytest.approx(-HOUR_S, abs=60)
    finally:
        sidecar.kill()


def test_recurring_work_goes_on_where_nothing_is_taken(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """Of an observer; the gauges stood still for an hour."""
    harness, clock = PairOfCoreHarness(artemis, unique), WallClock(tmp_path)
    sidecar = SidecarProcess(
        tmp_path,
        artemis.pair_url,
        environ=clock.environ,
        program=COMMAND,
        sets=[f"intake.queues={harness.intake().destination.name}", "observe.interval_s=1"],
        flags=["--observe"],
    )
    sidecar.start()
    try:
        clock.set_by(-HOUR_S)
        harness.put_dead_letters(f"{unique}.orders", 100)
        eventually(lambda: sidecar.metric("amqsidecar_waiting") == 100, what="they are counted")
    finally:
        sidecar.kill()
        harness.close()
