"""Bulk operations on a real broker stop themselves, leave nothing in between, survive kills."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.model.event import Retried
from amqsidecar.model.operation import Operation
from amqsidecar.stores.sqlite.store import SqliteStore
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.process import COMMAND, SidecarProcess
from support.stores.newer import NewerSelection, newer_operation
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"


class Site:
    """A queue whose dead letters a sidecar holds."""

    def __init__(self, broker: ArtemisBroker, queue: str, sidecar: SidecarProcess) -> None:
        self.queue = queue
        self.sidecar = sidecar
        self.peer = JmsPeer.of(broker, "qpid")

    def hold(self, count: int) -> None:
        """Make all sent messages die, and the sidecar hold them."""
        self.peer.fail(self.queue, "reject", messages=count, deliveries=1, quiet_ms=0)
        self.sidecar.start()
        eventually(lambda: self.count("held") == count, what=f"{count} are held")

    def count(self, state: str) -> int:
        tallies = self.sidecar.json_command("status")["waiting"]
        return sum(one["count"] for one in tallies if one["state"] == state)

    @contextmanager
    def opened(self) -> Iterator[SqliteStore]:
        """Read the store beside the service; a command takes half a second to start."""
        path = self.sidecar.folder / "schedule.db"
        store = SqliteStore(path, clock=SystemClock(), read_only=True)
        try:
            store.open()
            yield store
        finally:
            store.close()

    def operation(self) -> Operation | None:
        """Return the first operation."""
        with self.opened() as store:
            return store.operation(1)

    def wait_for(self, condition: Callable[[Operation], bool], what: str) -> Operation:
        def found() -> Operation | None:
            operation = self.operation()
            return operation if operation is not None and condition(operation) else None

        return eventually(found, what=what)

    def retried(self) -> Counter[str]:
        """Return how often each message was retried, as the history has it."""
        with self.opened() as store:
            members = store.members(1, None, 10_000)
            events = [event for one in members for event in store.history(one.redelivery_id)]
        return Counter(event.redelivery_id for event in events if isinstance(event, Retried))

    def consumed(self, count: int) -> list[str]:
        found = self.peer.consume(self.queue, count=count)
        assert self.peer.consume(self.queue, wait_ms=300) == []
        return sorted(one.test_id for one in found)


@pytest.fixture
def site(artemis: ArtemisBroker, tmp_path: Path, unique: str) -> Iterator[Site]:
    queue = f"e2e.late.{unique}"
    harness = AmqpArtemisHarness(artemis, queue)
    harness.kill_at_first_failure(queue)
    harness.close()
    with SidecarProcess(
        tmp_path,
        artemis.pair_url,
        policy=POLICY,
        sets=[f"intake.queues={queue}.DLQ", "intake.backlog_threshold=1"],
    ) as sidecar:
        yield Site(artemis, queue, sidecar)


def test_a_careful_replay_of_which_30_percent_fail_stops_itself(site: Site) -> None:
    """The application fails three of ten for ever; of 2,000 not even 200 are sent."""
    blocks = [*[(7, 3)] * 20, (1_260, 540)]
    for number, (good, bad) in enumerate(blocks):
        for failures, count in ((0, good), (1_000, bad)):
            name = f"m{number}-{failures}-"
            properties = {"failures": failures}
            site.peer.fill(site.queue, count, size=10, test_id=name, properties=properties)
    sent = sum(map(sum, blocks))
    site.hold(sent)

    with site.peer.start_flaky_consumer(
        site.queue, failures_property="failures", how="reject"
    ) as consumer:
        said = site.sidecar.run_command(
            *("retry", "--destination", site.queue, "--yes", "--careful", "--window", "10s"),
            *("--output", "json"),
            expect=69,
        )
        stopped = json.loads(said)["operation"]
        handed = [one for one in consumer.events() if one.outcome in ("failing", "succeeding")]

    assert (stopped["state"], stopped["expected"]) == ("stopped", sent)
    assert "re-sent messages came back; no more than 10% may" in stopped["state_reason"]
    assert len(handed) <= stopped["changed"] <= 200
    assert site.count("held") == sent - stopped["changed"]
    came_back = site.sidecar.json_command("operation show", "1", "--members", "came_back")
    assert len(came_back["members"]) == came_back["outcomes"]["came_back"] >= 6
    assert {one["evidence"] for one in came_back["members"]} == {"it died again"}


def test_cancelled_in_the_middle_every_message_is_in_one_place(site: Site) -> None:
    sent = site.peer.produce(site.queue, "Text", count=200)
    site.hold(200)
    site.sidecar.json_command(
        *("retry", "--destination", site.queue, "--yes", "--pace", "20", "--detach")
    )
    site.wait_for(lambda one: one.changed >= 20, "some are changed")
    over = site.sidecar.json_command("operation cancel", "1", "--reason", "wrong queue")
    changed = over["operation"]["changed"]
    assert 20 <= changed < 200
    site.wait_for(lambda one: one.resent == one.changed == changed, "these are sent")

    held = site.count("held")
    assert (held, site.count("waiting")) == (200 - changed, 0)
    gone = site.consumed(changed)
    assert set(site.retried().values()) == {1}
    site.sidecar.json_command("retry", "--destination", site.queue, "--yes")
    assert sorted([*gone, *site.consumed(held)]) == sorted(one.test_id for one in sent)


def test_the_command_and_the_service_die_and_the_operation_goes_on(site: Site) -> None:
    sent = site.peer.produce(site.queue, "Text", count=160)
    site.hold(160)
    command = subprocess.Popen(
        [*COMMAND, "retry", *site.sidecar._sets(), "--all", "--yes", "--pace", "40"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        site.wait_for(lambda one: one.changed >= 30, "some are changed")
    finally:
        command.kill()
        command.wait()
    by_command = site.operation()
    assert by_command is not None
    assert (by_command.state, by_command.runner[:4]) == ("running", "cli:")

    by_service = site.wait_for(lambda one: one.changed > by_command.changed, "the service goes on")
    site.sidecar.kill()
    assert (by_service.state, by_service.runner[:8]) == ("running", "service:")
    assert by_service.changed < 160

    site.sidecar.start()
    done = site.wait_for(lambda one: one.state == "done", "it is done")
    assert (done.matched, done.changed) == (160, 160)
    assert site.consumed(160) == sorted(one.test_id for one in sent)
    retried = site.retried()
    assert (len(retried), set(retried.values())) == (160, {1})


def left_to_newer(sidecar: SidecarProcess) -> list[str]:
    lines = sidecar.log_lines()
    return [one["reason"] for one in lines if one["event"] == "operation_left"]


def test_an_operation_of_a_newer_version_waits_while_others_go_on(site: Site) -> None:
    """Also over a restart; a person may end it here, and not resume it."""
    site.peer.fill(site.queue, 6, size=10, test_id="m")
    site.hold(6)
    store = SqliteStore(site.sidecar.folder / "schedule.db", clock=SystemClock())
    store.open()
    newer = newer_operation(selection=NewerSelection(headers=(("tenant", "A"),)))
    number = str(store.add_operation(newer).id)
    store.close()
    site.sidecar.run_command("retry", "--destination", site.queue, "--limit", "2", "--yes")
    assert len(site.consumed(2)) == 2
    site.sidecar.kill()
    site.sidecar.start()
    eventually(lambda: left_to_newer(site.sidecar), what="it says so")
    assert site.count("held") == 4
    said = site.sidecar.run_command("operation show", number)
    assert "only sidecars of a newer version" in said
    site.sidecar.run_command("operation pause", number)
    refused = site.sidecar.try_command("operation resume", number)
    assert (refused.returncode, "selection.headers" in refused.stderr) == (2, True)
    site.sidecar.run_command("operation cancel", number)
    with site.opened() as store:
        [(body,)] = store._database.rows("read_operation", number=int(number))
    ended = json.loads(body)
    assert (ended["state"], ended["changed"]) == ("cancelled", 0)
    assert ended["selection"]["headers"] == [["tenant", "A"]]
    assert len(left_to_newer(site.sidecar)) == 1
