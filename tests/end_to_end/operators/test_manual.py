"""Manual mode: dead letters are seen where they lie, and only a person takes them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.observed import is_counted
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = pytest.mark.broker

COUNT: Final = 30
LYING: Final = 10_000
CHOSEN: Final = 300
KILLS: Final = at_length(100, otherwise=12)
# Why no limit: what is in hand when a sidecar dies counts as a failed delivery, and ten of them are
# another death, which destroys the origin.
_SETTINGS: Final = f"""{STOCK_ADDRESS_SETTINGS}<address-setting match="DLQ">
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>"""
WIRES: Final = {
    "artemis": "pair_url",
    "core": "core_url",
    "amqp": "amqp_url",
    "openwire": "openwire_url",
    "amqp_jms": "amqp_jms_url",
    "stomp": "stomp_url",
}
PARAMETERS = [
    ("artemis", "artemis"),
    ("classic", "openwire"),
    pytest.param(("artemis", "core"), marks=pytest.mark.proof),
    pytest.param(("artemis", "amqp"), marks=pytest.mark.proof),
    pytest.param(("classic", "amqp_jms"), marks=pytest.mark.proof),
    pytest.param(("classic", "stomp"), marks=pytest.mark.proof),
]


class Manual:
    """A sidecar in manual mode beside dead letters of one queue."""

    def __init__(self, broker: Broker, wire: str, folder: Path, unique: str) -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.orders = f"{unique}.orders"
        self.dead = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        self.makers = (
            [JmsPeer.of(broker, "qpid"), JmsPeer.of(broker, "core")]
            if is_artemis and wire == "artemis"
            else [JmsPeer.of(broker, {"core": "core", "amqp": "qpid"}.get(wire, "openwire"))]
        )
        self.killer = JmsPeer.of(broker, "qpid") if is_artemis else self.makers[0]
        self.how = "reject" if is_artemis else "rollback"
        sets = [
            "redelivery.mode=manual",
            f"intake.queues=[{self.dead}]",
            "observe.interval_s=1",
            "outcomes.interval_s=1",
        ]
        if wire == "stomp":
            sets.append("intake.allow_lossy=[property_types]")
        if wire == "amqp_jms":
            sets.append(f"intake.origin={{{self.dead}: {self.orders}}}")
        self.sidecar = SidecarProcess(folder, getattr(broker, WIRES[wire]), sets=sets)

    def kill(self, count: int, prefix: str = "") -> None:
        """Let messages die by each client."""
        before = len(self.lying())
        for at, peer in enumerate(self.makers):
            each = count // len(self.makers)
            peer.fill(self.orders, each, size=100, test_id=f"{prefix}{at}-")
        with self.killer.start_flaky_consumer(self.orders, failures=-1, how=self.how) as consumer:
            # Why first: a browse of many that come meanwhile takes minutes.
            consumer.wait_for(lambda seen: len(seen) >= count, within_s=900)
            eventually(
                lambda: len(self.lying()) == before + count,
                what="all are dead",
                last=lambda _: f"{len(self.lying())} of {before + count}",
            )

    def lying(self, count: int | None = None) -> list[JmsMessage]:
        # Why the last: a browse of many over AMQP takes minutes, or ends early under load.
        return self.makers[-1].browse(self.dead, count=count)

    def exhausted(self) -> int:
        return sum(
            one["count"]
            for one in msgspec.to_builtins(self.sidecar.status())["exhausted"]
            if one["queue"] == f"queue://{self.dead}" and one["is_in_queue"]
        )

    def wait_until(self, count: int) -> None:
        eventually(
            lambda: self.exhausted() == count,
            what=f"{count} messages in place",
            last=lambda _: (
                f"{self.exhausted()} of {len(self.lying())}\n{self.sidecar.log()[-3000:]}"
            ),
        )


@pytest.fixture(params=PARAMETERS, ids="-".join)
def manual(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Manual]:
    kind, wire = request.param
    with (
        ArtemisBroker(address_settings=_SETTINGS) if kind == "artemis" else ClassicBroker()
    ) as broker:
        site = Manual(broker, wire, tmp_path, unique)
        with site.sidecar:
            yield site


def plain(found: list[JmsMessage]) -> list[tuple[object, ...]]:
    return [(one.test_id, one.body) for one in found]


def test_all_is_seen_in_place_and_a_chosen_part_is_retried(manual: Manual) -> None:
    """First looks, which move nothing; then some of many, and a new death of those."""
    manual.kill(COUNT)
    before = manual.lying()
    manual.sidecar.start()
    manual.wait_until(COUNT)
    rows = manual.sidecar.rows()
    assert len(rows) == COUNT
    assert {str(row["destination"]) for row in rows} == {f"queue://{manual.orders}"}
    assert all("the rules would" in str(row["rule"]) for row in rows)
    shown = json.loads(manual.sidecar.get(f"/api/v1/messages/{rows[3]['id']}")[1])
    properties = {one["name"]: one["value"] for one in shown["view"]["properties"]}
    assert properties["testId"] == before[3].test_id
    groups = json.loads(manual.sidecar.get("/api/v1/overview")[1])
    assert groups
    assert plain(manual.lying()) == plain(before)

    chosen = [str(row["id"]) for row in rows[3:COUNT:5]]
    wanted = [one.test_id for one in before[3:COUNT:5]]
    manual.sidecar.run_command("retry", *chosen, "--yes")
    lives = manual.makers[0].consume(manual.orders, count=len(chosen))
    assert sorted(one.test_id for one in lives) == sorted(wanted)
    manual.wait_until(COUNT - len(chosen))
    left = [one for one in plain(before) if one[0] not in wanted]
    assert plain(manual.lying()) == left

    # What dies later is found, and what others take is forgotten.
    manual.kill(4, "late-")
    manual.wait_until(COUNT - len(chosen) + 4)
    taken = manual.makers[0].consume(manual.dead, count=7)
    assert len(taken) == 7
    manual.wait_until(COUNT - len(chosen) + 4 - 7)
    assert len(manual.lying()) == COUNT - len(chosen) + 4 - 7
    kept = {row["id"] for row in manual.sidecar.rows()}
    gone = next(row for row in rows if row["id"] not in kept and str(row["id"]) not in chosen)
    history = manual.sidecar.run_command("show", str(gone["redelivery_id"]))
    assert "consumed, moved or purged by somebody else" in history


@pytest.mark.parametrize("manual", [("artemis", "artemis")], indirect=True)
def test_all_that_a_person_may_do_acts_on_messages_in_place(manual: Manual) -> None:
    """Discard and its undo, a redirect, and a careful retry whose outcomes are proved."""
    manual.kill(COUNT)
    before = [one.test_id for one in manual.lying()]
    manual.sidecar.start()
    manual.wait_until(COUNT)
    ids = [str(row["id"]) for row in manual.sidecar.rows()]
    command, json_command = manual.sidecar.run_command, manual.sidecar.json_command
    command("discard", *ids[:3], "--yes")
    manual.wait_until(COUNT - 3)
    json_command("operation undo", "1")
    manual.wait_until(COUNT)
    assert sorted(one.test_id for one in manual.lying()) == sorted(before)
    command("redirect", *ids[5:7], "--to", f"queue://{manual.orders}.aside", "--yes")
    aside = manual.killer.consume(f"{manual.orders}.aside", count=2)
    assert sorted(one.test_id for one in aside) == sorted(before[5:7])
    eventually(lambda: is_counted(manual.sidecar, manual.orders), what="the queue is watched")
    with manual.killer.start_flaky_consumer(manual.orders, how=manual.how) as consumer:
        command("retry", *ids[10:20], "--window", "5s", "--yes")
        eventually(
            lambda: (
                {
                    kind: count
                    for kind, count in json_command("operation show", "3")["outcomes"].items()
                    if count
                }
                == {"consumed": 10}
            ),
            what="the broker's counters prove that all is consumed",
            last=lambda _: str(json_command("operation show", "3")["outcomes"]),
        )
        assert sorted(consumer.wait_for_successes(10)) == sorted(before[10:20])
    manual.wait_until(COUNT - 12)


@pytest.mark.postgres
@pytest.mark.parametrize("manual", [("artemis", "artemis")], indirect=True)
def test_two_sidecars_on_one_schedule_give_each_message_one_row(
    manual: Manual, tmp_path: Path, postgres_url: str
) -> None:
    manual.kill(COUNT)
    first = manual.sidecar
    first.options.append(f"store.url={postgres_url}")
    (tmp_path / "second").mkdir()
    second = SidecarProcess(tmp_path / "second", "")
    second.options = first.options
    with second:
        first.start(ready=False)
        second.start()
        first.wait_ready()
        manual.wait_until(COUNT)
        assert len(manual.sidecar.rows()) == COUNT
        chosen = [str(row["id"]) for row in manual.sidecar.rows()[::3]]
        first.run_command("retry", *chosen, "--yes")
        lives = [
            one
            for peer in manual.makers
            for one in peer.consume(manual.orders, count=len(chosen) // len(manual.makers))
        ]
        assert len({one.test_id for one in lives}) == len(lives) == len(chosen)
        manual.wait_until(COUNT - len(chosen))
        assert len(manual.lying()) == COUNT - len(chosen)
        assert manual.killer.consume(manual.orders, wait_ms=300) == []


def test_an_order_outlives_another_death_where_the_message_lies(
    tmp_path: Path, unique: str
) -> None:
    """That gives it another number and destroys its origin; a kill of the sidecar counts, too."""
    with ArtemisBroker() as broker:
        site = Manual(broker, "artemis", tmp_path, unique)
        with site.sidecar:
            site.kill(8)
            before = [one.test_id for one in site.lying()]
            site.sidecar.start()
            site.wait_until(8)
            assert site.sidecar.stop() == 0
            chosen = [str(row["id"]) for row in site.sidecar.rows()[::3]]
            site.sidecar.run_command("retry", *chosen, "--yes")
            with site.killer.start_flaky_consumer(site.dead, failures=-1, how="reject") as consumer:
                consumer.wait_for(lambda seen: {one.id for one in seen} >= {*before})
            eventually(lambda: len(site.lying()) == len(before), what="all have died again")
            site.sidecar.start()
            lives = [
                one.test_id for _ in chosen for one in site.killer.consume(site.orders, count=1)
            ]
            assert sorted(lives) == sorted(before[::3])
            site.wait_until(5)
            assert site.killer.consume(site.orders, wait_ms=300) == []


@pytest.mark.parametrize("manual", [("artemis", "artemis")], indirect=True)
def test_an_order_outlives_a_consumer_that_has_its_messages_in_hand(manual: Manual) -> None:
    """Nobody sees them meanwhile; then it gives them back."""
    manual.kill(COUNT)
    before = [one.test_id for one in manual.lying()]
    manual.sidecar.start()
    manual.wait_until(COUNT)
    chosen = [str(row["id"]) for row in manual.sidecar.rows()[:10:3]]
    holder = manual.makers[-1]
    held = holder.prepare_xa(manual.dead, "holder", COUNT)
    assert len(held) == COUNT
    manual.sidecar.run_command("retry", *chosen, "--yes")
    # Why: it has looked twice then, and once forgot the order.
    eventually(
        lambda: "another consumer has them" in manual.sidecar.run_command("operation show", "1"),
        what="the operation says what it waits for",
    )
    holder.finish_xa("holder", commits=False)
    lives = [one.test_id for _ in chosen for one in manual.killer.consume(manual.orders, count=1)]
    assert sorted(lives) == sorted(before[:10:3])
    manual.wait_until(COUNT - len(chosen))
