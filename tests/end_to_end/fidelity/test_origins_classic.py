"""What else acts on an origin acts once, with the sidecar as with the in-broker plugin.

Each row of the table is one kind of origin. It is played with the plugin, and with the sidecar over
each wire; `deploy/reference/origins.md` says what becomes of each.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_xml import classic_xml
from support.brokers.real import ClassicBroker
from support.jms.message import Typed
from support.jms.peer import FlakyConsumer, JmsPeer
from support.jms.redelivered import RECEIPTS
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

VERSIONS = (CLASSIC_5, CLASSIC_6)
WIRES = ("openwire", "stomp", "amqp")


def each_wire(kept: Mapping[str, str]) -> pytest.MarkDecorator:
    """Try each wire on both versions; in `make test` those that are kept on the version there."""
    return pytest.mark.parametrize(
        ("version", "wire"),
        [
            pytest.param(
                version, wire, marks=[] if kept.get(wire) == version else pytest.mark.proof
            )
            for wire in WIRES
            for version in VERSIONS
        ],
    )


FIRST_SENDS = "amqsidecarRedeliveryCount IS NULL"
TTL_MS = 600_000
MESSAGES = 2
DEATHS = 2

PLUGIN = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
      <redeliveryPolicy maximumRedeliveries="4" initialRedeliveryDelay="1000"/>
    </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
COMPOSITES = f"""
    <virtualDestinationInterceptor><virtualDestinations>
      <virtualTopic name="VirtualTopic.>"/>
      <compositeQueue name="only">
        <forwardTo><queue physicalName="only.a"/><queue physicalName="only.b"/></forwardTo>
      </compositeQueue>
      <compositeQueue name="copied" forwardOnly="false">
        <forwardTo><queue physicalName="copied.copy"/></forwardTo>
      </compositeQueue>
      <compositeQueue name="told" forwardOnly="false">
        <forwardTo><topic physicalName="told.topic"/></forwardTo>
      </compositeQueue>
      <compositeQueue name="filtered" forwardOnly="false"><forwardTo>
        <filteredDestination selector="{FIRST_SENDS}" queue="filtered.copy"/>
      </forwardTo></compositeQueue>
      <compositeQueue name="sifted" forwardOnly="false"><forwardTo>
        <filteredDestination selector="{FIRST_SENDS}" topic="sifted.topic"/>
      </forwardTo></compositeQueue>
      <compositeQueue name="unmatched" sendWhenNotMatched="true"><forwardTo>
        <filteredDestination selector="kind = 'other'" queue="unmatched.copy"/>
      </forwardTo></compositeQueue>
    </virtualDestinations></virtualDestinationInterceptor>
"""
MIRROR = "<mirroredQueue/>"
MIRROR_WITHOUT_COPY = '<mirroredQueue copyMessage="false"/>'
STRATEGIES = """
    <policyEntry queue=">"><deadLetterStrategy>
      <individualDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="priority" prioritizedMessages="true"><deadLetterStrategy>
      <individualDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
    <policyEntry tempQueue="true"><deadLetterStrategy>
      <individualDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
