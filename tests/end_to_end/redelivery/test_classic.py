"""Dead letters of ActiveMQ Classic come back: unaltered, in time, counted, until they succeed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ClassicBroker
from support.jms.peer import ALL_TYPES, JmsMessage, JmsPeer
from support.jms.redelivered import assert_not_early, assert_same_but, receipts, sidecar_properties
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "redelivery.yaml"
FINAL = "ActiveMQ.DLQ.exhausted"
DELAYS_MS = [300, 450, 675]


@dataclass
class Attached:
    """A stock broker with a sidecar that reads its dead letters."""

    broker: ClassicBroker
    sidecar: SidecarProcess

    def peer(self, provider: str) -> JmsPeer:
        return JmsPeer.of(self.broker, provider)

    def never_failed(self, peer: JmsPeer, test_id: str) -> list[JmsMessage]:
        """Return one message of each type as a consumer gets it that does not fail."""
        peer.produce(f"{test_id}.control", test_id=test_id)
        return peer.consume(f"{test_id}.control", count=len(ALL_TYPES))

    def rows(self, destination: str) -> list[dict[str, Any]]:
        """Return what waits for a destination."""
        return self.sidecar.rows("--destination", destination)


@pytest.fixture(
    scope="module", params=[pytest.param("classic_5", marks=pytest.mark.proof), "classic_6"]
)
def attached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attached]:
    broker = request.getfixturevalue(request.param)
    with SidecarProcess(
        tmp_path_factory.mktemp("sidecar"),
        broker.openwire_url,
        policy=POLICY,
        sets=["intake.backlog=process"],
    ).running() as sidecar:
        yield Attached(broker, sidecar)


def arrival(sent: JmsMessage, queue: str) -> dict[str, object]:
    """Return what differs between two messages that never failed, as of this one."""
    return {
        "JMSDestination": f"queue://{queue}",
        "JMSTimestamp": sent.headers["JMSTimestamp"],
        "JMSMessageID": sent.message_id,
    }


IN_PROOF = pytest.mark.proof


@pytest.mark.parametrize(
    "how",
    ["rollback", "close", *(pytest.param(one, marks=IN_PROOF) for one in ("recover", "listener"))],
)
def test_openwire_messages_come_back_until_they_succeed(
    attached: Attached, unique: str, how: str
) -> None:
    """Every type fails twice, comes back whole and never early, is counted, and succeeds."""
    peer = attached.peer("openwire")
    queue = f"e2e.back.{unique}"
    never_failed = attached.never_failed(peer, unique)
    with peer.start_flaky_consumer(queue, failures=2, how=how, full=True) as consumer:
        sent = peer.produce(queue, test_id=unique)
        succeeded = consumer.wait_for_successes(len(sent))
        seen = receipts(consumer)

    assert sorted(succeeded) == [one.test_id for one in sent]
    for original, control in zip(sent, never_failed, strict=True):
        deliveries = seen[original.test_id]
        assert [one.redelivery_count for one in deliveries] == [None, 1, 2]
        assert [one.delivery_count for one in deliveries] == [1, 2, 3]
        assert_not_early(deliveries, DELAYS_MS[:2])
        first, second, third = (one.received for one in deliveries)
        assert_same_but(first, control, arrival(original, queue))
        redelivery_id = second.value("amqsidecarRedeliveryId")
        for count, message in ((1, second), (2, third)):
            assert_same_but(
                message,
                control,
                {
                    **arrival(original, queue),
                    "JMSRedelivered": True,
                    "JMSMessageID": message.message_id,
                    "property amqsidecarOriginalMessageId": ["String", original.message_id],
                    **sidecar_properties(message, count, DELAYS_MS[count - 1]),
                },
            )
            assert message.value("amqsidecarRedeliveryId") == redelivery_id
        assert len({one.message_id for one in (first, second, third)}) == 3


# Two ways on each connector outside of proof: the clients are the same.
@pytest.mark.parametrize(
    ("provider", "how"),
    [
        *(("qpid", how) for how in ("rollback", "reject")),
        *(("qpid-jms", how) for how in ("recover", "close")),
        *(pytest.param("qpid", how, marks=IN_PROOF) for how in ("recover", "close")),
        *(pytest.param("qpid-jms", how, marks=IN_PROOF) for how in ("rollback", "reject")),
    ],
)
def test_amqp_messages_come_back_until_they_succeed(
    attached: Attached, unique: str, provider: str, how: str
) -> None:
    """AMQP applications on the stock connector and on the one with `transformer=jms`.

    A reject makes a dead letter at once. In the other ways the client gives up by its own limit,
    which it compares with the count of the redelivery: so it fails only once here.
    """
    peer = attached.peer(provider)
    queue = f"e2e.back.{unique}"
    never_failed = attached.never_failed(peer, unique)
    is_rejected = how == "reject"
    with peer.start_flaky_consumer(
        queue, failures=2, how=how, max_redeliveries=9 if is_rejected else 1, full=True
    ) as consumer:
        if how == "close":
            # Why one by one: a closed connection counts also for another message on its way, whose
            # client then rejects it each time.
            sent = []
            for number, kind in enumerate(ALL_TYPES):
                sent += peer.produce(
                    queue, kind, test_id=f"{unique}-{number}", group_seq=number + 1
                )
                consumer.wait_for_successes(len(sent))
        else:
            sent = peer.produce(queue, test_id=unique)
            consumer.wait_for_successes(len(sent))
        seen = receipts(consumer)

    counts = [None, 1, 2] if is_rejected else [None, None, 1]
    last_count = 2 if is_rejected else 1
    delay_ms = DELAYS_MS[last_count - 1]
    for original, control in zip(sent, never_failed, strict=True):
        deliveries = seen[original.test_id]
        last = deliveries[-1].received
        assert_not_early(deliveries[-2:], [delay_ms])
        if is_rejected:
            assert [one.delivery_count for one in deliveries] == [1, 2, 3]
        added = {}
        # Why: of what the connector does not convert, the consumer gets the producer's bytes.
        if provider == "qpid-jms" and original.type != "Stream":
            assert [one.redelivery_count for one in deliveries] == counts
            added = sidecar_properties(last, last_count, delay_ms)
        # The message id is the producer's own.
        added["property testId"] = ["String", original.test_id]
        assert_same_but(
            last, control, {**arrival(original, queue), "JMSRedelivered": True, **added}
        )


@pytest.mark.parametrize("provider", ["openwire", "qpid"])
def test_what_fails_too_often_goes_to_the_final_queue(
    attached: Attached, unique: str, provider: str
) -> None:
    """After its last redelivery a message is in `ActiveMQ.DLQ.exhausted`, whole, with its past."""
    peer = attached.peer(provider)
    queue = f"e2e.gone.{unique}"
    never_failed = attached.never_failed(peer, unique)
    with peer.start_flaky_consumer(
        queue,
        failures=-1,
        how="rollback" if provider == "openwire" else "reject",
        max_redeliveries=0 if provider == "openwire" else 9,
    ) as consumer:
        sent = peer.produce(queue, test_id=unique)
        consumer.wait_for(lambda _: sum(map(len, receipts(consumer).values())) == 2 * len(sent))
        dead = peer.consume(FINAL, count=len(sent), selector=f"testId LIKE '{unique}-%'")
        seen = receipts(consumer)

    by_id = {one.test_id: one for one in dead}
    assert [len(seen[one.test_id]) for one in sent] == [2] * len(sent)
    for original, control in zip(sent, never_failed, strict=True):
        found = by_id[original.test_id]
        own = {}
        if provider == "openwire":
            assert "exceeds redelivery policy limit" in found.value("dlqDeliveryFailureCause")
            own = {
                "JMSMessageID": found.message_id,
                "property amqsidecarOriginalMessageId": ["String", original.message_id],
                "property dlqDeliveryFailureCause": found.properties["dlqDeliveryFailureCause"],
                "property originalExpiration": ["Long", 0],
                **sidecar_properties(found, 1, 0),
            }
        else:
            # Why: an AMQP consumer gets the producer's bytes, where it says where it was sent.
            own = {"JMSDestination": f"queue://{queue}"}
        assert_same_but(found, control, {**arrival(original, FINAL), **own})


def test_the_time_to_live_restarts(attached: Attached, unique: str) -> None:
    """A redelivery has the time to live that the producer gave, from the re-send on."""
    peer = attached.peer("openwire")
    queue = f"e2e.back.{unique}"
    with peer.start_flaky_consumer(queue, failures=2, full=True) as consumer:
        [sent] = peer.produce(queue, "Text", test_id=unique, ttl_ms=90_000)
        consumer.wait_for_successes(1)
        messages = [one.received for one in receipts(consumer)[sent.test_id]]

    times = [one.headers["JMSTimestamp"] for one in messages]
    assert times[0] == sent.headers["JMSTimestamp"]
    assert [one.headers["JMSExpiration"] - at for one, at in zip(messages, times, strict=True)] == [
        90_000
    ] * 3
    # The second re-send starts from the first one's time.
    assert times[1] - times[0] >= DELAYS_MS[0]
    assert times[2] - times[1] >= DELAYS_MS[1]


def test_expired_messages_are_not_redelivered(attached: Attached, unique: str) -> None:
    """What outlived its time goes to the final queue with the broker's words; `show` says so."""
    peer = attached.peer("openwire")
    queue = f"e2e.back.{unique}"
    [sent] = peer.produce(queue, "Text", test_id=unique, ttl_ms=1)
    # Why: the broker looks for expired messages when somebody consumes.
    assert peer.consume(queue, wait_ms=200) == []
    [row] = eventually(
        lambda: [one for one in attached.rows(destination=queue) if one["state"] == "exhausted"],
        what="the row is exhausted",
    )
    # Why before it is consumed: the row is forgotten once the final queue is seen empty.
    story = attached.sidecar.json_command("show", str(row["id"]))
    [dead] = peer.consume(FINAL, count=1, selector=f"testId = '{sent.test_id}'")

    assert "Message Expired" in dead.value("dlqDeliveryFailureCause")
    assert dead.value("amqsidecarRedeliveryCount") == 0
    assert dead.value("amqsidecarRedeliveryId") == row["redelivery_id"]
    assert peer.consume(queue, wait_ms=200) == []
    assert row["final_queue"] == f"queue://{FINAL}"
    assert [one["type"] for one in story["history"]] == ["received", "exhausted", "dead_lettered"]
    assert story["history"][0]["expired"] is True
    assert story["history"][1]["rule"].startswith("redeliveryPlugin expired")


