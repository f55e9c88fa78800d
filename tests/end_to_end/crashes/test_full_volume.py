"""A full volume: taking stops, sending goes on, people's actions work, and nothing is lost."""

import json
import random
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.journals.folder import LocalFolder
from support.brokers.real import ClassicBroker
from support.histories.journal_rows import rows_in, wait_written
from support.jms.message import typed
from support.jms.peer import JmsPeer
from support.machine.small_volume import SmallVolume, small_volume
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
MESSAGES = 240
BODY = 48 * 1024
STOPPED = "amqsidecar_taking_stopped"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[SmallVolume]:
    with small_volume(tmp_path / "volume", 16) as mounted:
        yield mounted


@pytest.fixture
def classic() -> Iterator[ClassicBroker]:
    """A broker of each test's own: what a test leaves in the dead-letter queue is taken next."""
    with ClassicBroker(CLASSIC_6) as broker:
        yield broker


def attach(folder: Path, broker: ClassicBroker, volume: SmallVolume, *sets: str) -> SidecarProcess:
    store = f"store.url=sqlite:///{volume.folder / 'schedule.db'}"
    return SidecarProcess(
        folder,
        broker.openwire_url,
        policy=POLICIES / "redelivery.yaml",
        sets=["intake.backlog=process", store, *sets],
    )


def total(sidecar: SidecarProcess) -> int:
    return sidecar.finished_status().total


def die(peer: JmsPeer, queue: str) -> set[str]:
    """Let more messages die than the volume holds; return their test ids."""
    chance = random.Random(queue)
    names = [f"{queue}-{number}" for number in range(MESSAGES)]
    peer.produce_each(
        [
            # Why chance: nothing makes such a body much smaller.
            {
                "destination": queue,
                "type": "Text",
                "text": b64encode(chance.randbytes(BODY)).decode(),
                "properties": typed({"testId": name}),
            }
            for name in names
        ]
    )
    peer.fail(queue, "rollback", messages=MESSAGES, deliveries=1, quiet_ms=0)
    return set(names)


def consumed(
    peer: JmsPeer, queue: str, count: int, *, wait_ms: int = 30_000
) -> Counter[str | None]:
    return Counter(one.test_id for one in peer.consume(queue, count, wait_ms=wait_ms))


def stopped(sidecar: SidecarProcess) -> bool:
    return sidecar.metric(STOPPED) == 1


def stays_stopped(sidecar: SidecarProcess, volume: SmallVolume) -> bool:
    """Whether nothing is taken any more: cutting the log makes room, so it has been cut before."""
    return (
        (volume.folder / "schedule.db-wal").stat().st_size == 0
        and stopped(sidecar)
        and not sidecar.json_command("status")["room"]["is_enough"]
    )


def test_taking_stops_sending_goes_on_and_all_arrives_once(
    classic: ClassicBroker, volume: SmallVolume, tmp_path: Path, unique: str
) -> None:
    """What does not fit stays in the broker; the rest can be thrown away, sent, and makes room."""
    queue, peer = f"e2e.late.{unique}", JmsPeer.of(classic, "openwire")
    names = die(peer, queue)
    with attach(tmp_path, classic, volume) as sidecar:
        sidecar.start()
        eventually(lambda: stays_stopped(sidecar, volume), what="taking stops")
        taken = total(sidecar)
        assert 0 < taken < MESSAGES
        status, body = sidecar.get("/readyz")
        assert status == 200
        assert "no dead letters are taken" in json.loads(body)["taking"]["reason"]
        assert "taking" in sidecar.run_command("status")

        rows = sidecar.rows("--destination", queue, "--limit", "1000")
        gone = [str(row["id"]) for row in rows[:20]]
        sidecar.run_command("discard", *gone, "--yes")
        assert total(sidecar) <= taken - 20 + 1

        received: Counter[str | None] = Counter()
        while received.total() < MESSAGES - 20:
            # Why any exit code: nothing may wait before the next messages are taken.
            sidecar.try_command("retry", "--destination", queue, "--yes")
            received += consumed(peer, queue, MESSAGES - 20 - received.total(), wait_ms=2_000)
        assert set(received.values()) == {1}
        assert set(received) <= names
        assert peer.consume(queue) == []
        eventually(lambda: total(sidecar) == 0, what="all is sent")
        eventually(lambda: not stopped(sidecar), what="there is room again")


def test_what_waits_is_sent_after_a_restart_on_a_volume_full_to_its_last_byte(
    classic: ClassicBroker, volume: SmallVolume, tmp_path: Path, unique: str
) -> None:
    queue, peer = f"e2e.late.{unique}", JmsPeer.of(classic, "openwire")
    die(peer, queue)
    with attach(tmp_path, classic, volume) as sidecar:
        sidecar.start()
        eventually(lambda: stopped(sidecar), what="taking stops")
        sidecar.kill()
        volume.fill()
        assert volume.free_bytes() == 0
        sidecar.start()
        taken = total(sidecar)
        sidecar.run_command("give-up", str(first_id(sidecar, queue)), "--yes")
        sidecar.run_command("discard", str(first_id(sidecar, queue)), "--yes")
        sidecar.run_command("retry", "--destination", queue, "--yes")
        received = consumed(peer, queue, taken - 2)
        assert (sum(received.values()), set(received.values())) == (taken - 2, {1})
        volume.free()
        eventually(lambda: not stopped(sidecar), what="there is room again")


def first_id(sidecar: SidecarProcess, queue: str) -> int:
    rows = sidecar.rows("--destination", queue, "--state", "waiting")
    return int(rows[0]["id"])


def test_a_journal_beside_the_store_leaves_it_the_reserve_and_loses_nothing(
    classic: ClassicBroker, volume: SmallVolume, tmp_path: Path, unique: str
) -> None:
    queue, peer = f"e2e.late.{unique}", JmsPeer.of(classic, "openwire")
    names = die(peer, queue)
    journal = volume.folder / "journal"
    sets = (f"journal.path={journal}", "journal.segment_events=20", "journal.segment_s=1")
    with attach(tmp_path, classic, volume, *sets).running() as sidecar:
        eventually(lambda: stays_stopped(sidecar, volume), what="taking stops")
        eventually(
            lambda: sidecar.metric("amqsidecar_journal_failures_total") > 0,
            what="the journal waits",
        )
        words = "the journal on the same volume waits too"
        eventually(lambda: words in sidecar.log(), what="the log says so")
        assert sidecar.metric("amqsidecar_journal_lag_seconds") > 0
        written = sidecar.metric("amqsidecar_journal_written_bytes_total")
        sidecar.run_command("discard", str(first_id(sidecar, queue)), "--yes")
        assert stopped(sidecar)
        assert sidecar.metric("amqsidecar_journal_written_bytes_total") == written

        received: Counter[str | None] = Counter()
        while received.total() < MESSAGES - 1:
            # Why any exit code: nothing may wait before the next messages are taken.
            sidecar.try_command("retry", "--destination", queue, "--yes")
            received += consumed(peer, queue, MESSAGES - 1 - received.total(), wait_ms=2_000)
        assert set(received.values()) == {1}
        assert set(received) <= names
        eventually(lambda: total(sidecar) == 0, what="all is sent")
        wait_written(sidecar)
    found = sidecar.json_command("journal verify")
    rows = rows_in(LocalFolder(journal, "test", lambda: None))
    assert (found["faults"], found["compared"]) == ([], len(rows))
    counts = Counter(row["type"] for row in rows)
    assert (counts["received"], counts["discarded"]) == (MESSAGES, 1)
    assert counts["resent"] == MESSAGES - 1