"""


def activemq_xml(interceptors: str, plugins: str = "") -> str:
    """Return the file of a broker with these interceptors."""
    text = classic_xml(destination_policy=STRATEGIES, plugins=plugins, scheduler_support=True)
    inside = f"<destinationInterceptors>{interceptors}</destinationInterceptors>"
    return text.replace("<destinationPolicy>", f"{inside}<destinationPolicy>", 1)


@dataclass(frozen=True)
class Row:
    """One kind of origin, and what an application does with it.

    Attributes:
        send_to: where messages are sent.
        fails_at: what is consumed by an application that fails each message twice.
        seen_at: what others consume, who fail nothing.
        rival: another application consumes `fails_at`, and fails as the first one does.
        sent: further arguments of `JmsPeer.produce`.
    """

    name: str
    send_to: str
    fails_at: str
    seen_at: tuple[str, ...] = ()
    rival: bool = False
    sent: Mapping[str, Any] = field(default_factory=dict)


COPIED = Row("composite, forwardOnly=false", "copied", "copied", ("copied.copy",))
TOLD = Row("composite with a topic, forwardOnly=false", "told", "told", ("topic://told.topic",))
FILTERED = Row("composite with a filter", "filtered", "filtered", ("filtered.copy",))
FILTERED_TOPIC = Row(
    "composite with a filtered topic", "sifted", "sifted", ("topic://sifted.topic",)
)
SAME = (
    Row("plain", "plain", "plain"),
    Row("composite", "only", "only.a", ("only.b",)),
    FILTERED,
    Row("composite, sendWhenNotMatched", "unmatched", "unmatched", ("unmatched.copy",)),
    Row(
        "virtual topic",
        "topic://VirtualTopic.news",
        "Consumer.A.VirtualTopic.news",
        ("Consumer.B.VirtualTopic.news",),
    ),
    Row("exclusive consumer", "single", "single?consumer.exclusive=true", rival=True),
    Row("message groups", "grouped", "grouped", sent={"group": "g"}),
    Row("wildcard consumer", "wild.a.b", "wild.>"),
    Row("priority", "priority", "priority", sent={"priority": 9}),
    Row(
        "scheduled send",
        "later",
        "later",
        sent={"properties": {"AMQ_SCHEDULED_DELAY": Typed("String", "300")}},
    ),
)
PARKED = (COPIED, TOLD)
PARKED_EVENT = "redeliveries_parked"
ALLOW_MIRROR = "redelivery.allow=[mirror]"
MIRRORED = Row("mirrored", "plain", "plain", ("topic://VirtualTopic.Mirror.plain",))
ROWS = {COMPOSITES: (*SAME, FILTERED_TOPIC, *PARKED), MIRROR: (MIRRORED,)}

Seen = Mapping[str, Sequence[Sequence[tuple[Any, ...]]]]
"""By consumer, what it was handed of each message: destination, group, priority, time to live."""


class Play:
    """One row on one broker: its applications, and what they were handed."""

    def __init__(self, stack: ExitStack, peer: JmsPeer, row: Row) -> None:
        """Start the applications and send the messages."""
        self._peer = peer
        self.row = row
        start = peer.start_flaky_consumer
        failing = [row.fails_at] * (2 if row.rival else 1)
        self._failing = [
            stack.enter_context(start(one, failures=DEATHS, full=True)) for one in failing
        ]
        if row.send_to.startswith("topic://"):
            # Why: a virtual topic copies to the queues that are there.
            for name in (row.fails_at, *row.seen_at):
                peer.consume(name, wait_ms=50)
        self._others = {one: stack.enter_context(start(one, full=True)) for one in row.seen_at}
        for name, consumer in self._others.items():
            if name.startswith("topic://"):
                eventually(partial(self._reaches, name, consumer), what=f"{name} is subscribed to")
        self._ids = [
            str(one.test_id)
            for one in peer.produce(
                row.send_to,
                "Text",
                count=MESSAGES,
                text="a text",
                sample_properties=False,
                ttl_ms=TTL_MS,
                **{"group": None, **row.sent},
            )
        ]

    def _reaches(self, topic: str, consumer: FlakyConsumer) -> bool:
        """Return whether a subscription exists: a topic keeps nothing for later ones."""
        self._peer.produce(topic, "Text", sample_properties=False)
        return bool(consumer.events())

    def wait(self, deliveries: int) -> None:
        """Wait until each message was handed out so often, and what that has copied is seen."""
        eventually(
            lambda: len(self._receipts(*self._failing)) >= deliveries * MESSAGES,
            what=f"{self.row.name}: {deliveries} deliveries of each message",
        )
        for name, consumer in self._others.items():
            # Why: what was copied before lies before it.
            self._peer.produce(name, "Text", test_id="end", sample_properties=False, group=None)
            consumer.wait_for(lambda events: any(one.id == "end-0" for one in events))

    def seen(self) -> Seen:
        """Return what each consumer was handed, those of one queue in no order."""
        failing = sorted(map(self._handed, self._failing), reverse=True)
        others = {name: self._handed(one) for name, one in self._others.items()}
        return {**{f"failing {at}": one for at, one in enumerate(failing)}, **others}

    def _handed(self, consumer: FlakyConsumer) -> list[list[tuple[Any, ...]]]:
        found = defaultdict(list)
        for one in self._receipts(consumer):
            assert one.message is not None
            headers = one.message.headers
            lives_ms = headers["JMSExpiration"] and (
                headers["JMSExpiration"] - headers["JMSTimestamp"]
            )
            found[one.id].append(
                (headers["JMSDestination"], one.message.group_id, headers["JMSPriority"], lives_ms)
            )
        return [found[one] for one in self._ids]

    def _receipts(self, *consumers: FlakyConsumer) -> list[Any]:
        return [
            event
            for consumer in consumers
            for event in consumer.events()
            if event.outcome in RECEIPTS and event.id in self._ids
        ]


@cache
def with_plugin(version: str, interceptors: str) -> Mapping[str, Seen]:
    """Return what applications see of each row with the plugin in the broker."""
    with ExitStack() as stack:
        broker = stack.enter_context(
            ClassicBroker(version, activemq_xml=activemq_xml(interceptors, PLUGIN))
        )
        peer = JmsPeer.of(broker, "openwire")
        plays = [Play(stack, peer, row) for row in ROWS[interceptors]]
        for play in plays:
            play.wait(1 + DEATHS)
        return {play.row.name: play.seen() for play in plays}


@dataclass
class Beside:
    """A broker with a sidecar beside it.

    Attributes:
        policy: the file that the sidecar is given; None = none.
    """

    broker: ClassicBroker
    sidecar: SidecarProcess
    peer: JmsPeer

    def parked(self, destination: str) -> list[dict[str, Any]]:
        """Return the parked messages of an origin, once all are."""

        def find() -> list[dict[str, Any]]:
            rows = self.sidecar.rows("--destination", destination)
            found = [one for one in rows if one["state"] == "parked"]
            return found if len(found) == MESSAGES else []

        return eventually(find, what=f"the messages of {destination} are parked")


def beside(
    stack: ExitStack, folder: Path, version: str, wire: str, interceptors: str, *sets: str
) -> Beside:
    """Start a broker, and a sidecar that is given the broker's whole file."""
    policy = folder / "activemq.xml"
    policy.write_text(
        activemq_xml(interceptors, PLUGIN).replace('Delay="1000"', 'Delay="200"'), encoding="utf-8"
    )
    broker = stack.enter_context(ClassicBroker(version, activemq_xml=activemq_xml(interceptors)))
    urls: Mapping[str, Callable[[], str]] = {
        "openwire": lambda: broker.openwire_url,
        "stomp": lambda: broker.stomp_url,
        "amqp": lambda: broker.amqp_jms_url,
    }
    lossy = ["intake.allow_lossy=[group,body_type]"] if wire == "stomp" else []
    sidecar = SidecarProcess(
        folder,
        urls[wire](),
        policy=policy,
        sets=["intake.backlog=process", "broker.kind=classic", *lossy, *sets],
    )
    stack.enter_context(sidecar).start()
    return Beside(broker, sidecar, JmsPeer.of(broker, "openwire"))


