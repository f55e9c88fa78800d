"""Mode `in_place`: the rules redeliver from where dead letters lie, and the volume may burn."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.runtime.mode import CHANGED
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.purge import manage_artemis
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=600))]

COUNT: Final = 40
BATCH: Final = 20
BURNS: Final = at_length(50, otherwise=3)
CHANGES: Final = at_length(5, otherwise=1)
LYING: Final = at_length(100_000, otherwise=3_000)
POLICY: Final = """
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 3, redelivery_delay_ms: %d}
"""
_SETTINGS: Final = f"""{STOCK_ADDRESS_SETTINGS}<address-setting match="DLQ">
  <max-delivery-attempts>-1</max-delivery-attempts>
  <management-browse-page-size>{LYING}</management-browse-page-size>
</address-setting>"""
WIRES: Final = ["pair", *(pytest.param(one, marks=pytest.mark.proof) for one in ("core", "amqp"))]


class Site:
    """A sidecar beside one dead-letter queue, and its consumers."""

    def __init__(self, broker: ArtemisBroker, wire: str, folder: Path, unique: str) -> None:
        self.orders, self.folder, self.broker = f"{unique}.orders", folder, broker
        self.peer = JmsPeer.of(broker, "qpid")
        self.maker = JmsPeer.of(broker, "core") if wire == "core" else self.peer
        self.sidecar = SidecarProcess(
            folder,
            getattr(broker, f"{wire}_url"),
            policy=write_policy(folder, POLICY % 500),
            environ={"AMQSIDECAR_CONFIG": str(folder / "sidecar.yaml")},
            sets=[
                "intake.queues=[DLQ]",
                "intake.backlog=process",
                "observe.interval_s=1",
                "observe.max_per_second=50000",
                "outcomes.interval_s=1",
            ],
        )

        self.set("in_place")

    def set(self, mode: str) -> None:
        (self.folder / "sidecar.yaml").write_text(f"redelivery:\n  mode: {mode}\n")

    def burn(self) -> None:
        """Kill the sidecar, and remove all that it has stored."""
        self.sidecar.kill()
        for path in self.folder.glob("schedule.db*"):
            path.unlink()

    def fill_until(self, is_over: Event) -> int:
        batches = 0
        while not is_over.wait(0.2):
            self.maker.fill(self.orders, BATCH, size=100, test_id=f"{batches}-")
            batches += 1
        return batches * BATCH

    def states(self) -> Counter[str]:
        return Counter(row["state"] for row in self.rows())

    def rows(self) -> list[dict[str, Any]]:
        return self.sidecar.rows("--limit", "100000")

    def lying(self) -> int:
        return len(self.peer.browse("DLQ"))


@pytest.fixture(params=WIRES)
def site(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Site]:
    with ArtemisBroker(address_settings=_SETTINGS) as broker:
        found = Site(broker, request.param, tmp_path, unique)
        with found.sidecar:
            yield found


def test_the_rules_redeliver_from_the_queue_and_leave_what_is_exhausted(site: Site) -> None:
    """Some succeed at the third attempt; the others are exhausted where they lie."""
    site.sidecar.start()
    with site.peer.start_flaky_consumer(site.orders, failures=2, how="reject") as consumer:
        site.maker.fill(site.orders, COUNT, size=100)
        assert len(consumer.wait_for_successes(COUNT)) == COUNT
        counts = Counter(one.redelivery_count for one in consumer.events("succeeded"))
    assert counts == {2: COUNT}
    eventually(lambda: not site.rows(), what="no row is left")
    with site.peer.start_flaky_consumer(site.orders, failures=-1, how="reject") as consumer:
        site.maker.fill(site.orders, COUNT, size=100, test_id="x")
        eventually(lambda: len(consumer.events("failed")) == 3 * COUNT, what="all failed thrice")
        eventually(
            lambda: site.states() == {"exhausted": COUNT} and site.lying() == COUNT,
            what="all are exhausted in place",
            last=lambda _: f"{site.states()}\n{site.sidecar.log()[-3000:]}",
        )
        assert {row["is_final"] for row in site.rows()} == {True}
        assert len(consumer.events("failed")) == 3 * COUNT


def test_killed_and_without_its_volume_under_load_none_is_lost_or_doubled(site: Site) -> None:
    """Each message fails once, and succeeds once."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with under_load(site):
        for _ in range(BURNS):
            site.sidecar.start(ready=chance.random() < 0.7)
            time.sleep(chance.uniform(0, 4))
            site.burn()
        site.sidecar.start()


