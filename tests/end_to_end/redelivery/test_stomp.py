"""STOMP applications: whatever a producer writes into headers, its message comes back as it should.

On Classic every header that STOMP does not know becomes a property, and STOMP consumers are shown
properties over the message's true fields: `original-destination` would hide the origin for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.brokers.real import ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.wires.stomp_peer import Frame, StompPeer

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "redelivery.yaml"
FINAL = "ActiveMQ.DLQ.exhausted"
NONSENSE = {
    "original-destination": "/queue/stolen",
    "redeliveryDelay": "soon",
    "dlqDeliveryFailureCause": "java.lang.Throwable: nothing: at: all",
    "originalExpiration": "yesterday",
    "originalDeliveryMode": "NON_PERSISTENT?",
    "scheduledJobId": "ID:not-a-job",
    "amqsidecarRedeliveryCount": "many",
    "amqsidecarRedeliveryId": "",
    "amqsidecarOriginalMessageId": "?",
}
"""What the broker or a sidecar would write, as a producer may write it."""
FORWARDED = {
    "original-destination": "/queue/elsewhere",
    "destination-type": "TOPIC",
    "redeliveryDelay": "1000",
    "dlqDeliveryFailureCause": "java.lang.Throwable: Delivery[7] exceeds redelivery policy limit",
    "originalExpiration": "0",
    "timestamp": "1600000000000",
    "scheduledJobId": "ID:host-1:1:1:1:1",
    "JMSXDeliveryCount": "7",
}
"""What a script copies that moves a dead letter back by hand, header by header."""
SCHEDULED = {"AMQ_SCHEDULED_DELAY": "100", "AMQ_SCHEDULED_REPEAT": "0", "redeliveryDelay": "-1"}


@dataclass
class Attached:
    """A stock broker with a sidecar that reads its dead letters."""

    broker: ClassicBroker
    sidecar: SidecarProcess

    def stomp(self) -> StompPeer:
        return StompPeer(self.broker.ports["STOMP_PORT"])

    def final(self, test_id: str) -> Frame:
        """Take a message from the final dead-letter queue."""
        with self.stomp() as stomp:
            stomp.subscribe(f"/queue/{FINAL}", selector=f"testId = '{test_id}'")
            dead = stomp.receive()
            stomp.ack(dead)
        return dead


@pytest.fixture(
    scope="module", params=["classic_5", pytest.param("classic_6", marks=pytest.mark.proof)]
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


@pytest.mark.parametrize(
    "headers", [NONSENSE, FORWARDED, SCHEDULED], ids=["nonsense", "forwarded", "scheduled"]
)
def test_hostile_headers_change_nothing(
    attached: Attached, unique: str, headers: dict[str, str]
) -> None:
    """NACKed twice, the message comes back once, to its true origin, and is then final.

    What would mislead a broker or the next sidecar is gone from the redelivery, and the intake goes
    on with other messages.
    """
    queue = f"e2e.gone.{unique}"
    with attached.stomp() as stomp:
        stomp.subscribe(f"/queue/{queue}")
        stomp.send(f"/queue/{queue}", {**headers, "testId": unique}, b"the body")
        deaths = []
        for _ in range(2):
            deaths.append(stomp.receive())
            stomp.nack(deaths[-1])
        dead = attached.final(unique)
        stomp.send(f"/queue/{queue}", {"testId": f"{unique}-next"}, b"the next")
        following = stomp.receive()
        stomp.nack(following)
        returned = stomp.receive()
        stomp.ack(returned)

    first, second = deaths
    assert first.body == second.body == b"the body"
    assert second.headers["destination"] == f"/queue/{queue}"
    assert second.headers["amqsidecarRedeliveryCount"] == "1"
    assert second.headers["redeliveryDelay"] == "200"
    # Why not what the producer wrote: applications copy it from messages that they got.
    assert second.headers["amqsidecarOriginalMessageId"] == first.headers["message-id"]
    assert dead.headers["amqsidecarOriginalMessageId"] == first.headers["message-id"]
    assert second.headers["persistent"] == "true"
    assert second.headers["expires"] == "0"
    gone = {
        *("original-destination", "dlqDeliveryFailureCause", "originalExpiration"),
        *("originalDeliveryMode", "scheduledJobId"),
    }
    assert {name for name in second.headers if name.startswith("AMQ_")} | (
        gone & set(second.headers)
    ) == set()
    kept = set(headers) - gone - {"JMSXDeliveryCount", "timestamp", "redeliveryDelay"}
    kept -= {name for name in kept if name.startswith(("amqsidecar", "AMQ_"))}
    assert {name: second.headers[name] for name in kept} == {name: headers[name] for name in kept}
    assert dead.body == b"the body"
    assert dead.headers["original-destination"] == f"/queue/{queue}"
    assert dead.headers["amqsidecarRedeliveryCount"] == "1"
    assert following.headers["testId"] == returned.headers["testId"] == f"{unique}-next"
    peer = JmsPeer.of(attached.broker, "openwire")
    assert peer.browse("stolen") == peer.browse("elsewhere") == []
    story = attached.sidecar.json_command("show", dead.headers["amqsidecarRedeliveryId"])
    assert [one["type"] for one in story["history"]] == [
        *("received", "scheduled", "resent", "returned", "exhausted", "dead_lettered")
    ]
    assert {one.get("origin", f"queue://{queue}") for one in story["history"]} == {
        f"queue://{queue}"
    }


LEFT_OVER = {
    "count": {"amqsidecarRedeliveryCount": "5"},
    "expired": {
        "dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:1700000000000",
        "originalExpiration": "1700000000000",
    },
}


@pytest.mark.parametrize("headers", LEFT_OVER.values(), ids=LEFT_OVER)
def test_what_is_left_over_from_another_death_is_not_believed(
    attached: Attached, unique: str, headers: dict[str, str]
) -> None:
    """A count without a sidecar's id beside it, an expiry before the message was sent."""
    queue = f"e2e.gone.{unique}"
    with attached.stomp() as stomp:
        stomp.subscribe(f"/queue/{queue}")
        stomp.send(f"/queue/{queue}", headers, b"the body")
        stomp.nack(stomp.receive())
        back = stomp.receive()
        stomp.ack(back)
    assert back.headers["amqsidecarRedeliveryCount"] == "1"


def test_a_stomp_consumer_that_disappears_is_not_counted(attached: Attached, unique: str) -> None:
    """The broker raises its own counter for everything prefetched; the sidecar's count stays."""
    queue = f"e2e.gone.{unique}"
    with attached.stomp() as stomp:
        stomp.send(f"/queue/{queue}", {"testId": unique}, b"the body")
    for _ in range(3):
        with attached.stomp() as stomp:
            stomp.subscribe(f"/queue/{queue}")
            stomp.receive()
    with attached.stomp() as stomp:
        stomp.subscribe(f"/queue/{queue}")
        stomp.nack(stomp.receive())
        back = stomp.receive()
        stomp.ack(back)
    assert back.headers["amqsidecarRedeliveryCount"] == "1"
