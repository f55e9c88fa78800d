"""Modes by destination, and the change of the mode while it runs."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from amqsidecar.messages.fields import OpenMessage, parse_field
from support.brokers.broker_xml import classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.message import JmsMessage
from support.jms.peer import FlakyConsumer, JmsPeer
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = pytest.mark.broker

COUNT: Final = 12
PAYMENTS: Final = ("pay-0", "pay-1", "pay-2")
CHANGES: Final = at_length(20, otherwise=4)
BATCH: Final = 20
STRATEGY: Final = """
  <policyEntry queue=">"><deadLetterStrategy>
    <individualDeadLetterStrategy queuePrefix="DLQ."/>
  </deadLetterStrategy></policyEntry>
"""
RULES: Final = """
  <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
    <redeliveryPolicy maximumRedeliveries="3" initialRedeliveryDelay="0"/>
  </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
PARAMETERS = [
    ("artemis", "pair_url"),
    ("classic", "openwire_url"),
    pytest.param(("artemis", "core_url"), marks=pytest.mark.proof),
    pytest.param(("artemis", "amqp_url"), marks=pytest.mark.proof),
    pytest.param(("classic", "stomp_url"), marks=pytest.mark.proof),
]
on_one_of_each = pytest.mark.parametrize(
    ("site", "is_first"), [(PARAMETERS[0], True), (PARAMETERS[1], False)], indirect=["site"]
)
"""One of two variants on each kind of broker: they differ in nothing that a broker sees."""


class Site:
    """A sidecar whose options are a file, beside queues whose messages die."""

    def __init__(self, broker: Broker, wire: str, folder: Path, unique: str) -> None:
        is_artemis = not isinstance(broker, ClassicBroker)
        self.orders, self.pay = f"{unique}.orders", f"{unique}.pay.card"
        self.pattern = f"{unique}.pay.{'#' if is_artemis else '>'}"
        self.dead = {one: "DLQ" if is_artemis else f"DLQ.{one}" for one in (self.orders, self.pay)}
        self.peer = JmsPeer.of(broker, "qpid" if is_artemis else "openwire")
        self.maker = JmsPeer.of(broker, "core") if wire == "core_url" else self.peer
        self.how = "reject" if is_artemis else "rollback"
        self.file = folder / "sidecar.yaml"
        self.sidecar = SidecarProcess(
            folder,
            getattr(broker, wire),
            sets=[
                "observe.interval_s=1",
                "outcomes.interval_s=1",
                "intake.backlog_threshold=0",
                *(["intake.allow_lossy=[property_types]"] if wire == "stomp_url" else []),
            ],
            environ={"AMQSIDECAR_CONFIG": str(self.file)},
        )
        if not isinstance(broker, ClassicBroker):
            self.sidecar.options.append("intake.queues=[DLQ]")
        else:
            policy = folder / "activemq.xml"
            policy.write_text(classic_xml(destination_policy=STRATEGY, plugins=RULES))
            self.sidecar.options.append(f"policy.source={policy}")

    def set(self, **options: str) -> None:
        lines = [f"  {name}: {value}\n" for name, value in options.items()]
        self.file.write_text(f"redelivery:\n{''.join(lines)}")

    def kill(self, queue: str, count: int, test_id: str = "n") -> None:
        self.maker.fill(queue, count, size=100, test_id=test_id)
        before = len(self.lying(queue))
        with self.peer.start_flaky_consumer(queue, failures=-1, how=self.how):
            eventually(lambda: len(self.lying(queue)) == before + count, what="all are dead")

    def kill_orders(self) -> None:
        """Let orders die once, and be redelivered."""
        with self.peer.start_flaky_consumer(self.orders, failures=1, how=self.how) as consumer:
            self.maker.fill(self.orders, COUNT, size=100, test_id="order-")
            consumer.wait_for_successes(COUNT)

    def lying(self, queue: str) -> list[JmsMessage]:
        return self.peer.browse(self.dead[queue])

    def dead_orders(self) -> list[JmsMessage]:
        return [one for one in self.lying(self.orders) if one.test_id not in PAYMENTS]

    def rows(self) -> list[dict[str, Any]]:
        return self.sidecar.rows("--limit", "100000")

    def states(self) -> Counter[str]:
        return Counter(row["state"] for row in self.rows())

    def fill_until(self, is_over: Event) -> int:
        batches = 0
        while not is_over.wait(0.1):
            self.maker.fill(self.orders, BATCH, size=100, test_id=f"{batches}-")
            batches += 1
        return batches * BATCH

    def let_die(self, consumer: FlakyConsumer, count: int) -> None:
        before = len(consumer.events())
        consumer.wait_for(lambda seen: len(seen) >= before + count)

    def wait_for_change(self, number: int) -> None:
        def count() -> int:
            return sum(line["event"] == "logging_in_anew" for line in self.sidecar.log_lines())

        eventually(lambda: count() == number, what="the mode changes")

    def wait_for_states(self, wanted: dict[str, int]) -> None:
        eventually(
            lambda: self.states() == wanted,
            what=f"{wanted}",
            last=lambda _: f"{self.states()}\n{self.sidecar.log()[-3000:]}",
        )


