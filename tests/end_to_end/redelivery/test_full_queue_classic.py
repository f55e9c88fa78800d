"""A full queue of Classic, whose producers wait for room: its redeliveries wait, others go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "redelivery.yaml"
DEAD_LETTERS = """
  <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>
"""
SMALL_QUEUES = f"""
<policyEntry queue="e2e.back.full.>" producerFlowControl="true" memoryLimit="100kb">
  {DEAD_LETTERS}
  <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
</policyEntry>
<policyEntry queue="e2e.back.full.large.>" producerFlowControl="true" memoryLimit="3500kb">
  {DEAD_LETTERS}
  <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
</policyEntry>
<policyEntry queue="e2e.back.free.>">
  {DEAD_LETTERS}
</policyEntry>
"""
COUNT = 8
"""More than the small queues hold of either size, so that the sidecar's own sends fill them."""
MEDIUM = ("medium", 40_000)
LARGE = ("large", 1_500_000)
"""More than fits between us and a broker that does not read."""


@pytest.fixture(scope="module")
def broker() -> Iterator[ClassicBroker]:
    with ClassicBroker(CLASSIC_6, destination_policy=SMALL_QUEUES) as started:
        yield started


def produce(peer: JmsPeer, queue: str, count: int, test_id: str, size: int) -> list[str]:
    sent = peer.produce(
        queue,
        "Text",
        count=count,
        test_id=test_id,
        body_size=size,
        sample_properties=False,
        group=None,
    )
    return [one.test_id for one in sent]


def die(peer: JmsPeer, queue: str, count: int, test_id: str, size: int = 100) -> list[str]:
    """Kill this many messages, two at a time, so that they fit into their queue."""
    died = []
    for number in range(0, count, 2):
        died += produce(peer, queue, 2, f"{test_id}-{number}", size)
        peer.fail(queue, messages=2)
    return died


def logged(sidecar: SidecarProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in sidecar.log_lines() if line.get("event") == event]


@pytest.mark.parametrize(
    ("wire", "kind", "size"),
    [
        ("openwire", *MEDIUM),
        ("stomp", *LARGE),
        pytest.param("amqp_jms", *MEDIUM, marks=pytest.mark.proof),
    ],
)
def test_a_full_queue_delays_no_other_queue(
    broker: ClassicBroker, tmp_path: Path, unique: str, wire: str, kind: str, size: int
) -> None:
    """It gets all that waits for it when somebody reads it; nothing is lost or doubled."""
    full, free = f"e2e.back.full.{kind}.{unique}", f"e2e.back.free.{unique}"
    peer = JmsPeer.of(broker, "openwire")
    bulky = die(peer, full, COUNT, f"bulky-{unique}", size)
    first = die(peer, free, 4, f"first-{unique}")
    url = getattr(broker, f"{wire}_url")
    sets = [
        "intake.backlog=process",
        "broker.idle_timeout_s=3",
        f"intake.queues=[DLQ.{full},DLQ.{free}]",
        f"intake.origin={{DLQ.{full}: {full}, DLQ.{free}: {free}}}",
    ]
    with SidecarProcess(tmp_path, url, policy=POLICY, sets=sets).running() as sidecar:
        arrived = [one.test_id for one in peer.consume(free, len(first), wait_ms=30_000)]
        assert sorted(arrived) == sorted(first)

        eventually(
            lambda: len(logged(sidecar, "destination_blocked")) >= 2,
            what="the full queue was tried again and again",
        )
        second = die(peer, free, 2, f"second-{unique}")
        arrived = [one.test_id for one in peer.consume(free, len(second), wait_ms=30_000)]
        assert sorted(arrived) == sorted(second)
        blocked = logged(sidecar, "destination_blocked")
        assert {one["destination"] for one in blocked} == {f"queue://{full}"}
        assert all("is it full" in one["reason"] for one in blocked)
        held_up = [
            one
            for one in logged(sidecar, "link_down")
            if f"held up by queue://{full}" in one["reason"]
        ]
        # Why: over AMQP it can't be tried on a connection of its own.
        assert len(held_up) == 1 or wire == "amqp_jms"

        returned = peer.consume(full, COUNT, wait_ms=30_000)
        assert sorted(one.test_id for one in returned) == sorted(bulky)
        assert {str(one.value("amqsidecarRedeliveryCount")) for one in returned} == {"1"}
    assert peer.consume(full) == peer.consume(free) == []