def as_over(wire: str, seen: Seen) -> Seen:
    """Return what is to be seen over a wire where the plugin shows `seen`.

    STOMP carries no group; AMQP does not show the time to live of a dead letter.
    """

    def again(handed: tuple[Any, ...]) -> tuple[Any, ...]:
        destination, group, priority, lives_ms = handed
        group = None if wire == "stomp" else group
        return destination, group, priority, 0 if wire == "amqp" else lives_ms

    return {
        name: [[*one[:1], *map(again, one[1:])] for one in messages]
        for name, messages in seen.items()
    }


@each_wire(dict.fromkeys(("openwire", "stomp", "amqp"), CLASSIC_6))
def test_origins_are_as_with_the_plugin(version: str, wire: str, tmp_path: Path) -> None:
    """Applications see the same with both, but where a redelivery would be copied once more.

    The plugin's redelivery is copied, too. A queue of persistent messages drops it by its id; a
    topic does not. The sidecar parks such messages, and says which line mends it.
    """
    plugin = with_plugin(version, COMPOSITES)
    with ExitStack() as stack:
        side = beside(stack, tmp_path, version, wire, COMPOSITES)
        plays = [Play(stack, side.peer, row) for row in ROWS[COMPOSITES]]
        for play in plays:
            play.wait(1 if play.row in PARKED else 1 + DEATHS)
        for row in PARKED:
            for one in side.parked(row.fails_at):
                assert "filteredDestination" in one["rule"]
        seen = {play.row.name: play.seen() for play in plays}
    for row in SAME:
        assert seen[row.name] == as_over(wire, plugin[row.name]), row.name
    for row in (*PARKED, FILTERED_TOPIC):
        [copy] = row.seen_at
        assert [len(one) for one in seen[row.name][copy]] == [1] * MESSAGES
        doubled = [len(one) > 1 for one in plugin[row.name][copy]]
        assert doubled == [copy.startswith("topic://")] * MESSAGES


