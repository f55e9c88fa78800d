"""Rules that remove and set properties: a consumer sees that, and everything else as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
TYPES = ("Text", "Bytes", "Map")
RULES = """
policy:
  source: {policy}
  plugins:
    - rules:
        rules:
          - name: other site
            queue: "{queue}"
            properties: {{edit: "yes"}}
            redeliver: {{maximum_redeliveries: 9, initial_redelivery_delay_ms: 3600000}}
            remove_properties: [traceparent, absent]
            set_properties: {{site: "b-{{redelivery_count}}", renewed: "{{redelivery_id}}"}}
          - queue: "{queue}"
            redeliver: {{maximum_redeliveries: 9, initial_redelivery_delay_ms: 3600000}}
intake:
  backlog: process
"""
OF_ONE_MESSAGE = (
    *("testId", "amqsidecarRedeliveryId", "amqsidecarRedeliveryCheck"),
    *("amqsidecarOriginalMessageId", "edit"),
    "receipt",  # of the SEND over STOMP to Artemis
)
"""Properties in which two redeliveries of equal messages differ."""

Site = tuple[JmsPeer, SidecarProcess, str, Mapping[str, Any]]
"""The application, the sidecar, its queue, and how it produces."""
CARRIED_BY_STOMP = {
    "types": ("Text",),
    "text": "an order",
    "group": None,
    "sample_properties": False,
}

# Broker, wire of the sidecar, client library of the application.
WIRES = [
    ("classic_6", "openwire", "openwire"),
    ("artemis", "pair", "qpid"),
    ("artemis", "core", "core"),
]
PROVED = [
    ("classic_6", "stomp", "openwire"),
    ("artemis", "pair", "core"),
    ("artemis", "amqp", "qpid"),
    ("artemis", "stomp", "core"),
]


@pytest.fixture(
    params=[*WIRES, *(pytest.param(wire, marks=pytest.mark.proof) for wire in PROVED)], ids="-".join
)
def site(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Site]:
    name, wire, provider = request.param
    broker: Broker = request.getfixturevalue(name)
    policy = POLICIES / ("artemis.yaml" if name == "artemis" else "redelivery.yaml")
    config, queue = tmp_path / "sidecar.yaml", f"e2e.late.{unique}"
    config.write_text(RULES.format(policy=policy, queue=queue))
    environ = {"AMQSIDECAR_CONFIG": str(config)}
    produced = CARRIED_BY_STOMP if wire == "stomp" else {"types": TYPES}
    with SidecarProcess(tmp_path, getattr(broker, f"{wire}_url"), environ=environ) as sidecar:
        sidecar.start()
        yield JmsPeer.of(broker, provider), sidecar, queue, produced


def test_a_rule_renews_properties_and_changes_nothing_else(
    site: Site,
) -> None:
    """Beside an equal message that no rule edits; the history says what was edited."""
    peer, sidecar, queue, produced = site
    sent = []
    for edit in ("yes", "no"):
        properties: Mapping[str, Any] = {"edit": edit, "traceparent": "00-1-2", "site": "a"}
        sent += peer.produce(queue, properties=properties, **produced)
    how = "reject" if peer.provider == "qpid" else "rollback"
    # Why ten: the broker gives up what is rolled back over Core then.
    deliveries = 10 if peer.provider == "core" else 1
    peer.fail(queue, how, messages=len(sent), deliveries=deliveries, quiet_ms=0)

    def are_kept() -> bool:
        return len(sidecar.rows("--destination", queue)) == len(sent)

    # Why not sent by itself at once: the consumer that fails would get it.
    eventually(are_kept, what="all are in the schedule")
    sidecar.json_command("retry", "--destination", queue, "--yes")

    got = {(one.type, one.value("edit")): one for one in peer.consume(queue, count=len(sent))}
    for kind in produced["types"]:
        edited, plain = got[kind, "yes"], got[kind, "no"]
        redelivery_id = edited.value("amqsidecarRedeliveryId")
        assert (edited.value("site"), plain.value("site")) == ("b-1", "a")
        assert edited.properties["renewed"] == ["String", redelivery_id]
        assert "traceparent" not in edited.properties
        assert plain.value("traceparent") == "00-1-2"
        changed = ("site", "renewed", "traceparent", *OF_ONE_MESSAGE)
        assert edited.differences(plain, without_properties=changed) == []

        def scheduled(reference: str = str(redelivery_id)) -> list[str] | None:
            found = sidecar.json_command("show", reference)["history"]
            return [one["rule"] for one in found if one["type"] == "scheduled"] or None

        [rule] = eventually(scheduled, what="its history")
        assert 'rule "other site" redeliver removes traceparent, absent, sets site' in rule