@pytest.mark.parametrize("site", ["pair"], indirect=True)
def test_the_mode_changes_under_load(site: Site) -> None:
    site.sidecar.start()
    with under_load(site):
        for mode in ("automatic", "in_place", "manual", "in_place") * CHANGES:
            time.sleep(1)
            before = changes(site)
            site.set(mode)
            eventually(lambda: changes(site) > before, what="it changes")  # noqa: B023


@pytest.mark.postgres
@pytest.mark.parametrize("site", ["pair"], indirect=True)
def test_two_sidecars_share_what_lies(site: Site, tmp_path: Path, postgres_url: str) -> None:
    """One of them is killed again and again."""
    site.sidecar.options += [f"store.url={postgres_url}", "store.lease_s=5"]
    (tmp_path / "second").mkdir()
    second = SidecarProcess(tmp_path / "second", "", environ=site.sidecar.environ)
    second.options = site.sidecar.options
    site.sidecar.start()
    with second, under_load(site):
        for _ in range(BURNS):
            second.start()
            time.sleep(2)
            second.kill()


@pytest.mark.parametrize("site", ["pair"], indirect=True)
def test_the_index_of_many_is_complete_again_without_the_volume(site: Site) -> None:
    """Prints how long it takes, at first and again."""
    write_policy(site.folder, POLICY % 3_600_000)
    site.peer.fill(site.orders, LYING, size=100, batch=2_000)
    kill = ManagementQuestion(f"queue.{site.orders}", "sendMessagesToDeadLetterAddress", ("",))
    while int(str(manage_artemis(site.broker, kill))):
        pass
    shown = f'amqsidecar_waiting{{destination="queue://{site.orders}",state="in_place"}}'
    for _ in range(2):
        began_s = time.monotonic()
        site.sidecar.start()
        eventually(lambda: site.sidecar.exhausted() == LYING, within_s=900, what="all have rows")
        print(f"\n{LYING:,} indexed in {time.monotonic() - began_s:.0f} s")
        eventually(
            lambda: site.sidecar.metric(shown) == LYING, what="no alert calls them exhausted"
        )
        site.burn()


@pytest.mark.parametrize("site", ["pair"], indirect=True)
def test_what_a_person_holds_or_discards_in_place_waits_by_the_rules_again(site: Site) -> None:
    """A release, and the undoing of a discard whose messages may be in their queue or gone."""
    write_policy(site.folder, POLICY % 60_000)
    command, count = site.sidecar.run_command, 8
    site.sidecar.start()
    with site.peer.start_flaky_consumer(site.orders, failures=1, how="reject") as consumer:
        site.maker.fill(site.orders, count, size=100)
        eventually(lambda: len(site.rows()) == count, what="all have rows")
        due = {row["id"]: row["due_at_ms"] for row in site.rows()}
        first, *others = map(str, sorted(due))
        words = site.sidecar.try_command("hold", first, "--until", "invoice-1", "--yes").stderr
        assert f"message {first} waits in its dead-letter queue" in words
        command("hold", *others[:4], "--yes")
        command("discard", first, *others[2:], "--yes")
        command("operation undo", "2")
        eventually(
            lambda: Counter(row["recall"] for row in site.rows()) == {"rules": 4, "held": 4},
            what="all lie there as they did",
            last=lambda _: str(site.rows()),
        )
        assert {row["id"]: row["due_at_ms"] for row in site.rows()} == due
        assert site.lying() == count
        command("release", "--destination", f"queue://{site.orders}", "--yes")
        assert {row["recall"] for row in site.rows()} == {"rules"}
        consumer.wait_for_successes(count, within_s=240)
        assert len(consumer.events("failed")) == count
    eventually(lambda: not site.rows(), what="nothing is left")


@contextmanager
def under_load(site: Site) -> Iterator[None]:
    """Send messages while the block runs; each fails once, and succeeds once."""
    with (
        site.peer.start_flaky_consumer(site.orders, failures=1, how="reject") as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        is_over = Event()
        filled = pool.submit(site.fill_until, is_over)
        try:
            yield
        finally:
            is_over.set()
        count = filled.result()
        succeeded = consumer.wait_for_successes(count, within_s=240)
        eventually(
            lambda: not site.lying() and not site.rows(),
            what="nothing is left",
            last=lambda _: f"{site.rows()[:5]}\n{site.sidecar.log()[-3000:]}",
        )
        print(f"{count} messages")
        assert Counter(consumer.succeeded()) == Counter(set(succeeded))
        assert len(set(succeeded)) == count
        assert len(consumer.events("failed")) == count


def changes(site: Site) -> int:
    """Return how often a change of the mode was followed."""
    return sum(str(one.get("reason")).startswith(CHANGED) for one in site.sidecar.log_lines())