@pytest.fixture(params=PARAMETERS, ids="-".join)
def site(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Site]:
    kind, wire = request.param
    broker = ArtemisBroker() if kind == "artemis" else ClassicBroker(destination_policy=STRATEGY)
    with broker:
        found = Site(broker, wire, tmp_path, unique)
        with found.sidecar:
            yield found


def test_payments_stay_in_place_and_order_while_orders_are_redelivered(site: Site) -> None:
    """Both kinds lie in one queue where the broker has one; a person takes payments one by one."""
    site.set(mode="automatic", manual=f"[{site.pattern}]")
    for turn in range(3):
        site.kill(site.pay, COUNT, f"pay{turn}-")
        site.kill(site.orders, COUNT, f"order{turn}-")
    before = [one.test_id for one in site.lying(site.pay) if str(one.test_id).startswith("pay")]
    assert len(before) == 3 * COUNT
    site.sidecar.options.append("intake.backlog=process")
    site.sidecar.start()
    lives = site.peer.consume(site.orders, count=3 * COUNT)
    assert len({one.test_id for one in lives}) == len(lives) == 3 * COUNT
    site.wait_for_states({"exhausted": 3 * COUNT})
    assert {row["destination"] for row in site.rows()} == {f"queue://{site.pay}"}
    assert [one.test_id for one in site.lying(site.pay)] == before

    # A retry takes chosen payments; an order that dies meanwhile goes by the rules.
    rows = site.rows()
    site.sidecar.run_command("retry", *[str(row["id"]) for row in rows[::4]], "--yes")
    paid = site.peer.consume(site.pay, count=len(rows[::4]))
    assert [one.test_id for one in paid] == before[::4]
    with site.peer.start_flaky_consumer(site.orders, failures=1, how=site.how) as consumer:
        site.maker.fill(site.orders, COUNT, size=100, test_id="late-")
        late = consumer.wait_for_successes(COUNT)
    assert sorted(late) == sorted(f"late-{at}" for at in range(COUNT))
    site.wait_for_states({"exhausted": len(before) - len(paid)})
    left = [one for one in before if one not in before[::4]]
    assert [one.test_id for one in site.lying(site.pay)] == left
    assert site.peer.consume(site.pay, wait_ms=300) == []
    assert site.peer.consume(site.orders, wait_ms=300) == []


