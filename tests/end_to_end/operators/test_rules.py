"""Rules beyond the broker's, and groups by fields, on real brokers: each message goes its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
CONFIG = """
policy:
  source: {policy}
  plugins:
    - rules:
        rules:
          - name: broken
            queue: "e2e.>"
            properties: {{code: E1}}
            redirect: {{to: "queue://{repair}"}}
          - name: hopeless
            queue: "e2e.>"
            properties: {{code: {{matches: "E2\\\\d"}}}}
            jms_type: my.type
            action: exhaust
          - name: by hand
            queue: "e2e.>"
            properties: {{code: E3}}
            action: park
          - name: soon
            queue: "e2e.>"
            properties: {{code: E4}}
            redeliver: {{maximum_redeliveries: -1, within_ms: 1}}
intake:
  backlog: process
  group_by:
    default_entry: {{fields: [property:code, "json:/kind"]}}
"""


@pytest.mark.parametrize("name", ["classic_6", "artemis"])
def test_each_message_goes_the_way_of_its_rule_and_is_grouped_by_its_fields(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, name: str
) -> None:
    broker: Broker = request.getfixturevalue(name)
    queue, repair = f"e2e.late.{unique}", f"e2e.repair.{unique}"
    is_artemis = name == "artemis"
    policy = POLICIES / ("artemis.yaml" if is_artemis else "redelivery.yaml")
    config = tmp_path / "sidecar.yaml"
    config.write_text(CONFIG.format(policy=policy, repair=repair))
    url = broker.pair_url if is_artemis else broker.openwire_url  # type: ignore[attr-defined]
    peer = JmsPeer.of(broker, "qpid" if is_artemis else "openwire")
    sidecar = SidecarProcess(tmp_path, url, environ={"AMQSIDECAR_CONFIG": str(config)})

    def rows() -> dict[str, dict[str, Any]]:
        found = sidecar.rows("--destination", queue)
        return {row["cause_group"].partition("code=")[2].partition(",")[0]: row for row in found}

    with sidecar:
        peer.produce(repair, ["Text"], count=1, properties={"code": "first"})
        peer.consume(repair, count=1)
        sidecar.start()
        for code in ("E1", "E22", "E3", "E5"):
            peer.produce(queue, ["Text"], properties={"code": code}, text=f'{{"kind": "{code}!"}}')
        peer.fail(queue, "reject" if is_artemis else "rollback", messages=4, deliveries=1)

        [repaired] = peer.consume(repair, count=1)
        expected = {"E22": "exhausted", "E3": "parked", "E5": "waiting"}

        def settled() -> dict[str, dict[str, Any]] | None:
            # Why: what is exhausted waits until it is sent to its final queue.
            found = rows()
            states = {code: row["state"] for code, row in found.items()}
            return found if states == expected else None

        by_code = eventually(settled, what="the others are in the schedule, each in its state")
        assert sidecar.stop() == 0

    assert repaired.value("code") == "E1"
    assert repaired.value("amqsidecarRedeliveryCount") == 1
    lines = config.read_text().splitlines()
    for code, title in (("E22", '"hopeless"'), ("E3", '"by hand"')):
        line = 1 + next(at for at, text in enumerate(lines) if title.strip('"') in text)
        told = by_code[code]["rule"] or by_code[code]["reason"]
        assert f"rule {title} " in told
        assert f"(sidecar.yaml:{line})" in told.replace(f"{tmp_path}/", "")
    assert all(row["cause_group"].endswith(f"/kind={code}!]") for code, row in by_code.items())
    assert "rule " not in by_code["E5"]["rule"]