@each_wire({"openwire": CLASSIC_6})
def test_a_mirror_copies_redeliveries_with_both(version: str, wire: str, tmp_path: Path) -> None:
    """The sidecar redelivers to a mirrored queue only when the operator allows it.

    The mirror copies the dead letter on its way, too, and the copy is without its time to live.
    """
    plugin = with_plugin(version, MIRROR)[MIRRORED.name]
    with ExitStack() as stack:
        side = beside(stack, tmp_path, version, wire, MIRROR, ALLOW_MIRROR)
        play = Play(stack, side.peer, MIRRORED)
        play.wait(1 + DEATHS)
        seen = play.seen()
    copies = [[len(one) for one in found[MIRRORED.seen_at[0]]] for found in (seen, plugin)]
    assert copies == [[1 + DEATHS] * MESSAGES] * 2
    assert seen == as_over("amqp", plugin)


def test_a_mirror_that_makes_no_copy_leaves_the_time_to_live(tmp_path: Path) -> None:
    """Only that is compared: the mirror's messages and the queue's share their destination then."""
    with ExitStack() as stack:
        side = beside(stack, tmp_path, CLASSIC_6, "openwire", MIRROR_WITHOUT_COPY, ALLOW_MIRROR)
        # Why nobody reads the mirror: Classic sends the message that both share from two threads,
        # and now and then breaks a connection by it.
        play = Play(stack, side.peer, replace(MIRRORED, seen_at=()))
        play.wait(1 + DEATHS)
        for handed in play.seen()["failing 0"]:
            assert [lives_ms for *_, lives_ms in handed] == [TTL_MS] * (1 + DEATHS)


def test_what_would_be_copied_is_a_persons_to_decide(tmp_path: Path) -> None:
    """A retry is checked again; a redirect goes elsewhere; `doctor` names the line, and is fit."""
    with ExitStack() as stack:
        interceptors = COMPOSITES + MIRROR.replace("/", ' prefix="seen."/')
        side = beside(stack, tmp_path, CLASSIC_6, "openwire", interceptors, ALLOW_MIRROR)
        sidecar = side.sidecar
        play = Play(stack, side.peer, COPIED)
        play.wait(1)
        first, second = sorted(one["id"] for one in side.parked("copied"))
        sidecar.run_command("retry", str(first))
        eventually(
            lambda: len(_parked_events(sidecar, first)) == 2, what="the retried one is parked again"
        )
        sidecar.run_command("redirect", str(second), "--to", "elsewhere")
        assert [one.body for one in side.peer.consume("elsewhere", count=1)] == ["a text"]
        assert play.seen()["copied.copy"] == [[("queue://copied.copy", None, 7, TTL_MS)]] * 2
        [show] = [_parked_events(sidecar, first)[-1]]
        assert 'selector="amqsidecarRedeliveryCount IS NULL" queue="copied.copy"' in show["reason"]
        warned = [one["meaning"] for one in sidecar.log_lines() if one["event"] == PARKED_EVENT]
        assert [one for one in warned if 'queue="copied"' in one] == [show["reason"]]
        found = sidecar.json_command("doctor")
    assert found["verdict"] == "fit"
    origins = {
        one["subject"]: (one["severity"], one["mend"])
        for one in found["findings"]
        if one["check"] == "origins" and "=" in one["subject"]
    }
    line = f'<filteredDestination selector="{FIRST_SENDS}" queue="copied.copy"/>'
    assert origins == {
        'topic="VirtualTopic.>"': ("ok", ""),
        'queue="copied"': ("warning", line),
        'queue="told"': ("warning", line.replace('queue="copied.copy"', 'topic="told.topic"')),
        'queue="filtered"': ("ok", ""),
        'queue="sifted"': ("ok", ""),
        'queue="unmatched"': ("ok", ""),
        'queue="only"': ("ok", ""),
        'queue=">"': ("note", ""),
    }