def test_a_durable_subscribers_dead_letter_is_parked(attached: Attached, unique: str) -> None:
    """A re-send to the topic would reach every subscriber: `list` and `show` say why it stays."""
    peer = attached.peer("openwire")
    topic = f"e2e.{unique}"
    peer.durable_subscribe(topic, f"{unique}-a", "failing")
    peer.durable_subscribe(topic, f"{unique}-b", "working")
    [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
    peer.fail_durable(topic, f"{unique}-a", "failing", messages=1, deliveries=1)
    [row] = eventually(
        lambda: attached.rows(destination=f"topic://{topic}"), what="the dead letter is taken"
    )
    worked = peer.consume_durable(topic, f"{unique}-b", "working", count=1)
    worked += peer.consume_durable(topic, f"{unique}-b", "working")
    failed = peer.consume_durable(topic, f"{unique}-a", "failing")
    peer.durable_unsubscribe(f"{unique}-a", "failing")
    peer.durable_unsubscribe(f"{unique}-b", "working")

    assert [one.test_id for one in worked] == [sent.test_id]
    assert failed == []
    assert row["state"] == "parked"
    assert "every subscriber" in row["rule"]
    assert "exceeds redelivery policy limit" in row["cause"]
    shown = attached.sidecar.run_command("show", str(row["id"]))
    assert "every subscriber" in shown
    assert attached.sidecar.json_command("give-up", str(row["id"]), "--yes")["changed"] == 1
    [dead] = peer.consume(FINAL, count=1, selector=f"testId = '{sent.test_id}'")
    assert_same_but(
        dead,
        worked[0],
        {
            "JMSMessageID": dead.message_id,
            "JMSDestination": f"queue://{FINAL}",
            "property amqsidecarOriginalMessageId": ["String", sent.message_id],
            "property dlqDeliveryFailureCause": ["String", row["cause"]],
            "property originalExpiration": ["Long", 0],
            **sidecar_properties(dead, 0, 0),
        },
    )
    assert dead.value("amqsidecarRedeliveryId") == row["redelivery_id"]


def test_what_dies_in_a_dead_letter_queue_never_circles(attached: Attached, unique: str) -> None:
    """A message rejected in the final queue comes with a dead-letter queue as origin: parked."""
    peer = attached.peer("openwire")
    queue = f"e2e.gone.{unique}"
    # Why: other tests may have let messages of the final queue die in this broker.
    before = {one["id"] for one in attached.rows(destination=f"queue://{FINAL}")}
    peer.produce(queue, "Text", test_id=unique)
    peer.fail(queue, messages=1, deliveries=2)
    selector = f"testId = '{unique}-0'"
    peer.fail(FINAL, messages=1, deliveries=1, selector=selector)
    [row] = eventually(
        lambda: [
            one for one in attached.rows(destination=f"queue://{FINAL}") if one["id"] not in before
        ],
        what="the dead letter is parked",
    )

    assert row["state"] == "parked"
    assert "is itself a dead-letter queue" in row["rule"]
    assert peer.consume(queue, wait_ms=300) == []
    assert attached.sidecar.json_command("give-up", str(row["id"]), "--yes")["changed"] == 1
    [dead] = peer.consume(FINAL, count=1, selector=selector)
    assert dead.test_id == f"{unique}-0"


def test_many_deaths_of_one_message_are_never_lost(attached: Attached, unique: str) -> None:
    """The broker's audit drops the second death of a message id; ours has a new one each time."""
    peer = attached.peer("openwire")
    queue = f"e2e.back.{unique}"
    sent = peer.produce(queue, ["Text"], count=20, test_id=unique)
    seen = peer.fail(queue, messages=20, deliveries=4)
    dead = peer.consume(FINAL, count=20, selector=f"testId LIKE '{unique}-%'")

    assert len(seen) == 80
    assert sorted(one.test_id for one in dead) == sorted(one.test_id for one in sent)
    assert {one.value("amqsidecarOriginalMessageId") for one in dead} == {
        one.message_id for one in sent
    }
    assert peer.consume(queue, wait_ms=100) == []
