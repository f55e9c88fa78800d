"""A real sidecar whose wall clock is set back while messages wait."""

import json
import time
from pathlib import Path

import pytest

from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
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


@pytest.mark.parametrize("is_killed", [False, True], ids=("lives", "killed"))
def test_what_waits_keeps_its_delay_when_the_clock_is_set_back(
    artemis: Broker, unique: str, tmp_path: Path, *, is_killed: bool
) -> None:
    """An hour back turned 12 s into an hour; after a restart as well."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    clock = WallClock(tmp_path)
    harness = AmqpArtemisHarness(artemis, unique)
    sidecar = SidecarProcess(
        tmp_path,
        artemis.amqp_url,
        policy=policy,
        environ=clock.environ,
        program=COMMAND,
        sets=[f"intake.queues={harness.dead_letter_queue}"],
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
        [message] = JmsPeer.of(artemis, "qpid").consume(f"{unique}.orders", count=1)
        assert message.value("amqsidecarRedeliveryCount") == 1
        assert time.monotonic() - began_s < HOUR_S / 2
        [told] = [one for one in sidecar.log_lines() if one["event"] == "clock_stepped"]
        assert told["set_by_s"] == pytest.approx(-HOUR_S, abs=60)
        assert sidecar.metric('amqsidecar_clock_steps_total{direction="back"}') == 1
        behind_s = json.loads(sidecar.get("/readyz")[1])["clock"]["behind_s"]
        assert behind_s == pytest.approx(-HOUR_S, abs=60)
    finally:
        sidecar.kill()
        harness.close()
