"""SIGTERM while the broker is frozen in a commit: probes are answered, and a pod has the time."""

import signal
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import attempts_without_limit
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.machine.processes import is_stopped
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

VALUES = Path(__file__).parents[3] / "helm" / "amqsidecar" / "values.yaml"
POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
SETTINGS = """
    <address-setting match="#">
      <dead-letter-address>DLQ</dead-letter-address>
      <max-delivery-attempts>1</max-delivery-attempts>
    </address-setting>
""" + attempts_without_limit("DLQ")


def test_a_draining_sidecar_is_alive_and_ends_in_time(tmp_path: Path) -> None:
    grace_s = YAML(typ="safe").load(VALUES)["terminationGracePeriodSeconds"]
    crash = {CRASH_POINT_VARIABLE: "sent:1:SIGSTOP"}
    sets = ["intake.backlog=process", "broker.idle_timeout_s=5", "broker.connect_timeout_s=2"]
    with (
        ArtemisBroker(address_settings=SETTINGS) as broker,
        SidecarProcess(
            tmp_path, broker.amqp_url, policy=POLICY, sets=sets, environ=crash
        ) as sidecar,
    ):
        peer = JmsPeer.of(broker, "core")
        peer.produce("e2e.late.drain", ["Text"])
        peer.fail("e2e.late.drain", messages=1, deliveries=1)
        process = sidecar.start(ready=False).process
        assert process is not None
        eventually(lambda: is_stopped(process.pid), what="it stops before a commit")
        broker.pause()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        told: list[int] = []

        def has_given_up() -> bool:
            status, _ = sidecar.get("/healthz")
            if any(line["event"] == "link_down" for line in sidecar.log_lines()):
                return True
            told.append(status)
            return False

        eventually(has_given_up, within_s=grace_s, what="the broker is given up")
        assert told
        assert set(told) == {200}
        assert process.wait(grace_s) == 0
        broker.resume()