@on_one_of_each
def test_the_mode_changes_under_load_and_none_is_lost_or_doubled(
    site: Site, *, is_first: bool
) -> None:
    """Messages die all the time, while the mode goes to and fro."""
    backlog = "process" if is_first else "hold"
    site.set(mode="automatic")
    site.sidecar.options.append(f"intake.backlog={backlog}")
    site.sidecar.start()
    with (
        site.peer.start_flaky_consumer(site.orders, failures=1, how=site.how) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        is_over = Event()
        filled = pool.submit(site.fill_until, is_over)
        for turn in range(CHANGES):
            site.let_die(consumer, BATCH)
            site.set(mode=("manual", "automatic")[turn % 2])
            site.wait_for_change(turn + 1)
        is_over.set()
        count = filled.result()
        eventually(
            lambda: not site.lying(site.orders) and site.states().keys() <= {"held"},
            what="all is taken",
            last=lambda _: f"{site.states()}\n{site.sidecar.log()[-3000:]}",
        )
        assert bool(site.states()) == (backlog == "hold")
        if backlog == "hold":
            site.sidecar.run_command("release", "--all", "--yes")
        lives = consumer.wait_for_successes(count)
    assert len(set(lives)) == len(lives) == count
    eventually(lambda: not site.states(), what="nothing is left")
    assert site.peer.consume(site.orders, wait_ms=300) == []


@pytest.mark.postgres
@pytest.mark.parametrize("site", [("artemis", "pair_url")], ids=["artemis"], indirect=True)
def test_what_one_of_two_sidecars_leaves_to_a_person_both_leave(
    site: Site, tmp_path: Path, postgres_url: str
) -> None:
    """Also while that one is dead; once its options leave nothing, the rules take what lies."""
    site.sidecar.options += [f"store.url={postgres_url}", "intake.backlog=process"]
    site.set(mode="automatic")
    site.sidecar.start()
    (tmp_path / "second").mkdir()
    options = tmp_path / "second" / "sidecar.yaml"
    options.write_text(f"redelivery:\n  manual: [{site.pattern}]\n")
    second = SidecarProcess(tmp_path / "second", "", environ={"AMQSIDECAR_CONFIG": str(options)})
    second.options = site.sidecar.options
    with second:
        second.start()
        site.wait_for_change(1)
        site.kill(site.pay, COUNT, "pay-")
        site.kill_orders()
        site.wait_for_states({"exhausted": COUNT})
        before = [one.test_id for one in site.lying(site.pay)]

        second.kill()
        site.sidecar.stop()
        site.sidecar.start()
        assert "different_modes" in site.sidecar.log()
        site.kill_orders()
        assert [one.test_id for one in site.lying(site.pay)] == before
        assert site.peer.consume(site.pay, wait_ms=300) == []

        options.write_text("redelivery:\n  mode: automatic\n")
        second.start()
        lives = site.peer.consume(site.pay, count=COUNT)
        assert sorted(one.test_id for one in lives) == sorted(before)
        eventually(lambda: not site.states(), what="nothing is left")
        assert not site.lying(site.pay)


@pytest.mark.parametrize("site", [("classic", "openwire_url")], ids=["classic"], indirect=True)
def test_origins_of_a_shared_queue_are_refused(site: Site) -> None:
    """At a start with a sentence; while it runs, the mode of before goes on."""
    site.set(mode="automatic", manual="[none.>]")
    site.sidecar.options[-1] = "intake.queues=[ActiveMQ.DLQ]"
    site.sidecar.start(ready=False)
    eventually(lambda: not site.sidecar.is_running(), what="it ends")
    assert "redelivery.manual: none.> is no dead-letter queue" in site.sidecar.log()
    site.set(mode="automatic")
    site.sidecar.start()
    site.set(mode="automatic", manual="[none.>]")
    eventually(lambda: "mode_refused" in site.sidecar.log(), what="it is refused")
    site.sidecar.wait_ready()


@on_one_of_each
def test_the_retention_announces_discards_and_gives_back(site: Site, *, is_first: bool) -> None:
    """Messages of three days are announced; a cancel keeps them, and an undo puts them back.

    Payments, which no entry names, stay in the same queue.
    """
    journal = site.sidecar.folder / "journal"
    site.sidecar.options.append(f"journal.path={journal}")
    keep = f"{{entries: [{{queue: {site.orders}, days: 2, export: {str(is_first).lower()}}}]}}"
    site.set(mode="manual")
    site.kill(site.pay, 3, "pay-")
    site.kill(site.orders, COUNT)
    before = [one.test_id for one in site.dead_orders()]
    site.sidecar.start()
    site.wait_for_states({"exhausted": COUNT + 3})
    site.sidecar.stop()
    with closing(sqlite3.connect(site.sidecar.folder / "schedule.db")) as store, store:
        days_ms = 3 * 86_400_000
        store.execute("UPDATE redelivery SET received_at_ms = received_at_ms - ?", (days_ms,))
    site.set(mode="manual", in_place_keep=keep)
    site.sidecar.start()
    command = site.sidecar.json_command
    eventually(lambda: command("operations")["operations"], what="it is announced")
    [announced] = command("operations")["operations"]
    assert (announced["actor"], announced["expected"]) == ("retention", COUNT)
    eventually(
        lambda: site.sidecar.metric("amqsidecar_retention_announced") == COUNT,
        what="a metric announces it",
    )
    assert [one.test_id for one in site.dead_orders()] == before
    site.sidecar.run_command("operation cancel", "1")
    site.sidecar.stop()
    site.set(mode="manual", in_place_keep=keep, retention_notice_h="0")
    site.sidecar.start()
    site.wait_for_states({"exhausted": 3})
    assert not site.dead_orders()
    site.sidecar.stop()
    site.set(mode="manual")
    site.sidecar.start()
    site.sidecar.run_command("operation undo", "2")
    eventually(lambda: len(site.dead_orders()) == COUNT, what="all is back")
    assert sorted(one.test_id for one in site.dead_orders()) == sorted(before)
    assert len([one for one in site.lying(site.pay) if one.test_id in PAYMENTS]) == len(PAYMENTS)
    files = sorted(journal.glob("stream=*/messages-2-*.parquet"))
    messages = [one for file in files for one in pq.read_table(file).to_pylist()]
    field = parse_field("property:testId")
    found = [OpenMessage(one["encoding"], one["message"]).value(field) for one in messages]
    assert sorted(map(str, found)) == sorted(before * is_first)
    site.sidecar.run_command("journal verify")
