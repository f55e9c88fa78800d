"""A plan of bulk redelivery is executed: each planned message once, no other touched."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from proton import Message

from amqsidecar.engine import crash_points
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker, Broker
from support.jms.ledger import altered
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar.process import SidecarProcess
from support.sidecar.redrive import PLAN_ID, RedriveProcess, write_plan
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
FINAL = "DLQ.exhausted"
MESSAGES = 600
KILLS = [*(f"{name}:3" for name in crash_points.NAMES), "committing:1", "sent:7"]


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    """A broker of our own: whole queues are compared."""
    with ArtemisBroker() as running:
        yield running


class Dead:
    """Messages of one queue that ended in the final dead-letter queue."""

    def __init__(self, broker: Broker, url: str, queue: str, folder: Path, count: int) -> None:
        self.url = url
        self.queue = queue
        self.folder = folder
        self.peer = JmsPeer.of(broker, "qpid")
        self.sidecar = SidecarProcess(folder, url, policy=POLICY, sets=["intake.backlog=process"])
        self.sent = self.peer.produce(queue, count=count // 6, transacted=True)
        self.peer.fail(queue, "reject", messages=len(self.sent), deliveries=1, quiet_ms=0)
        with self.sidecar.start():
            eventually(
                lambda: self.sidecar.metric("amqsidecar_exhausted_total") == len(self.sent),
                what="all are exhausted",
            )
            eventually(lambda: self.sidecar.unsent() == 0, what="and final")
            assert self.sidecar.stop() == 0
        self.ids = [str(one.value("amqsidecarRedeliveryId")) for one in self.lying()]

    def lying(self) -> list[JmsMessage]:
        """Return what lies in the final queue of ours, in order."""
        return [
            one
            for one in self.peer.browse(FINAL)
            if str(one.value("testId")) in {str(sent.test_id) for sent in self.sent}
        ]

    def double(self, redelivery_id: str) -> None:
        """Put another message with the same redelivery id at the end of the final queue."""
        properties = {"amqsidecarRedeliveryId": redelivery_id}
        self.sent += self.peer.produce(FINAL, "Text", properties=properties)

    def rows(self, ids: list[str], offset_ms: int = 0) -> list[dict[str, object]]:
        """Return rows of a plan that sends these back to where they died."""
        place = {"source": f"queue://{FINAL}", "destination": f"queue://{self.queue}"}
        return [{"redelivery_id": one, "offset_ms": offset_ms, **place} for one in ids]

    def execution(self, rows: list[dict[str, object]], *arguments: str) -> RedriveProcess:
        """Write a plan and return the command that executes it."""
        plan = write_plan(self.folder / "plan", rows)
        return RedriveProcess(plan, self.folder / "state", self.url, *arguments)

    def arrived(self, count: int) -> list[JmsMessage]:
        """Take what is in the original queue, at least this many."""
        found = self.peer.consume(self.queue, count=count) if count else []
        return found + self.peer.consume(self.queue, wait_ms=500)


@pytest.fixture(params=["artemis", pytest.param("amqp", marks=pytest.mark.proof)])
def url(broker: ArtemisBroker, request: pytest.FixtureRequest) -> str:
    return broker.pair_url if request.param == "artemis" else broker.amqp_url


@pytest.fixture
def dead(
    broker: Broker, url: str, unique: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Dead:
    return Dead(broker, url, unique, tmp_path, getattr(request, "param", 30))


def ids_of(messages: list[JmsMessage]) -> list[str]:
    return [str(one.value("amqsidecarRedeliveryId")) for one in messages]


@pytest.mark.parametrize("dead", [MESSAGES], indirect=True)
def test_each_planned_message_is_sent_once_whenever_the_execution_is_killed(dead: Dead) -> None:
    """Two of three are planned, in another order than they lie in."""
    planned = [one for at, one in enumerate(dead.ids) if at % 3][::-1]
    others = [one for at, one in enumerate(dead.ids) if not at % 3]
    journal = dead.folder / "journal"
    execution = dead.execution(
        dead.rows(planned), "--set=cycle.max_messages=20", f"--set=journal.path={journal}"
    )
    for place in KILLS:
        execution.dies(place)
    outcome = execution.outcome()
    arrived = dead.arrived(len(planned))
    assert Counter(ids_of(arrived)) == Counter(planned), outcome
    eventually(lambda: ids_of(dead.lying()) == others, what="the others are there")
    assert altered(dead.sent, [], arrived) == []
    assert {one.value("amqsidecarRedeliveryCount") for one in arrived} == {1}
    assert outcome == {
        "plan_id": PLAN_ID,
        "planned": len(planned),
        "sent": len(planned),
        "waiting": 0,
        "parked": 0,
        "left": {},
        "stopped": False,
    }
    assert execution.outcome() == outcome
    assert dead.arrived(0) == []
    told = pq.read_table(journal, columns=["type", "redelivery_id"], partitioning=None).to_pylist()
    for kind in ("retried", "resent"):
        ids = [one["redelivery_id"] for one in told if one["type"] == kind]
        assert Counter(ids) == Counter(planned)


def test_what_is_not_there_or_can_not_be_sent_is_left_and_reported(dead: Dead) -> None:
    """Of two messages with the same id the first goes, and the other stays."""
    first, second, *others = dead.ids
    dead.double(first)
    rows = dead.rows([first, "never-was", second])
    rows[2]["destination"] = "queue://activemq.management"
    outcome = dead.execution(rows).outcome()
    assert outcome["left"] == {"not_in_queue": 1, "no_route": 1}
    assert ids_of(dead.arrived(1)) == [first]
    eventually(
        lambda: ids_of(dead.lying()) == [second, *others, first], what="the others are there"
    )
    assert outcome["sent"] == 1
    assert outcome["left"] == {"not_in_queue": 1, "no_route": 1}


def test_it_stops_between_cycles_and_the_same_command_goes_on(dead: Dead) -> None:
    """Messages not due soon stay in their queue; only one process executes the plan."""
    half = len(dead.ids) // 2
    rows = dead.rows(dead.ids[:half]) + dead.rows(dead.ids[half:], offset_ms=3_600_000)
    execution = dead.execution(rows)
    process = execution.start()
    try:
        eventually(lambda: len(dead.peer.browse(dead.queue)) == half, what="the first half is sent")
        # Why waited for: what is given back is in its queue a moment later.
        eventually(lambda: ids_of(dead.lying()) == dead.ids[half:], what="the other half is there")
        rival = RedriveProcess(dead.folder / "plan", dead.folder / "rival", dead.url)
        assert "another process executes this plan" in rival.run(expect=69).stderr
        process.send_signal(signal.SIGINT)
        said, words = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 130, words
    outcome = json.loads(said)
    assert outcome["stopped"]
    assert (outcome["sent"], outcome["waiting"]) == (half, 0)
    assert execution.outcome()["sent"] == len(dead.ids)
    assert ids_of(dead.arrived(len(dead.ids))) == dead.ids


def test_a_link_finds_chosen_messages_behind_many_others(broker: Broker, unique: str) -> None:
    """The broker's own count sees the first 200 only."""
    harness = AmqpArtemisHarness(broker, unique)
    ids = [f"r-{number}" for number in range(300)]
    name = f"{unique}.final"
    harness.send(
        name,
        [
            Message(durable=True, body=one, properties={"amqsidecarRedeliveryId": one})
            for one in (*ids, ids[-1])
        ],
    )
    link = harness.make_link(unique).take(f"{unique}.token")
    choosing = link.features.choosing
    assert choosing is not None
    try:
        assert choosing.holds_chosen(queue(name), ["none", ids[-1]])
        assert not choosing.holds_chosen(queue(name), ["none"])
        wanted = {queue(name): [ids[-1], "it's none", ids[250]]}
        choosing.choose(wanted)
        link.wait(10.0)
        choosing.choose({})
        assert choosing.holds_chosen(queue(name), [ids[250]])
        choosing.choose(wanted)
        found: list[str | None] = []
        while len(found) < 2:
            link.wait(10.0)
            found += [one.provenance.redelivery_id for one in link.receive(1000)]
        assert found == [ids[250], ids[-1]]
        assert not choosing.holds_chosen(queue(name), [ids[250]])
    finally:
        link.close()
        harness.close()
    eventually(
        # Why not at once: Artemis counts a message that is handed back twice for a moment.
        lambda: harness_depth(broker, unique, name) == len(ids) + 1,
        what="all are in their queue",
    )


