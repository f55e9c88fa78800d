"""Everything has exhausted: from the first look to proven success, and taken back through kills."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.app import CRASH_POINT_VARIABLE
from amqsidecar.engine import crash_points
from support.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers import ArtemisBroker, Broker, ClassicBroker
from support.jms_peer import JmsPeer
from support.sidecar_logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar_process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

ALL, OURS = 5_000, 300
KILLED = 400
CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: 1
        initial_redelivery_delay_ms: 100
"""
ARTEMIS_POLICY = """\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 2
    redelivery_delay_ms: 100
"""
# As the README asks for: what is in hand when a sidecar dies counts as a failed delivery.
ARTEMIS_SETTINGS = """
<address-setting match="DLQ">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>
<address-setting match="DLQ.exhausted">
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>
"""
KEEP = "redelivery.exhausted=keep"


class Site:
    """Two queues whose messages all fail until none is redelivered any more."""

    def __init__(self, broker: Broker, folder: Path, unique: str) -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.peer = JmsPeer.of(broker, "qpid" if is_artemis else "openwire")
        self.how = "reject" if is_artemis else "rollback"
        self.ours, self.others = f"{unique}.orders", f"{unique}.bills"
        self.final = "DLQ.exhausted" if is_artemis else "ActiveMQ.DLQ.exhausted"
        policy = folder / "policy.yaml"
        policy.write_text(ARTEMIS_POLICY if is_artemis else CLASSIC_POLICY, encoding="utf-8")
        url = broker.amqp_url if is_artemis else broker.openwire_url
        sets = ["intake.backlog=process", "broker.idle_timeout_s=2"]
        self.sidecar = SidecarProcess(folder, url, policy=policy, sets=sets)

    def exhaust(self, queue: str, count: int) -> None:
        """Let messages die until they have used up their redeliveries."""
        self.peer.fill(queue, count, size=100, test_id=f"{queue}-")
        before = self.exhausted(queue)
        with self.peer.start_flaky_consumer(queue, failures=-1, how=self.how):
            eventually(
                lambda: self.exhausted(queue) == before + count,
                within_s=180,
                what=f"all of {queue} has exhausted",
            )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sidecar.json_command("status")
        return found

    def exhausted(self, queue: str, *, in_queue: bool | None = None) -> int:
        return sum(
            one["count"]
            for one in self.status()["exhausted"]
            if one["destination"] == f"queue://{queue}" and in_queue in (None, one["is_in_queue"])
        )

    def keep(self) -> None:
        """From now on exhausted messages stay in the schedule."""
        self.sidecar.options.append(KEEP)


@pytest.fixture(scope="module", params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of our own, so that nobody else's messages are in its final queue."""
    with (
        ClassicBroker()
        if request.param == "classic"
        else ArtemisBroker(address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS)
    ) as running:
        yield running


@pytest.fixture
def site(broker: Broker, tmp_path: Path, unique: str) -> Iterator[Site]:
    site = Site(broker, tmp_path, unique)
    with site.sidecar:
        yield site


def test_paged_at_three_300_of_5000_after_everything_has_exhausted(site: Site) -> None:
    site.sidecar.start()
    site.exhaust(site.others, ALL - OURS)
    site.exhaust(site.ours, OURS)
    # What a person sees first: how many of which destination, where, since when.
    said = site.sidecar.run_command("status")
    assert f"{OURS} of queue://{site.ours} in queue://{site.final}, the first since" in said
    assert f"{ALL - OURS} of queue://{site.others} in queue://{site.final}" in said
    (group,) = site.sidecar.json_command("groups", "--destination", site.ours)
    assert group["exhausted"] == OURS
    page = site.sidecar.get("/")[1]
    assert f"{ALL:,} exhausted messages wait for a person" in page
    preview = site.sidecar.json_command(
        *("retry", "--state", "exhausted", "--destination", site.ours, "--dry-run")
    )
    assert preview["count"] == 0
    assert any("redelivery.exhausted=keep" in note for note in preview["notes"])

    # They are taken back, and 300 of them live again.
    assert site.sidecar.stop() == 0
    site.keep()
    site.sidecar.start()
    eventually(
        lambda: (
            site.exhausted(site.ours, in_queue=False) == OURS
            and site.exhausted(site.others, in_queue=False) == ALL - OURS
        ),
        within_s=120,
        what="all is taken back",
    )
    assert site.peer.browse(site.final) == []
    site.sidecar.run_command(
        *("retry", "--state", "exhausted", "--destination", site.ours, "--yes"),
        *("--reason", "OPS-1207: mended"),
    )
    consumed = site.peer.consume(site.ours, count=OURS)
    assert len({one.test_id for one in consumed}) == OURS
    assert site.peer.consume(site.ours, wait_ms=300) == []
    assert site.exhausted(site.ours) == 0
    assert site.exhausted(site.others) == ALL - OURS
    told = json.loads(site.sidecar.run_command("operation show", "1", "--output", "json"))
    assert told["operation"]["changed"] == OURS
    history = site.sidecar.run_command("show", str(consumed[0].value("amqsidecarRedeliveryId")))
    assert "life 2 begins: to queue" in history
    assert "because: OPS-1207: mended" in history


def test_killed_while_they_are_taken_back_none_is_lost_or_doubled(site: Site) -> None:
    site.sidecar.start()
    site.exhaust(site.ours, KILLED)
    assert site.sidecar.stop() == 0
    site.keep()
    site.sidecar.options.append("cycle.max_messages=20")
    for name in crash_points.NAMES:
        for hits in (1, 3):
            site.sidecar.start(ready=False, environ={CRASH_POINT_VARIABLE: f"{name}:{hits}"})
            assert site.sidecar.process is not None
            assert site.sidecar.process.wait(30) == -signal.SIGKILL, site.sidecar.log()[-4000:]
    site.sidecar.start()
    eventually(
        lambda: site.exhausted(site.ours, in_queue=False) == KILLED,
        within_s=60,
        what="all is taken back",
    )
    assert site.status()["total"] == KILLED
    site.sidecar.run_command("retry", "--state", "exhausted", "--yes")
    consumed = site.peer.consume(site.ours, count=KILLED)
    assert len({one.test_id for one in consumed}) == KILLED
    assert site.peer.consume(site.ours, wait_ms=300) == []
    assert site.peer.browse(site.final) == []
