"""Very many dead letters where they lie: looking moves none, and a chosen few leave alone."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, artemis_xml
from support.brokers.purge import manage_artemis
from support.brokers.real import FULL_SPEED, QUICK_START, ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(5400, otherwise=900))]

MILLION: Final = at_length(1_000_000, otherwise=30_000)
LYING: Final = at_length(100_000, otherwise=3_000)
TOGETHER: Final = 1_000
CHOSEN: Final = at_length(300, otherwise=100)
KILLS: Final = at_length(100, otherwise=12)
SCREENS: Final = ("/", "/groups", "/messages", "/api/v1/status", "/api/v1/overview")
MEMORY_MIB: Final = 512
OPERATION: Final = "/operations/1"
POLICY: Final = """
address_settings:
  - match: "#"
    dead_letter_address: DLQ
"""
_PART: Final = 10_000
PAGED: Final = 300
_PAGES: Final = (
    "<max-size-messages>20</max-size-messages><max-read-page-messages>50</max-read-page-messages>"
)
# Why no limit: the tenth kill of a process that has a message in hand is its death in this queue,
# which gives it another place and number, and destroys its origin. A browse looks at 200 otherwise.
_SETTINGS: Final = f"""{STOCK_ADDRESS_SETTINGS}<address-setting match="DLQ">
  <max-delivery-attempts>-1</max-delivery-attempts>
  <management-browse-page-size>{LYING}</management-browse-page-size>
