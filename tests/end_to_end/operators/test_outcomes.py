"""What became of re-sends, as the service counts it, where the truth is known.

On Artemis, and on Classic with and without its statistics plugin, at the same time: most of it is
waiting for windows. At a web console: `test_doctor.py`.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.journals.folder import LocalFolder
from amqsidecar.model.outcome import Observation
from support.brokers.purge import purge
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.histories.journal_rows import rows_in, wait_written
from support.jms.peer import JmsPeer
from support.sidecar.observed import is_counted, observations
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
COUNT = 2
"""Messages in each queue."""
KINDS = ("consumed", "came back", "unknown")
OPTIONS = ["intake.backlog=process", "outcomes.window_s=10", "outcomes.interval_s=1"]


@dataclass
class Site:
    """A broker with a sidecar, and a queue for each thing that can become of a re-send."""

    name: str
    broker: Broker
    sidecar: SidecarProcess
    provider: str
    how: str
    has_counters: bool
    journal: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def queue(self, fate: str) -> str:
        return f"e2e.late.{fate}_{self.mark}"

    @property
    def peer(self) -> JmsPeer:
        return JmsPeer.of(self.broker, self.provider)

    def fail(self, queue: str) -> None:
        self.peer.fail(queue, self.how, messages=COUNT, deliveries=1, quiet_ms=0)

    def acknowledge(self, queue: str) -> None:
        """Consume all, by a consumer that is still there when the queue is looked at."""
        with self.peer.start_flaky_consumer(queue) as consumer:
            consumer.wait_for_successes(COUNT)
            done_ms = SystemClock().now_ms()
            eventually(lambda: self.seen(queue)[-1].at_ms > done_ms, what="it is looked at")

    def seen(self, queue: str) -> list[Observation]:
        return observations(self.sidecar, queue)

    def outcomes(self, fate: str) -> dict[str, float]:
        """Return how many re-sends of a queue had which outcome."""
        queue = f"queue://{self.queue(fate)}"
        name = 'amqsidecar_outcomes_total{{destination="{}",outcome="{}"}}'
        found = {kind: self.sidecar.metric(name.format(queue, kind)) for kind in KINDS}
        return {kind: count for kind, count in found.items() if count}

    def play(self) -> None:
        """Make all die, re-send them once the queues are watched, and end each in its own way."""
        fates = ("acked", "again", "absent", "purged")
        for fate in fates:
            self.peer.produce(self.queue(fate), ["Text"], count=COUNT)
            self.fail(self.queue(fate))
        eventually(
            lambda: all(self.is_watched(self.queue(fate)) for fate in fates),
            what=f"{self.name} watches the queues",
        )
        ids = [number for fate in fates for number in self.waiting_ids(self.queue(fate))]
        # Why before: how long a command takes must not decide what comes out.
        with ThreadPoolExecutor(2) as pool:
            acked = pool.submit(self.acknowledge, self.queue("acked"))
            again = pool.submit(self.fail, self.queue("again"))
            self.sidecar.run_command("retry", *ids)
            eventually(
                lambda: self.seen(self.queue("purged"))[-1].depth == COUNT,
                what="those to be purged are there",
            )
            purge(self.broker, self.queue("purged"))
            acked.result()
            again.result()

    def waiting_ids(self, queue: str) -> list[str]:
        """Return the numbers of a queue's rows once all its dead letters wait."""
        # Why by queue: a page of all rows begins with the exhausted ones of other tests.
        command = ("--destination", queue, "--state", "waiting")
        rows = eventually(
            lambda: len(found := self.sidecar.rows(*command)) == COUNT and found,
            what=f"{COUNT} messages of {queue} wait",
        )
        return [str(row["id"]) for row in rows]

    def is_watched(self, queue: str) -> bool:
        return is_counted(self.sidecar, queue) if self.has_counters else bool(self.seen(queue))


@pytest.fixture(scope="module")
def sites(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Site]]:
    """All sites after everything that was done there."""
    with ExitStack() as stack:
        artemis: Broker = request.getfixturevalue("artemis")
        stock: Broker = request.getfixturevalue("classic_6")
        counting = stack.enter_context(
            ClassicBroker(CLASSIC_6, plugins="<statisticsBrokerPlugin/>")
        )
        sites = {}
        brokers = {"artemis": artemis, "counting": counting, "stock": stock}
        for name, broker in brokers.items():
            is_artemis = broker is artemis
            folder = tmp_path_factory.mktemp(name)
            journal = folder / "journal"
            sidecar = SidecarProcess(
                folder,
                broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url,
                policy=POLICIES / ("artemis.yaml" if is_artemis else "redelivery.yaml"),
                sets=(
                    *OPTIONS,
                    *(f"journal.path={journal}", "journal.segment_s=1"),
                ),
            )
            stack.enter_context(sidecar)
            sidecar.start()
            provider, how = ("qpid", "reject") if is_artemis else ("openwire", "rollback")
            has_counters = name != "stock"
            sites[name] = Site(name, broker, sidecar, provider, how, has_counters, journal)
        with ThreadPoolExecutor(len(sites)) as pool:
            list(pool.map(Site.play, sites.values()))
        yield sites


@pytest.fixture(params=["artemis", "counting", "stock"])
def site(request: pytest.FixtureRequest, sites: dict[str, Site]) -> Site:
    return sites[request.param]


def came(site: Site, fate: str) -> dict[str, float]:
    """Return the outcomes of a queue once all of them are known."""
    return eventually(
        lambda: (found := site.outcomes(fate)) and sum(found.values()) >= COUNT and found,
        what=f"outcomes of {fate}",
        last=lambda _: str(site.seen(site.queue(fate))[-3:]),
    )


def test_acknowledged_messages_are_consumed_where_the_broker_counts(site: Site) -> None:
    expected = "consumed" if site.has_counters else "unknown"
    assert came(site, "acked") == {expected: COUNT}


def test_messages_that_fail_again_come_back(site: Site) -> None:
    outcomes = came(site, "again")
    # Why: on Classic they are re-sent once more after a second, and then nobody takes them.
    assert outcomes.pop("unknown", 0) <= COUNT
    assert outcomes == {"came back": COUNT}


def test_messages_without_a_consumer_are_unknown(site: Site) -> None:
    assert came(site, "absent") == {"unknown": COUNT}


def test_messages_that_were_purged_are_not_consumed(site: Site) -> None:
    assert came(site, "purged") == {"unknown": COUNT}
    eventually(lambda: site.seen(site.queue("purged"))[-1].depth == 0, what="it was purged")


def test_what_is_proved_is_in_the_journal_once(site: Site) -> None:
    """What was purged or died again has no proof of that re-send; without counters nothing has."""
    for fate in ("acked", "again", "absent", "purged"):
        came(site, fate)
    wait_written(site.sidecar)
    rows = rows_in(LocalFolder(site.journal, "test", lambda: None))
    proofs = [row for row in rows if row["type"] == "outcome_proved"]
    found = Counter((row["destination"], row["outcome"]) for row in proofs)
    expected = {"acked": "consumed", "absent": "queued"}
    for fate in ("acked", "again", "absent", "purged"):
        of_it = {what: n for (place, what), n in found.items() if place.endswith(site.queue(fate))}
        if fate in ("again", "purged"):
            # Why: a look may have come while it lay in its queue, of a second re-send or before
            # the purge.
            of_it.pop("queued", None)
        is_proved = site.has_counters and fate in expected
        assert of_it == ({expected[fate]: COUNT} if is_proved else {}), fate
