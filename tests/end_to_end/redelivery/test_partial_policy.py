"""A policy that says less than the broker destroys nothing: the broker's own settings fill it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.doctor import run_doctor
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

SETTINGS = """
    <address-setting match="#">
      <dead-letter-address>DLQ</dead-letter-address>
      <expiry-address>DLQ</expiry-address>
      <max-delivery-attempts>1</max-delivery-attempts>
      <auto-delete-queues>false</auto-delete-queues>
      <auto-delete-addresses>false</auto-delete-addresses>
    </address-setting>
    <address-setting match="DLQ">
      <max-delivery-attempts>-1</max-delivery-attempts>
    </address-setting>
    <address-setting match="w.late.#">
      <expiry-address>ExpiryQueue</expiry-address>
    </address-setting>
"""
TO_DLQ = "dead_letter_address: DLQ"
# Name to entry of the policy, queue, whether its message expires, and the queue that keeps it.
CASES = {
    "no-expiry-address": ('"#"', f"max_delivery_attempts: 4, {TO_DLQ}", "w.a", True, "DLQ"),
    "no-dead-letter-address": ('"#"', "max_delivery_attempts: 1", "w.b", False, "DLQ"),
    "another-address": ('"orders.#"', f"max_delivery_attempts: 3, {TO_DLQ}", "w.c", False, "DLQ"),
    "expiry-queue": ('"#"', f"max_delivery_attempts: 4, {TO_DLQ}", "w.late.d", True, "ExpiryQueue"),
    "empty-addresses": (
        '"#"',
        'max_delivery_attempts: 1, dead_letter_address: "", expiry_address: ""',
        "w.e",
        True,
        "DLQ",
    ),
    "control": (
        '"#"',
        f"max_delivery_attempts: 1, {TO_DLQ}, expiry_address: DLQ",
        "w.f",
        True,
        "DLQ",
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    scan = "<message-expiry-scan-period>300</message-expiry-scan-period>"
    with ArtemisBroker(address_settings=SETTINGS, core=scan) as started:
        yield started


# Wire and case; each wire once in `make test`. `held` = over Core, and the broker keeps what waits.
WAYS = [
    pytest.param(
        wire,
        name,
        marks=() if wire == "core" or name == "no-expiry-address" else pytest.mark.proof,
    )
    for wire in ("core", "amqp", "stomp", "held")
    for name in CASES
]


@pytest.mark.parametrize(("wire", "name"), WAYS)
def test_what_the_broker_keeps_is_kept(
    broker: ArtemisBroker, tmp_path: Path, wire: str, name: str
) -> None:
    match, settings, origin, expires, kept_in = CASES[name]
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"address_settings:\n  - {{match: {match}, {settings}}}\n")
    peer = JmsPeer.of(broker, "core")
    url = getattr(broker, f"{'core' if wire == 'held' else wire}_url")
    final = f"{kept_in}.exhausted"
    before = len(peer.browse(final))
    sets = ["intake.backlog=process", f"intake.queues=[{kept_in}]"]
    if wire == "held":
        sets.append("store.url=broker:")
    with SidecarProcess(tmp_path, url, policy=policy, sets=sets) as sidecar:
        sidecar.start()
        expiring: dict[str, Any] = {"ttl_ms": int(expires), "group": None}
        # Why bytes without properties: STOMP carries them whole.
        expiring["sample_properties"] = wire != "stomp"
        kind = "Bytes" if wire == "stomp" else "Text"
        peer.produce(origin, kind, count=2, test_id=f"{wire}.{name}", **expiring)
        if not expires:
            peer.fail(origin, messages=2)
        eventually(lambda: len(peer.browse(final)) == before + 2)
        assert sidecar.stop() == 0
        assert not any(line.get("discarded") for line in sidecar.log_lines())
        differs = [one for one in sidecar.log_lines() if one["event"] == "policy_differs"]
    verdict = run_doctor(url, tmp_path, *sets, policy=policy)
    warnings = verdict.of("policy", "warning")
    if name == "control":
        assert not [one for one in differs if one["setting"].endswith("-address")]
        ours = [one for one in warnings if one["what"].startswith("policy.source")]
        assert not [one for one in ours if origin in one["subject"]]
        return
    missing = "dead-letter-address" if name == "no-dead-letter-address" else "expiry-address"
    if name == "another-address":
        missing = "dead-letter-address"
    assert any(one["setting"] == missing and one["mend"] for one in differs)
    assert any(missing in one["what"] and one["mend"] for one in warnings)


CLASSIC_RULES = """
<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="&gt;">
        <deadLetterStrategy><sharedDeadLetterStrategy processExpired="false"/></deadLetterStrategy>
      </policyEntry>
    </policyEntries></policyMap></destinationPolicy>
    <plugins>{plugins}</plugins>
  </broker>
</beans>
"""
REDELIVERY = """
<redeliveryPlugin fallbackToDeadLetter="{fallback}"><redeliveryPolicyMap><redeliveryPolicyMap>
  <redeliveryPolicyEntries><redeliveryPolicy queue="other.>"/></redeliveryPolicyEntries>
</redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
CLASSIC_CASES = {
    "process-expired": (REDELIVERY.format(fallback="true"), True, None),
    "no-entry-matches": (REDELIVERY.format(fallback="true"), False, None),
    "drop-only-without-drop-all": ('<discardingDLQBrokerPlugin dropOnly="other.*"/>', False, None),
    "fallback-is-off": (REDELIVERY.format(fallback="false"), False, "fallbackToDeadLetter=false"),
    "drop-only": ('<discardingDLQBrokerPlugin dropOnly="c\\..*"/>', False, 'dropOnly="c\\..*"'),
}


@pytest.fixture(scope="module")
def classic() -> Iterator[ClassicBroker]:
    with ClassicBroker() as started:
        yield started


@pytest.mark.parametrize("name", CLASSIC_CASES)
def test_only_a_written_line_discards_what_classic_keeps(
    classic: ClassicBroker, tmp_path: Path, name: str
) -> None:
    plugins, expires, ordered_by = CLASSIC_CASES[name]
    policy = tmp_path / "activemq.xml"
    policy.write_text(CLASSIC_RULES.format(plugins=plugins))
    peer = JmsPeer.of(classic, "openwire")
    final = "ActiveMQ.DLQ.exhausted"
    before = len(peer.browse(final))
    sets = ["intake.backlog=process"]
    with SidecarProcess(
        tmp_path, classic.openwire_url, policy=policy, sets=sets
    ).running() as sidecar:
        origin = f"c.{name}"
        peer.produce(origin, "Text", count=2, test_id=name, ttl_ms=int(expires))
        if expires:
            # Why: the broker looks for expired messages when somebody consumes.
            assert peer.consume(origin) == []
        else:
            peer.fail(origin, messages=2)
        if ordered_by is None:
            eventually(lambda: len(peer.browse(final)) == before + 2)
        else:
            eventually(lambda: sidecar.metric(DISCARDED.format(origin=origin)) == 2)
            assert len(peer.browse(final)) == before


DISCARDED = 'amqsidecar_discarded_total{{destination="queue://{origin}"}}'