</address-setting>"""
_COUNTERS: Final = ("MessageCount", "MessagesAdded", "MessagesAcknowledged", "MessagesKilled")


class Many:
    """A sidecar in manual mode beside many dead letters of a stock Artemis."""

    def __init__(
        self,
        broker: ArtemisBroker,
        folder: Path,
        unique: str,
        wire: str = "pair",
        user: str = "admin",
    ) -> None:
        self.broker = broker
        self.orders = f"{unique}.orders"
        self.peer = JmsPeer.of(broker, "qpid" if wire == "amqp" else "core")
        self.sidecar = SidecarProcess(
            folder,
            getattr(broker, f"{wire}_url").replace("admin:admin", f"{user}:{user}"),
            policy=write_policy(folder, POLICY),
            sets=["redelivery.mode=manual", "intake.queues=[DLQ]", "observe.max_per_second=50000"],
        )

    def ask(self, resource: str, operation: str, *arguments: object, attribute: str = "") -> object:
        return manage_artemis(
            self.broker, ManagementQuestion(resource, operation, arguments, attribute)
        )

    def kill(self, count: int, size: int = 100) -> None:
        kill = (f"queue.{self.orders}", "sendMessagesToDeadLetterAddress", "")
        # Why in parts: the broker answers after all are dead, and looks at all that are paged.
        for at in range(0, count, LYING):
            self.peer.fill(self.orders, min(LYING, count - at), size=size, batch=2_000)
            while int(str(self.ask(*kill))):
                pass
        eventually(lambda: self.counters()[0] == count, what="all are dead")

    def counters(self) -> list[int]:
        return [int(str(self.ask("queue.DLQ", "", attribute=one))) for one in _COUNTERS]

    def places(self) -> dict[int, int]:
        """Return the number that the broker gave each message when it came, by its own number.

        A message that leaves its queue and comes back has another one.
        """
        found: dict[int, int] = {}
        for at in range(0, LYING, _PART):
            chosen = f"n >= {at} AND n < {at + _PART}"
            shown = json.loads(str(self.ask("queue.DLQ", "listMessagesAsJSON", chosen)))
            found.update((int(one["n"]), int(one["messageID"])) for one in shown)
        return found

    def wait_until(self, count: int) -> None:
        wait_for_rows(self.sidecar, count)


def wait_for_rows(sidecar: SidecarProcess, count: int) -> None:
    """Wait until the schedule has that many rows of messages in place."""

    def lying() -> int:
        return sum(one["count"] for one in msgspec.to_builtins(sidecar.status())["exhausted"])

    eventually(
        lambda: lying() == count,
        within_s=1_800,
        what=f"{count} messages in place",
        last=lambda _: f"{lying()}\n{sidecar.log()[-3000:]}",
    )


def look_at_screens(sidecar: SidecarProcess) -> None:
    """Print how long each screen takes, and check how much memory the sidecar took."""
    for screen in SCREENS * 2:
        asked_s = time.monotonic()
        assert sidecar.get(screen)[0] == 200
        print(f"{screen}: {time.monotonic() - asked_s:.2f} s")
    assert sidecar.process is not None
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    [peak] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    print(f"at most {int(peak) // 1024} MiB")
    assert int(peak) < MEMORY_MIB * 1024


@pytest.fixture
def many(tmp_path: Path, unique: str) -> Iterator[Many]:
    # Why: a million need the memory that a stock broker has.
    flags = at_length(FULL_SPEED, otherwise=QUICK_START)
    with ArtemisBroker(address_settings=_SETTINGS, jvm_flags=flags) as broker:
        site = Many(broker, tmp_path, unique)
        with site.sidecar:
            yield site


@pytest.mark.proof
def test_a_million_are_seen_in_bounded_memory_and_none_moves(many: Many) -> None:
    """Prints how long the index and each screen takes."""
    many.kill(MILLION)
    before = many.counters()
    began_s = time.monotonic()
    many.sidecar.start()
    many.wait_until(MILLION)
    print(f"\n{MILLION:,} indexed in {time.monotonic() - began_s:.0f} s")
    look_at_screens(many.sidecar)
    assert many.counters() == before


def test_many_of_a_stock_classic_are_seen_and_none_changes(tmp_path: Path, unique: str) -> None:
    """A consumer receives what was sent, in its order, for the first time; as from a twin queue."""
    # Why: in less memory the broker stops the producer before it has both queues.
    with ClassicBroker(jvm_flags=at_length(FULL_SPEED, otherwise=QUICK_START)) as broker:
        peer = JmsPeer.of(broker, "openwire")
        for queue in ("ActiveMQ.DLQ", unique):
            peer.fill(queue, LYING, batch=2_000)
        sidecar = SidecarProcess(
            tmp_path,
            broker.openwire_url,
            sets=[
                "redelivery.mode=manual",
                "intake.queues=[ActiveMQ.DLQ]",
                "observe.max_per_second=50000",
            ],
        )
        with sidecar:
            began_s = time.monotonic()
            sidecar.start()
            wait_for_rows(sidecar, LYING)
            print(f"\n{LYING:,} indexed in {time.monotonic() - began_s:.0f} s")
            look_at_screens(sidecar)
            assert sidecar.stop() == 0
        seen, sent = (
            [
                (one.type, one.body, one.properties, one.delivery_count)
                for _ in range(LYING // TOGETHER)
                for one in peer.consume(queue, count=TOGETHER, transacted=True)
            ]
            for queue in ("ActiveMQ.DLQ", unique)
        )
        assert seen == sent


# Why in proof: 140 MiB for a bound that `contract/links/test_classic_choosing.py` meets with 1 MB.
@pytest.mark.proof
def test_the_prefix_that_a_classic_gives_out_alone_is_offered(tmp_path: Path, unique: str) -> None:
    """Messages of a MiB lie between the chosen ones; those keep their place with the offer."""
    mebibyte, between = 1 << 20, 140
    with ClassicBroker() as broker:
        peer = JmsPeer.of(broker, "openwire")
        for name, count, size in (("a", 3, 10), ("b", between, mebibyte), ("c", 2, 10)):
            peer.fill("ActiveMQ.DLQ", count, size=size, batch=10, test_id=name)

        sets = ["redelivery.mode=manual", "intake.queues=[ActiveMQ.DLQ]"]
        with SidecarProcess(tmp_path, broker.openwire_url, sets=sets) as sidecar:
            sidecar.start()
            wait_for_rows(sidecar, between + 5)
            rows = sidecar.json_command("list", "--limit", "999")["rows"]
            chosen = [str(one["id"]) for one in rows if one["size_bytes"] < mebibyte]
            redirect = ["redirect", *chosen, "--to", unique]
            notes = " ".join(sidecar.json_command(*redirect, "--dry-run")["notes"])
            assert "at most the oldest 3 messages (--limit 3)" in notes
            offered = sidecar.json_command(*redirect, "--limit", "3", "--dry-run")
            assert "(--limit" not in " ".join(offered["notes"])
            sidecar.run_command(*redirect, "--limit", "3")
            taken = peer.consume(unique, count=3)
            wait_for_rows(sidecar, between + 2)
            assert sidecar.stop() == 0
            assert "final_queue_read_whole" not in sidecar.log()
        assert sorted(str(one.test_id) for one in taken) == ["a0", "a1", "a2"]
        # Why no consumer: the peer has no memory for all of them.
        (tmp_path / "second").mkdir()
        with SidecarProcess(tmp_path / "second", broker.openwire_url, sets=sets) as sidecar:
            sidecar.start()
            wait_for_rows(sidecar, between + 2)
            left = sidecar.json_command("list", "--limit", "999")["rows"]
        places = [[one["message_id"] for one in found] for found in (rows, left)]
        assert places[1] == places[0][3:]


def test_killed_while_few_of_many_are_taken_nothing_else_leaves_its_place(many: Many) -> None:
    """A few of many are chosen, and the sidecar dies again and again at each place of a cycle."""
    many.kill(LYING)
    before = many.places()
    assert len(before) == LYING
    many.sidecar.options.append("cycle.max_messages=3")
    many.sidecar.start()
    many.wait_until(LYING)
    assert many.sidecar.stop() == 0
    rows, chosen = many.sidecar.retry_under_kills(LYING, CHOSEN, KILLS)
    lives = many.peer.consume(many.orders, count=CHOSEN)
    taken = {int(str(one.test_id).removeprefix("n")) for one in lives}
    assert len(taken) == len(lives) == CHOSEN
    many.wait_until(LYING - CHOSEN)
    assert many.peer.consume(many.orders, wait_ms=300) == []
    assert many.places() == {n: place for n, place in before.items() if n not in taken}
    left = many.sidecar.rows("--limit", str(LYING))
    assert rows - {str(row["id"]) for row in left} == chosen


class SecuredBroker(ArtemisBroker):
    """A broker with a user `taker` who may do everything but manage it."""

    def __init__(self, **options: Any) -> None:
        text = artemis_xml(**options).replace('roles="amq"', 'roles="amq,takers"')
        rights = "".join(f'<permission type="{one}" roles="amq"/>' for one in ("send", "manage"))
        setting = f'<security-setting match="activemq.management">{rights}</security-setting>'
        super().__init__(text.replace("</security-settings>", f"{setting}</security-settings>"))

    def _prepare(self) -> None:
        super()._prepare()
        for name, line in {"users": "taker = taker", "roles": "takers = taker"}.items():
            path = self.config_path.parent / f"artemis-{name}.properties"
            path.write_text(f"{path.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")


@pytest.mark.parametrize("case", ["room", "no room", "not managed"])
@pytest.mark.parametrize(
    "wire",
    ["pair", *(pytest.param(one, marks=pytest.mark.proof) for one in ("core", "amqp"))],
)
def test_chosen_messages_behind_what_the_broker_has_in_memory_are_taken(
    tmp_path: Path, unique: str, wire: str, case: str
) -> None:
    """A consumer with a selector gets nothing from there. The sidecar dies again and again.

    Where the whole queue is read for it, the operation says so.
    """
    is_roomy = case == "room"
    settings = _SETTINGS.replace("</max-delivery-attempts>", "</max-delivery-attempts>" + _PAGES)
    core = "<global-max-size>900000</global-max-size>" if case == "no room" else ""
    with SecuredBroker(address_settings=settings, core=core) as broker:
        user = "taker" if case == "not managed" else "admin"
        many = Many(broker, tmp_path, unique, wire, user)
        with many.sidecar:
            many.kill(PAGED, size=1_000)
            assert many.ask("address.DLQ", "", attribute="Paging")
            before = many.places()
            many.sidecar.start()
            many.wait_until(PAGED)
            assert many.sidecar.stop() == 0
            many.sidecar.options.append("cycle.max_messages=3")
            many.sidecar.retry_under_kills(PAGED, PAGED // 5, kills=at_length(12, otherwise=4))
            lives = many.peer.consume(many.orders, count=PAGED // 5)
            taken = {int(str(one.test_id).removeprefix("n")) for one in lives}
            assert taken == set(list(before)[::5])
            many.wait_until(PAGED - len(taken))
            assert many.peer.consume(many.orders, wait_ms=300) == []
            left = {n: place for n, place in before.items() if n not in taken}
            if is_roomy:
                assert many.places() == left
            else:
                eventually(lambda: list(many.places()) == list(left), what="others are back")
            assert ("final_queue_read_whole" in many.sidecar.log()) is not is_roomy
            words = "so all of queue://DLQ are taken, and the others put back in their order"
            told = many.sidecar.run_command("operation show", "1"), many.sidecar.get(OPERATION)[1]
            assert [words in one for one in told] == [not is_roomy] * 2
