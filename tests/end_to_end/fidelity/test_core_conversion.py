"""Every Core message that Artemis can't convert to AMQP stays whole, with its origin.

The broker converts when it hands a message to an AMQP reader. What it can't convert it moves to the
dead-letter address of the dead-letter queue, or drops where there is none. The table says for each
body type and content what Artemis 2.44 does.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.model.destination import queue
from support.broker_xml import STOCK_MANAGEMENT_ADDRESS_SETTING
from support.brokers import ArtemisBroker
from support.jms_peer import JmsPeer
from support.link_amqp_artemis import AmqpArtemisHarness
from support.waiting import eventually

pytestmark = pytest.mark.broker

BARE_SETTINGS = (
    STOCK_MANAGEMENT_ADDRESS_SETTING
    + """
    <address-setting match="orders.#">
      <dead-letter-address>DLQ</dead-letter-address>
    </address-setting>
    """
)
CONVERTED_BY_JMS = (
    *("Text", "EmptyText", "NullText", "Bytes", "EmptyBytes", "Message"),
    *("Map", "EmptyMap", "OddMap"),
)
# Those without bytes, and with an object, could be converted; the list does not tell them apart.
LEFT_BY_JMS = (
    *("NullObject", "Object"),
    *("Stream", "PlainStream", "EmptyStream", "NullStream", "CharStream"),
)
TEXT = "0100000004" + "78007900"


def text(**properties: list[Any]) -> Mapping[str, Any]:
    return {"coreType": 3, "body": TEXT, "properties": properties}


# What JMS can't write: type bytes and properties of the Core API.
CONVERTED_BY_CORE = {
    "default": {"coreType": 0},
    "type 1": {"coreType": 1},
    "bytes": {"coreType": 4},
    "unknown type": {"coreType": 42},
    "bytes, char and null properties": text(
        b=["byte[]", "0102"], c=["Character", "x"], n=["null", None]
    ),
    "number as JMSType": text(JMSType=["Integer", 1]),
    "bytes as correlation id": text(JMSCorrelationID=["byte[]", "00"]),
}
LEFT_BY_CORE = {
    "object without a size": {"coreType": 2},
    "object cut": {"coreType": 2, "body": "0000000aac"},
    "object of negative size": {"coreType": 2, "body": "ffffffff"},
    "stream of no type": {"coreType": 6, "body": "ff"},
    "encoded annotation as text": text(JMS_AMQP_ENCODED_MA_x=["String", "x"]),
    "encoded annotation of nothing": text(JMS_AMQP_ENCODED_MA_x=["byte[]", "00"]),
    "encoded footer as text": text(JMS_AMQP_ENCODED_FT_x=["String", "x"]),
    "annotation of bytes": text(JMS_AMQP_MA_x=["byte[]", "00"]),
    "delivery annotation of bytes": text(JMS_AMQP_DA_x=["byte[]", "00"]),
    "footer of bytes": text(JMS_AMQP_FT_x=["byte[]", "00"]),
    "group sequence as text": text(_AMQ_GROUP_SEQUENCE=["String", "x"]),
    "ingress time as text": text(_AMQ_INGRESS_TIMESTAMP=["String", "x"]),
    "first acquirer as number": text(JMS_AMQP_FirstAcquirer=["Integer", 3]),
}


@pytest.fixture
def broker() -> Iterator[ArtemisBroker]:
    """A broker whose dead-letter queue has no dead-letter address itself: it drops."""
    with ArtemisBroker(address_settings=BARE_SETTINGS) as running:
        yield running


@pytest.fixture
def harness(broker: ArtemisBroker, unique: str) -> Iterator[AmqpArtemisHarness]:
    made = AmqpArtemisHarness(broker, unique)
    yield made
    made.close()


@pytest.fixture
def link(harness: AmqpArtemisHarness) -> Iterator[AmqpArtemisTake]:
    made = harness.make_link("e2e").take(f"{harness.prefix}.token")
    made.create_token(0)
    assert made.take_token(10) == 0
    yield made
    made.close()


def read(link: AmqpArtemisTake, count: int) -> int:
    """Read the dead letters until as many came as can be converted, and some time longer."""
    link.attach([IntakeQueue(queue("DLQ"))], 100)
    found = 0

    def is_all() -> bool:
        nonlocal found
        link.wait(0.2)
        found += len(link.receive(100))
        return found >= count and bool(link.left_behind())

    eventually(is_all, what=f"{count} dead letters")
    for _ in range(10):
        link.wait(0.2)
        found += len(link.receive(100))
    return found


@pytest.mark.parametrize("provider", ["core", "openwire"])
def test_what_jms_clients_make_is_read_or_left_and_never_dropped(
    broker: ArtemisBroker, harness: AmqpArtemisHarness, link: AmqpArtemisTake, provider: str
) -> None:
    name = f"orders.{harness.prefix}"
    peer = JmsPeer.of(broker, provider)
    peer.produce(name, (*CONVERTED_BY_JMS, *LEFT_BY_JMS), group=None)
    assert harness.kill(name) == len(CONVERTED_BY_JMS) + len(LEFT_BY_JMS)

    assert read(link, len(CONVERTED_BY_JMS)) == len(CONVERTED_BY_JMS)

    assert_left_whole(harness, link, name, len(LEFT_BY_JMS))


def test_what_the_core_api_makes_is_read_or_left_and_never_dropped(
    broker: ArtemisBroker, harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    name = f"orders.{harness.prefix}"
    harness.management.create_queue(name, name, is_anycast=True)
    messages = [*CONVERTED_BY_CORE.values(), *LEFT_BY_CORE.values()]
    JmsPeer.of(broker, "core").produce_core(name, messages)
    assert harness.kill(name) == len(messages)

    assert read(link, len(CONVERTED_BY_CORE)) == len(CONVERTED_BY_CORE)

    assert_left_whole(harness, link, name, len(LEFT_BY_CORE))


def assert_left_whole(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake, origin: str, count: int
) -> None:
    """Nothing was dropped, what is left has its origin, and the cause is told."""
    [left] = link.left_behind()
    assert (left.reason, left.count) == ("not_convertible", count)
    assert "ObjectMessages" in left.meaning
    link.attach([], 1)
    [row] = harness.management.queues(name="DLQ")
    assert row.killed_count == 0
    selector = f"_AMQ_ORIG_ADDRESS = '{origin}'"
    assert int(harness.ask("queue.DLQ", "countMessages", selector).value) >= count
