"""Notes by the library in `plugins/java`, of real clients of both APIs on real brokers."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import JmsPeer
from support.machine.applications import Application, noted
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
AT_ONCE = "jms.redeliveryPolicy.maximumRedeliveries=0"

FAILURE = "java.lang.IllegalArgumentException: no stock for item 7"
CAUSE = f"{FAILURE}\nCaused by: java.net.ConnectException: Connection refused"
THROWN = (
    "java.lang.IllegalArgumentException Caused by: java.net.ConnectException "
    "at NotedConsumer.handle"
)
ROLLED_BACK = "rolled back at NotedConsumer.giveBack"


class Client(NamedTuple):
    """How an application consumes.

    Attributes:
        broker: name of a fixture.
        failures: deliveries until the broker gives a message up.
    """

    broker: str
    api: str
    provider: str
    failures: int


CLIENTS = {
    "classic_5-javax": Client("classic_5", "javax", "openwire", 1),
    "classic_6-jakarta": Client("classic_6", "jakarta", "openwire", 1),
    "artemis-javax": Client("artemis", "javax", "core", 10),
    "artemis-jakarta": Client("artemis", "jakarta", "core", 10),
}
QUICK = {
    ("classic_5-javax", "listener"),
    ("classic_6-jakarta", "rollback"),
    ("artemis-jakarta", "told"),
}


class Story:
    """A consumer with the library, and a sidecar that reads its notes."""

    def __init__(
        self, request: pytest.FixtureRequest, folder: Path, unique: str, client: Client
    ) -> None:
        self.broker: Broker = request.getfixturevalue(client.broker)
        self.client = client
        self.queue, self.notes = f"e2e.late.{unique}", f"amqsidecar.causes.{unique}"
        self.peer = JmsPeer.of(self.broker, client.provider)
        is_artemis = client.broker == "artemis"
        self.sidecar = SidecarProcess(
            folder,
            str(getattr(self.broker, "pair_url" if is_artemis else "openwire_url")),
            policy=POLICIES / ("artemis.yaml" if is_artemis else "redelivery.yaml"),
            sets=[
                f"intake.cause_notes={self.notes}",
                "intake.backlog=process",
                "policy.verdicts=obey",
            ],
        )

    def command(self, how: str, *, notes: bool = True) -> list[str]:
        """Return the command of the consumer."""
        url = self.broker.jms_url(self.client.provider)
        if self.client.provider == "openwire":
            url = f"{url}?{AT_ONCE}"
        queue_of_notes = self.notes if notes else ""
        return noted(self.client.api, self.client.provider, url, self.queue, queue_of_notes, how)

    def explained(self) -> list[dict[str, Any]]:
        """Return the events of the notes in the history of the one message."""
        rows = self.sidecar.rows("--destination", self.queue)
        if not rows:
            return []
        shown = self.sidecar.json_command("show", rows[0]["redelivery_id"])
        return [one for one in shown["history"] if one["type"] == "explained"]


@pytest.mark.parametrize(
    ("client", "how"),
    [
        pytest.param(name, how, marks=[] if (name, how) in QUICK else pytest.mark.proof)
        for name in CLIENTS
        for how in ("listener", "rollback", "recover", "told")
    ],
)
def test_a_failed_delivery_has_one_note_and_returns_by_its_verdict(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, client: str, how: str
) -> None:
    story = Story(request, tmp_path, unique, CLIENTS[client])
    # Why: only where the exception is known there is a verdict on it.
    is_told = how in ("listener", "told")
    with story.sidecar.start(), Application(story.command(how), tmp_path) as application:
        story.peer.produce(story.queue, "Text")
        application.wait_for("failed")
        if is_told:
            application.wait_for("succeeded")
        else:
            eventually(lambda: len(story.explained()) == 1, what="the note")
            [explained] = story.explained()
            assert explained["cause"].startswith(f"{ROLLED_BACK}\n\t")
            assert "\tat NotedConsumer.giveBack(NotedConsumer.java:" in explained["cause"]
            assert explained["consumer"] == "orders-service 1.4.2"
        assert application.said("failed") == story.client.failures
        if is_told:
            [group] = story.sidecar.json_command("groups", "--destination", story.queue)
            assert group["cause_group"].startswith(f"{THROWN} [stack=")
            assert group["total"] == 1
        assert story.sidecar.stop() == 0


@pytest.mark.parametrize("client", [pytest.param(one, marks=pytest.mark.proof) for one in CLIENTS])
@pytest.mark.parametrize("how", ["listener", "rollback", "recover", "told"])
def test_deliveries_are_the_same_without_the_library(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, client: str, how: str
) -> None:
    """The message dies after as many deliveries, and waits as long."""
    story = Story(request, tmp_path, unique, CLIENTS[client])
    command = story.command(how, notes=False)
    with story.sidecar.start(), Application(command, tmp_path) as application:
        story.peer.produce(story.queue, "Text")
        eventually(lambda: story.sidecar.unsent() == 1, what="it has died")
        assert application.said("failed") == story.client.failures
        assert story.explained() == []
        assert story.sidecar.stop() == 0


SUBSCRIPTIONS = {
    "core-shared-durable-client": ("core", "shared-durable", "app.1", r"app\.1.s\.1"),
    "core-shared-durable": ("core", "shared-durable", "", r"s\.1"),
    "core-shared": ("core", "shared", "", r"nonDurable.s\.1"),
    "core-durable": ("core", "durable", "app.1", r"app\.1.s\.1"),
    "qpid-shared-durable-client": ("qpid", "shared-durable", "app.1", "app.1.s.1"),
    "qpid-shared-durable": ("qpid", "shared-durable", "", "s.1:global"),
    "qpid-shared": ("qpid", "shared", "", "s.1:shared-volatile:global"),
    "qpid-durable": ("qpid", "durable", "app.1", "app.1.s.1"),
}
"""Provider, kind, client id, and the name that Artemis gives the queue."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, marks=[] if one == "qpid-shared-durable" else pytest.mark.proof)
        for one in SUBSCRIPTIONS
    ],
)
def test_a_note_names_the_queue_of_a_subscription(
    artemis: ArtemisBroker, tmp_path: Path, unique: str, case: str
) -> None:
    """Without its name the note would be ambiguous, and its verdict ignored for an hour."""
    provider, kind, client_id, queue = SUBSCRIPTIONS[case]
    # Why: a client id and a subscription belong to one application of a broker.
    queue = queue.replace("s", f"s{unique}", 1) if not client_id else queue
    topic, subscription = f"e2e.late.{unique}", "s.1" if client_id else f"s{unique}.1"
    notes = f"amqsidecar.causes.{unique}"
    url = artemis.jms_url(provider)
    sets = [f"intake.cause_notes={notes}", "intake.backlog=process", "policy.verdicts=obey"]
    sidecar = SidecarProcess(
        tmp_path, artemis.pair_url, policy=POLICIES / "artemis.yaml", sets=sets
    )
    read = f"{kind} {topic} {subscription} {client_id}".strip()
    command = noted("jakarta", provider, url, read, notes, "told")
    with sidecar.start(), Application(command, tmp_path) as application:
        JmsPeer.of(artemis, provider).produce(f"topic://{topic}", "Text")
        application.wait_for("failed")
        application.wait_for("succeeded")
        [group] = sidecar.json_command("groups")
        assert group["destination"] == f"topic://{topic}::{queue}"
        assert group["cause_group"].startswith(f"{THROWN} [stack=")
        assert sidecar.stop() == 0