@pytest.mark.parametrize("version", [pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6])
def test_what_died_in_a_temporary_queue_returns_to_its_owner(version: str, tmp_path: Path) -> None:
    """As with the plugin; but it is not lost when the owner is gone: it waits for a person."""
    with ExitStack() as stack:
        side = beside(stack, tmp_path, version, "openwire", COMPOSITES)
        with StompPeer(side.broker.ports["STOMP_PORT"]) as owner:
            owner.subscribe("/temp-queue/answers")
            owner.send("/temp-queue/answers", {}, b"an answer")
            for _ in range(DEATHS):
                owner.nack(owner.receive())
            again = owner.receive()
            assert again.body == b"an answer"
            assert again.headers["amqsidecarRedeliveryCount"] == str(DEATHS)
            assert side.sidecar.stop() == 0
            owner.nack(again)
        side.sidecar.start()
        [row] = eventually(side.sidecar.rows, what="it is taken")
        blocked = eventually(
            lambda: [
                one for one in side.sidecar.log_lines() if one["event"] == "destination_blocked"
            ],
            what="the log says that it can't be sent",
        )
        assert "DestinationDoesNotExist" in blocked[0]["reason"]
        redirect(side.sidecar, row["id"])
        assert [one.body for one in side.peer.consume("elsewhere", count=1)] == ["an answer"]


def redirect(sidecar: SidecarProcess, row: int) -> None:
    """Redirect a row to `elsewhere`; again where it was just being sent, and so was left."""
    command = ("redirect", str(row), "--to", "elsewhere")
    eventually(lambda: sidecar.json_command(*command)["changed"] == 1, what="it is redirected")


def test_over_stomp_what_died_in_a_temporary_queue_waits(tmp_path: Path) -> None:
    """The sidecar says so, whether the owner is there or not."""
    with ExitStack() as stack:
        side = beside(stack, tmp_path, CLASSIC_6, "stomp", COMPOSITES)
        owner = stack.enter_context(StompPeer(side.broker.ports["STOMP_PORT"]))
        owner.subscribe("/temp-queue/answers")
        owner.send("/temp-queue/answers", {}, b"an answer")
        owner.nack(owner.receive())
        [row] = eventually(side.sidecar.rows, what="it is taken")
        assert (row["state"], row["destination"].partition(":")[0]) == ("waiting", "temp-queue")
        blocked = eventually(
            lambda: [
                one for one in side.sidecar.log_lines() if one["event"] == "destination_blocked"
            ],
            what="the log says that it can't be sent",
        )
        assert "only to lasting destinations" in blocked[0]["reason"]
        redirect(side.sidecar, row["id"])
        assert [one.body for one in side.peer.consume("elsewhere", count=1)] == ["an answer"]


@pytest.mark.parametrize("version", [pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6])
def test_over_amqp_what_died_in_a_temporary_queue_stays(version: str, tmp_path: Path) -> None:
    """No origin is shown, and the name of its dead-letter queue names no lasting one."""
    with ExitStack() as stack:
        side = beside(stack, tmp_path, version, "amqp", COMPOSITES)
        owner = stack.enter_context(StompPeer(side.broker.ports["STOMP_PORT"]))
        owner.subscribe("/temp-queue/answers")
        owner.send("/temp-queue/answers", {}, b"an answer")
        owner.nack(owner.receive())
        left = eventually(
            lambda: [one for one in side.sidecar.log_lines() if one["event"] == "left_behind"],
            what="the log says that it stays",
        )
        assert left[0]["reason"] == "no_origin"
        [lies_in] = [left[0]["queue"].removeprefix("queue://")]
        assert lies_in.startswith("ActiveMQ.DLQ.Queue.ID:")
        assert side.sidecar.rows() == []
        assert side.sidecar.stop() == 0
        assert [one.body for one in side.peer.consume(lies_in, count=1)] == ["an answer"]


def _parked_events(sidecar: SidecarProcess, row: int) -> list[dict[str, Any]]:
    history = sidecar.json_command("show", str(row))["history"]
    return [one for one in history if one["type"] == "parked"]
