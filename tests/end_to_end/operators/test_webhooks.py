"""Notices of deaths on a real broker: through kills, to a receiver that hangs."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.webhooks.outbox import PREFIX, read_outbox
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually
from support.web.receiver import Receiver

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
COUNT = at_length(10_000, otherwise=300)


class Site:
    """A sidecar that reports what dies in a queue."""

    def __init__(
        self, folder: Path, unique: str, broker: ArtemisBroker, receiver: Receiver
    ) -> None:
        self.receiver, self.peer = receiver, JmsPeer.of(broker, "qpid")
        self.schedule = folder / "schedule.db"
        self.prefix = f"e2e.gone.{unique}"
        self.queue = f"{self.prefix}.orders"
        (folder / "secret").write_text("whsec_" + base64.b64encode(b"k" * 24).decode())
        options = (
            f"url: {receiver.url}, ca_file: {receiver.pki.ca_file}, "
            f"secret_file: {folder / 'secret'}, allowed_networks: 127.0.0.0/8"
        )
        self.sidecar = SidecarProcess(
            folder,
            broker.pair_url,
            policy=POLICY,
            sets=[
                f"intake.queues={self.prefix}.DLQ",
                "intake.backlog=process",
                "http.public_url=https://console.example",
                "webhooks.gather_s=1",
                "webhooks.update_s=3",
                f"webhooks.subscriptions={{ops: {{{options}}}}}",
            ],
        )
        harness = AmqpArtemisHarness(broker, self.prefix)
        harness.kill_at_first_failure(self.prefix)
        harness.close()

    def wait_for_outbox(self) -> None:
        """Wait for the first look: what dies from then on is new."""
        with closing(SqliteStore(self.schedule, clock=SystemClock())) as store:
            store.open()
            eventually(
                lambda: read_outbox(store.read_value(f"{PREFIX}ops"), 0).has_looked,
                what="the first look",
            )

    def counted(self, kind: str) -> int:
        """Return the count of the latest notice about the queue."""
        place = f"queue://{self.queue}"
        found = [one for one in self.receiver.events(kind) if one.get("subject") == place]
        return int(found[-1]["data"]["count"]) if found else 0


@pytest.fixture
def site(artemis: ArtemisBroker, tmp_path: Path, unique: str) -> Iterator[Site]:
    with Receiver(tmp_path / "pki") as receiver:
        yield Site(tmp_path, unique, artemis, receiver)


def test_kills_and_a_hanging_receiver_lose_nothing_and_hold_nothing_up(site: Site) -> None:
    # A body that is too large to be read is no reason to send a notice again.
    site.receiver.answers, site.receiver.body = 200, bytes(10**5)
    with site.sidecar.start():
        site.wait_for_outbox()
        site.sidecar.stop()
    site.peer.produce(site.queue, "Text", count=COUNT)
    with site.peer.start_flaky_consumer(site.queue, failures=-1, how="reject"):
        site.sidecar.die_at("notice_kept:1")
        assert site.receiver.events() == []
        site.sidecar.die_at("notice_sent:1")
        assert len(site.receiver.events()) == 1
        # A receiver that hangs holds up no cycle: all exhaust while it does.
        site.receiver.hangs.set()
        with site.sidecar.start():
            eventually(lambda: site.sidecar.exhausted() == COUNT, within_s=180)
            assert site.receiver.hangs.is_set()
            site.receiver.hangs.clear()
            eventually(lambda: site.counted("exhausted") == COUNT, within_s=180)
            deaths = sum(one["total"] for one in site.sidecar.json_command("groups"))
            eventually(lambda: site.counted("new_cause") == deaths, within_s=180)
            site.sidecar.stop()
    for kind in ("exhausted", "new_cause"):
        once = {one["id"]: one for one in site.receiver.events(kind)}
        last = site.counted(kind)
        assert sum(one["data"]["more"] for one in once.values()) == last
        assert [one["data"]["phase"] for one in once.values()].count("begun") == 1
        assert all("/groups/one?destination=" in one["data"]["link"] for one in once.values())
    for got in site.receiver.requests:
        head = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}."
        made = hmac.new(b"k" * 24, head.encode() + got.body, hashlib.sha256).digest()
        assert got.headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"
