"""Dead letters of Artemis come back: unaltered, in time, counted, to the one queue they left."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_xml import DEAD_AT_ONCE, attempts_without_limit
from support.brokers.real import ArtemisBroker
from support.jms.peer import ALL_TYPES, JmsMessage, JmsPeer
from support.jms.redelivered import (
    assert_not_early,
    assert_same_but,
    receipts,
    sidecar_properties,
)
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
FINAL = "DLQ.exhausted"
DELAYS_MS = [300, 450, 675]
SETTINGS = f"""{DEAD_AT_ONCE}{attempts_without_limit("DLQ")}
    <address-setting match="e2e.auto.#">
      <dead-letter-address>AUTO.DLA</dead-letter-address>
      <auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>
    </address-setting>
"""
# Why: the broker can't convert each of the others to AMQP, and they stay where they are.
CORE_TYPES = tuple(one for one in ALL_TYPES if one not in ("Object", "Stream"))


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def sidecar(
    broker: ArtemisBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SidecarProcess]:
    """Reads what it discovers."""
    with SidecarProcess(
        tmp_path_factory.mktemp("sidecar"),
        broker.amqp_url,
        policy=POLICY,
        sets=["intake.backlog=process"],
    ) as started:
        yield started.start()
        assert started.stop() == 0


@pytest.fixture(params=["core", "qpid"])
def peer(request: pytest.FixtureRequest, broker: ArtemisBroker, sidecar: SidecarProcess) -> JmsPeer:
    """Each JMS client in turn, on a broker with a sidecar."""
    return JmsPeer.of(broker, request.param)


def types_of(peer: JmsPeer) -> tuple[str, ...]:
    return CORE_TYPES if peer.provider == "core" else ALL_TYPES


def never_failed(peer: JmsPeer, test_id: str) -> list[JmsMessage]:
    """Return one message of each type as a consumer gets it that does not fail."""
    sent = peer.produce(f"{test_id}.control", types_of(peer), test_id=test_id)
    return peer.consume(f"{test_id}.control", count=len(sent))


def expected_changes(
    peer: JmsPeer,
    sent: JmsMessage,
    found: JmsMessage,
    destination: str,
    count: int,
    delay_ms: int,
    *,
    is_final: bool = False,
) -> dict[str, Any]:
    """Return what a redelivery differs in from a message that never failed.

    AMQP applications: in our properties alone. Core applications: also in what the broker adds
    when it turns an AMQP message into one of theirs.
    """
    changed = {
        "JMSDestination": destination,
        "JMSTimestamp": sent.headers["JMSTimestamp"],
        "JMSMessageID": sent.message_id,
        "property amqsidecarOriginalMessageId": ["String", sent.message_id],
        **sidecar_properties(found, count, delay_ms),
    }
    if peer.provider == "core":
        changed |= _view_of_core(sent, found)
        # Quirk (Artemis): a message without body becomes a BytesMessage without body.
        if sent.type == "Message":
            changed |= {"type": "Bytes", "body": ""}
        if is_final:
            changed |= {
                name: value
                for name, value in found._fields().items()
                if name.startswith("property JMS_AMQP_MA_x-opt-ORIG-")
            }
    return changed


def _view_of_core(sent: JmsMessage, found: JmsMessage) -> dict[str, Any]:
    kinds = {"Message": (0, 1), "Map": (2, 7), "Bytes": (3, 2)}
    kind, encoding = kinds.get(sent.type, (5, 4 if sent.body is None else 5))
    return {
        # Quirk (Artemis): each conversion makes an id.
        "JMSMessageID": found.message_id,
        "property NATIVE_MESSAGE_ID": ["String", sent.message_id],
        "property JMS_AMQP_HEADER": ["Boolean", True],
        "property JMS_AMQP_HEADERDURABLE": ["Boolean", True],
        "property JMS_AMQP_HEADERPRIORITY": ["Boolean", True],
        "property JMS_AMQP_MA_x-opt-jms-dest": ["Byte", 0],
        "property JMS_AMQP_MA_x-opt-jms-reply-to": ["Byte", 0],
        "property JMS_AMQP_MA_x-opt-jms-msg-type": ["Byte", kind],
        "property JMS_AMQP_ORIGINAL_ENCODING": ["Short", encoding],
    }


IN_PROOF = {("core", "recover"), ("core", "listener"), ("qpid", "rollback"), ("qpid", "close")}
WAYS = [
    pytest.param(*way, marks=[pytest.mark.proof] if way in IN_PROOF else [])
    for way in (
        *(("core", how) for how in ("rollback", "recover", "listener", "close")),
        *(("qpid", how) for how in ("rollback", "recover", "close", "reject")),
    )
]


@pytest.mark.parametrize(("peer", "how"), WAYS, indirect=["peer"])
def test_messages_come_back_until_they_succeed(peer: JmsPeer, how: str, unique: str) -> None:
    """Every type fails twice, comes back whole and never early, is counted, and succeeds."""
    queue = f"e2e.back.{unique}"
    controls = never_failed(peer, unique)
    # Quirk (Core client): a recover counts against messages on their way that nobody has seen.
    count = 1 if (peer.provider, how) == ("core", "recover") else len(controls)
    with peer.start_flaky_consumer(queue, failures=2, how=how, full=True) as consumer:
        sent = peer.produce(queue, types_of(peer)[:count], test_id=unique)
        succeeded = consumer.wait_for_successes(len(sent))
        seen = receipts(consumer)

    assert sorted(succeeded) == [one.test_id for one in sent]
    for original, control in zip(sent, controls[:count], strict=True):
        deliveries = seen[original.test_id]
        assert [one.redelivery_count for one in deliveries] == [None, 1, 2]
        assert_not_early(deliveries, DELAYS_MS[:2])
        for number, delay_ms in ((1, DELAYS_MS[0]), (2, DELAYS_MS[1])):
            found = deliveries[number].received
            # As a first delivery: the count is in our property, where no client's limit sees it.
            assert (found.delivery_count, found.headers["JMSRedelivered"]) == (1, False)
            destination = f"queue://{queue}"
            changed = expected_changes(peer, original, found, destination, number, delay_ms)
            assert_same_but(found, control, changed)


def test_what_fails_too_often_goes_to_the_final_queue(peer: JmsPeer, unique: str) -> None:
    """After its last redelivery a message is in `DLQ.exhausted`, whole, with its origin."""
    queue = f"e2e.gone.{unique}"
    controls = never_failed(peer, unique)
    sent = peer.produce(queue, types_of(peer), test_id=unique)
    seen = peer.fail(queue, messages=len(sent), deliveries=2)
    dead = peer.consume(FINAL, count=len(sent), selector=f"testId LIKE '{unique}-%'")

    assert len(seen) == 2 * len(sent)
    by_id = {one.test_id: one for one in dead}
    for original, control in zip(sent, controls, strict=True):
        found = by_id[original.test_id]
        assert_same_but(
            found,
            control,
            expected_changes(peer, original, found, f"queue://{FINAL}", 1, 0, is_final=True),
        )
        if peer.provider == "core":
            assert found.value("JMS_AMQP_MA_x-opt-ORIG-ADDRESS") == queue


def test_a_message_waits_while_its_subscription_is_gone(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """The broker would accept and lose it: it waits, says why, and goes when the queue is back."""
    topic, client = f"e2e.slow.{unique}", f"{unique}-a"
    peer.durable_subscribe(topic, client, "sub")
    [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
    peer.fail_durable(topic, client, "sub", messages=1, deliveries=1)
    peer.durable_unsubscribe(client, "sub")
    blocked = eventually(
        lambda: [
            line
            for line in sidecar.log_lines()
            if line["event"] == "destination_blocked" and topic in line["destination"]
        ],
        what="the log says why the message waits",
    )
    name = f"topic://{topic}::{client}.sub"
    [row] = sidecar.rows("--destination", name)
    assert "does not exist any more" in blocked[0]["reason"]
    assert row["state"] == "waiting"
    blocked_now = f'amqsidecar_blocked{{destination="{name}"}}'
    assert sidecar.metric(blocked_now) == 1

    peer.durable_subscribe(topic, client, "sub")
    found = peer.consume_durable(topic, client, "sub", count=1)
    peer.durable_unsubscribe(client, "sub")
    assert [one.test_id for one in found] == [sent.test_id]
    eventually(lambda: f"{blocked_now} 0.0" in sidecar.get("/metrics")[1], what="it is open again")


def test_a_subscriptions_second_death_survives_auto_created_filters(
    peer: JmsPeer, unique: str
) -> None:
    """What was sent by its full name fits no filter of an auto-created queue: ours catches it."""
    topic, client = f"e2e.auto.{unique}", f"{unique}-a"
    peer.durable_subscribe(topic, client, "sub")
    with peer.start_flaky_consumer(
        f"topic://{topic}", failures=-1, client_id=client, subscription="sub"
    ) as consumer:
        [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
        consumer.wait_for(lambda _: len(receipts(consumer).get(sent.test_id, ())) >= 4)
        deliveries = receipts(consumer)[sent.test_id]
    peer.durable_unsubscribe(client, "sub")
    [dead] = peer.consume("AUTO.DLA.exhausted", count=1, selector=f"testId = '{sent.test_id}'")

    assert [one.redelivery_count for one in deliveries] == [None, 1, 2, 3]
    assert dead.body == sent.body


def test_expired_messages_stay_where_the_broker_put_them(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """The expiry queue is not read."""
    queue = f"e2e.back.{unique}"
    peer.produce(queue, "Text", test_id=unique, ttl_ms=1)
    assert peer.consume(queue, wait_ms=200) == []
    [expired] = peer.consume("ExpiryQueue", count=1, selector=f"testId = '{unique}-0'")

    assert expired.value("amqsidecarRedeliveryId") is None
    intake = [line for line in sidecar.log_lines() if line.get("event") == "intake"]
    assert "ExpiryQueue" not in intake[-1]["queues"]


def test_what_dies_in_a_dead_letter_queue_never_circles(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """A message that fails in the final queue comes without its true origin: parked."""
    queue = f"e2e.gone.{unique}"
    peer.produce(queue, "Text", test_id=unique)
    peer.fail(queue, messages=1, deliveries=2)
    selector = f"testId = '{unique}-0'"
    peer.fail(FINAL, messages=1, deliveries=1, selector=selector)
    [row] = eventually(
        lambda: sidecar.rows("--state", "parked"),
        what="the dead letter is parked",
    )

    assert "the true origin is lost" in row["rule"]
    assert peer.consume(queue, wait_ms=300) == []
    assert sidecar.json_command("give-up", str(row["id"]), "--yes")["changed"] == 1
    [dead] = peer.consume(FINAL, count=1, selector=selector)
    assert dead.test_id == f"{unique}-0"


def test_rules_of_classic_without_a_strategy_end_beside_the_queue_that_was_read(
    tmp_path: Path, unique: str
) -> None:
    """`doctor` and run name the same final queue, and no `ActiveMQ.DLQ` comes into being.

    The broker is its own: on the other one a second sidecar reads the same queue.
    """
    policy = tmp_path / "policy.yaml"
    policy.write_text("plugins: [{redelivery: {default_entry: {maximum_redeliveries: 0}}}]")
    with (
        ArtemisBroker(address_settings=SETTINGS) as broker,
        SidecarProcess(
            tmp_path,
            broker.amqp_url,
            policy=policy,
            sets=("intake.backlog=process", "intake.queues=[DLQ]"),
        ) as classic_rules,
    ):
        peer = JmsPeer.of(broker, "core")
        # Why no look at its exit code: of what else this broker has, doctor says other things.
        said = classic_rules.try_command("doctor", "--output", "json").stdout
        found = json.loads(said)["findings"]
        finals = {one["subject"] for one in found if one["check"] == "final queues"}
        assert finals == {"queue://DLQ.exhausted"}
        classic_rules.start()
        [sent] = peer.produce(f"e2e.{unique}", "Text", test_id=unique)
        peer.fail(f"e2e.{unique}", messages=1, deliveries=1)
        selector = f"testId = '{sent.test_id}'"
        assert peer.consume(FINAL, count=1, selector=selector)
        eventually(
            lambda: classic_rules.metric("amqsidecar_exhausted_total") == 1, what="it is counted"
        )
