"""The journal of a real service is its store's history, after any number of kills."""

import random
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.engine.crash_points import JOURNAL_NAMES
from amqsidecar.journals.folder import LocalFolder
from amqsidecar.stores.packing import unpack_events
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit
from support.brokers.real import ArtemisBroker
from support.histories.journal_rows import rows_in, wait_written
from support.jms.peer import FlakyConsumer, JmsPeer
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import COMMAND, SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = pytest.mark.broker

# Why: small cycles and segments, so that a run has many.
OPTIONS = (
    "cycle.max_messages=10",
    "intake.backlog=process",
    "journal.segment_events=20",
    "journal.segment_s=1",
)
ARTEMIS_SETTINGS = attempts_without_limit("DLQ")
BATCH = at_length(30, otherwise=12)
# How often the messages of a batch fail, batch after batch; -1: always.
FAILURES = (1, 2, -1)
RANDOM = "random"
KILLS = [*JOURNAL_NAMES, "committed", RANDOM]
KILLS += at_length([*JOURNAL_NAMES[1:3], "stored", RANDOM, RANDOM], otherwise=[])
MOST_BATCHES = 100
BLOCKS = "SELECT packing, body FROM {}event_block"
Rows = Counter[tuple[Any, ...]]


class Stage:
    """Applications whose messages die, and how a sidecar with a journal is run."""

    def __init__(self, broker: ArtemisBroker, queue: str, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.journal = folder / "journal"
        self.queue = queue
        self.peer = JmsPeer.of(broker, "qpid")
        self.failures = cycle(FAILURES)
        self.sent = 0
        self.policy = write_policy(folder, FOUR_ATTEMPTS)

    def sidecar(self, name: str, *sets: str) -> SidecarProcess:
        folder = self.folder / name
        folder.mkdir()
        options = (*OPTIONS, f"journal.path={self.journal}", *sets)
        return SidecarProcess(folder, self.broker.amqp_url, policy=self.policy, sets=options)

    def produce(self) -> None:
        self.peer.produce(
            self.queue, ["Text"], count=BATCH, properties={"failures": next(self.failures)}
        )
        self.sent += BATCH

    def consume(self) -> FlakyConsumer:
        self.consumer = self.peer.start_flaky_consumer(
            self.queue, failures_property="failures", how="reject"
        )
        return self.consumer

    def settle(self, sidecar: SidecarProcess) -> None:
        """Wait until nothing is on its way any more and all is in the journal."""

        def have_all_ended() -> bool:
            # Why by their ends: what is in somebody's hand is seen in no queue.
            ended = len({*self.consumer.succeeded()}) + sidecar.exhausted()
            return ended == self.sent and sidecar.unsent() == 0

        eventually(have_all_ended, every_s=1, what="all have succeeded or exhausted")
        wait_written(sidecar)

    def rows(self) -> Rows:
        return rows_of(rows_in(LocalFolder(self.journal, "test", lambda: None)))


def rows_of(rows: Iterable[dict[str, Any]]) -> Rows:
    return Counter(
        (row["type"], row["at"], row["row_id"], row["redelivery_id"], row["cycle"]) for row in rows
    )


def history_of(blocks: Iterable[tuple[int, bytes]]) -> Rows:
    """Return all events of a store, as its tables hold them."""
    events = [event for block in blocks for event in unpack_events(*block)]
    return rows_of(
        {
            "type": event.__struct_config__.tag,
            "at": event.at_ms,
            "row_id": event.id,
            "redelivery_id": event.redelivery_id,
            "cycle": getattr(event, "cycle", None),
        }
        for event in events
    )


def sqlite_history(sidecar: SidecarProcess) -> Rows:
    with sqlite3.connect(f"file:{sidecar.folder / 'schedule.db'}?mode=ro", uri=True) as store:
        return history_of(store.execute(BLOCKS.format("")).fetchall())


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS) as running:
        yield running


@pytest.fixture
def stage(broker: ArtemisBroker, unique: str, tmp_path: Path) -> Stage:
    return Stage(broker, unique, tmp_path)


def kill(stage: Stage, sidecar: SidecarProcess, name: str, chance: random.Random) -> None:
    """Start the sidecar and send it messages until it dies at a place, or kill it at any."""
    if name == RANDOM:
        sidecar.start()
        stage.produce()
        with pytest.raises(subprocess.TimeoutExpired):
            sidecar.process.wait(chance.uniform(0.2, 1.5))  # type: ignore[union-attr]
        sidecar.kill()
        return
    place = f"{name}:{chance.randint(1, 2)}"
    sidecar.start(ready=False, environ={CRASH_POINT_VARIABLE: place})
    process = sidecar.process
    assert process is not None
    for _ in range(MOST_BATCHES):
        stage.produce()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
            break
    assert process.poll() == -signal.SIGKILL, sidecar.log()[-4000:]


def test_a_sidecar_that_is_killed_again_and_again_writes_each_event_once(stage: Stage) -> None:
    """Then its journal is compacted, and that is killed, too."""
    chance = random.Random()
    names = list(KILLS)
    chance.shuffle(names)
    with stage.sidecar("one") as sidecar, stage.consume():
        for name in names:
            kill(stage, sidecar, name, chance)
        sidecar.start()
        stage.settle(sidecar)
        assert sidecar.stop() == 0
    history = sqlite_history(sidecar)
    assert stage.rows() == history
    found = sidecar.json_command("journal verify")
    assert (found["faults"], found["compared"]) == ([], history.total())
    assert found["streams"][0]["last"] > len(KILLS)

    for _ in range(3):
        command = [*COMMAND, "journal", "compact", *sidecar._sets()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(chance.uniform(0.5, 1.5))
            except subprocess.TimeoutExpired:
                process.kill()
        assert stage.rows() == history
    sidecar.json_command("journal compact")
    assert stage.rows() == history
    found = sidecar.json_command("journal verify")
    assert (found["faults"], found["compared"]) == ([], history.total())
    assert found["streams"][0]["files"] < found["streams"][0]["last"]
