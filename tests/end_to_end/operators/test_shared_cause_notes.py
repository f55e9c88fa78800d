"""Notes of consumers where two sidecars share a schedule: each may read those of any death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.brokers.real import Broker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

POLICIES = Path(__file__).parents[1] / "policies"
COUNT = 12
HOUR_MS = 3_600_000
WIRES = [("artemis", "pair", "qpid"), ("classic_6", "openwire", "openwire")]


class Shared:
    """A queue whose consumers write notes, and two sidecars with one schedule."""

    def __init__(
        self, broker: Broker, wire: str, provider: str, store_url: str, queue: str, folder: Path
    ) -> None:
        self.peer = JmsPeer.of(broker, provider)
        self.store_url = store_url
        self.queue, self.notes = queue, f"amqsidecar.causes.{queue}"
        policy = POLICIES / ("artemis.yaml" if provider == "qpid" else "redelivery.yaml")
        sets = [
            f"intake.cause_notes={self.notes}",
            f"store.url={store_url}",
            "intake.backlog=process",
            "policy.verdicts=obey",
        ]
        url = getattr(broker, f"{wire}_url")
        self.sidecars = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            self.sidecars.append(SidecarProcess(folder / name, url, policy=policy, sets=sets))

    def produce(self, count: int) -> list[JmsMessage]:
        return self.peer.produce(
            self.queue, "Text", count=count, group=None, sample_properties=False, text="an order"
        )

    def write(self, message: JmsMessage, **fields: Any) -> None:
        text = json.dumps({"message_id": message.message_id, "exception": "shop.Bug", **fields})
        self.peer.produce(self.notes, "Text", text=text, group=None, sample_properties=False)

    def fail(self, count: int) -> None:
        how = "reject" if self.peer.provider == "qpid" else "rollback"
        self.peer.fail(self.queue, how, messages=count, deliveries=1)

    def handed_over(self) -> int:
        """Return how often notes were handed over."""
        with psycopg.connect(self.store_url) as connection:
            return len(connection.execute("SELECT 1 FROM amqsidecar.shared_note").fetchall())

    def rows(self) -> list[dict[str, Any]]:
        return self.sidecars[0].rows("--destination", self.queue)

    def explained(self, row: dict[str, Any]) -> int:
        history = self.sidecars[0].json_command("show", str(row["id"]))["history"]
        return sum(one["type"] == "explained" for one in history)


@pytest.fixture(
    params=[WIRES[0], pytest.param(WIRES[1], marks=pytest.mark.proof)], ids=lambda wire: wire[0]
)
def shared(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, postgres_url: str
) -> Iterator[Shared]:
    name, wire, provider = request.param
    broker: Broker = request.getfixturevalue(name)
    made = Shared(broker, wire, provider, postgres_url, f"e2e.late.{unique}", tmp_path)
    with ExitStack() as stack:
        for sidecar in made.sidecars:
            stack.enter_context(sidecar)
            sidecar.start()
        yield made


def test_a_note_explains_its_death_once_whichever_sidecar_reads_each(shared: Shared) -> None:
    """Half of the notes come before the deaths, half after; each is obeyed."""
    messages = shared.produce(COUNT)
    verdict = {"action": "retry_after", "delay_ms": 2 * HOUR_MS}
    for message in messages[::2]:
        shared.write(message, verdict=verdict)
    shared.fail(COUNT)
    eventually(lambda: len(shared.rows()) == COUNT, what="all have died")
    for message in messages[1::2]:
        shared.write(message, verdict=verdict, redelivery_count=0)

    def are_obeyed() -> bool:
        delays = [row["due_at_ms"] - row["received_at_ms"] for row in shared.rows()]
        return delays == [2 * HOUR_MS] * COUNT

    eventually(are_obeyed, what="all verdicts are obeyed", last=lambda _: shared.rows())
    rows = shared.rows()
    assert {row["cause"] for row in rows} == {"shop.Bug"}
    assert [shared.explained(row) for row in rows] == [1] * COUNT


def test_a_note_outlives_the_death_of_the_sidecar_that_read_it(shared: Shared) -> None:
    survivor, victim = shared.sidecars
    assert survivor.stop() == 0
    [message] = shared.produce(1)
    shared.write(message)
    eventually(lambda: shared.handed_over() == 1, what="the note is in the database")
    victim.kill()
    survivor.start()
    shared.fail(1)
    eventually(lambda: [row["cause"] for row in shared.rows()] == ["shop.Bug"], what="its cause")
    assert [shared.explained(row) for row in shared.rows()] == [1]