def harness_depth(broker: Broker, unique: str, name: str) -> int:
    """Return how many messages a queue holds once all links are closed."""
    harness = AmqpArtemisHarness(broker, f"{unique}.after")
    try:
        return harness.depth(name)
    finally:
        harness.close()


def test_classic_is_refused_with_what_to_do_instead(
    classic_6: Broker, tmp_path: Path, unique: str
) -> None:
    row = {"redelivery_id": "a-1", "source": "queue://DLQ", "destination": f"queue://{unique}"}
    plan = write_plan(tmp_path / "plan", [row])
    execution = RedriveProcess(plan, tmp_path / "state", classic_6.openwire_url)
    assert "only over AMQP on Artemis" in execution.run(expect=69).stderr


def test_what_a_running_sidecar_holds_is_made_due_once(
    broker: Broker, url: str, unique: str, tmp_path: Path
) -> None:
    """A second execution of the same plan, with a state of its own, finds it done."""
    peer, queue = JmsPeer.of(broker, "qpid"), f"e2e.back.{unique}"
    sent = peer.produce(queue, "Text", count=10)
    peer.fail(queue, "reject", messages=len(sent), deliveries=1, quiet_ms=0)
    sidecar = SidecarProcess(tmp_path, url, policy=POLICY, sets=["intake.backlog_threshold=0"])
    with sidecar.start():
        listed = eventually(lambda: held(sidecar, len(sent)), what="all are held")
        rows = [
            {name: one[name] for name in ("redelivery_id", "source", "destination")}
            | {"place": "store"}
            for one in listed[1:]
        ]
        plan = write_plan(tmp_path / "plan", rows)
        from_store = ("--from=store", f"--set=store.url=sqlite:///{tmp_path / 'schedule.db'}")
        for state in ("state", "another"):
            execution = RedriveProcess(plan, tmp_path / state, url, *from_store)
            assert execution.outcome()["sent"] == len(rows)
        assert len(peer.consume(queue, count=len(rows))) == len(rows)
        assert peer.consume(queue, wait_ms=500) == []
        assert [one["id"] for one in held(sidecar, 1)] == [listed[0]["id"]]


def held(sidecar: SidecarProcess, count: int) -> list[dict[str, object]]:
    """Return the held messages once there are this many."""
    found = sidecar.json_command("list", "--state", "held")["rows"]
    return found if len(found) == count else []
