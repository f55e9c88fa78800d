"""Every Core message that Artemis can't convert to AMQP stays whole, with its origin.

The broker converts when it hands a message to an AMQP reader. What it can't convert it moves to the
dead-letter address of the dead-letter queue, or drops where there is none. So none is handed out
that may be of that kind. The table says for each body type and content what Artemis 2.44 does.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.formats.core.message import CoreMessage, read_core_properties
from amqsidecar.model.destination import queue
from support.brokers.broker_xml import STOCK_MANAGEMENT_ADDRESS_SETTING
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis_pair import PairOfCoreHarness
from support.links.core_artemis import CoreArtemisHarness
from support.links.cycles import resend, with_token
from support.waiting import PATIENCE_S, eventually

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
CONVERTED_BY_CORE: Mapping[str, Mapping[str, Any]] = {
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
LEFT_BY_CORE: Mapping[str, Mapping[str, Any]] = {
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
    made = with_token(harness.make_link("e2e").take(f"{harness.prefix}.token"))
    yield made
    made.close()


def read(link: AmqpArtemisTake, count: int, source: str = "DLQ") -> int:
    """Read the dead letters until as many came as can be converted, and some time longer."""
    link.attach([IntakeQueue(queue(source))], 100)
    found = 0

    def is_all() -> bool:
        nonlocal found
        link.wait(0.2)
        found += len(link.receive(100))
        return found >= count and bool(link.left_behind())

    eventually(
        is_all,
        what=f"{count} dead letters",
        last=lambda _: f"{found} came, left behind: {link.left_behind()}",
    )
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


@pytest.mark.parametrize("kind", [CoreArtemisHarness, PairOfCoreHarness], ids=lambda one: one.name)
def test_over_core_all_of_it_comes_back_as_it_was(
    broker: ArtemisBroker, unique: str, kind: type[CoreArtemisHarness]
) -> None:
    """Bodies byte by byte and all properties: nothing is converted, so nothing is left."""
    harness = kind(broker, unique)
    name, kept = f"orders.{unique}", f"kept.{unique}"
    messages = [*CONVERTED_BY_CORE.values(), *LEFT_BY_CORE.values()]
    for one in (name, kept):
        harness.management.create_queue(one, one, is_anycast=True)
        JmsPeer.of(broker, "core").produce_core(one, messages)
    assert harness.kill(name) == len(messages)
    with closing(harness), closing(harness.make_link("e2e").take(f"{unique}.token")) as link:
        with_token(link)
        link.attach([IntakeQueue(queue("DLQ"))], 100)
        found: list[Delivery] = []

        def is_all() -> bool:
            link.wait(0.2)
            found.extend(link.receive(100))
            return len(found) == len(messages)

        eventually(is_all, what="all of them")
        link.commit_cycle(found, [resend(one) for one in found], 1)
        assert link.left_behind() == ()
        expected, returned = harness.drain_core(kept), harness.drain_core(name)
    assert [(one.kind, one.body) for one in returned] == [(one.kind, one.body) for one in expected]
    for before, after in zip(expected, returned, strict=True):
        assert properties(before).items() <= properties(after).items()


def properties(message: CoreMessage) -> dict[str, object]:
    """Return the properties, without those that the broker writes at each send."""
    found = read_core_properties(message.properties)
    return {name: one for name, one in found.items() if name != "_AMQ_ROUTING_TYPE"}


def test_what_the_broker_would_copy_is_never_tried(unique: str) -> None:
    """Stock settings: a try would leave a copy without origin, and lose the original at a restart.

    Whatever reads the queue, over links of its own, leaves them, and takes what lies behind.
    """
    with ArtemisBroker() as broker:
        harness = AmqpArtemisHarness(broker, unique)
        peer = JmsPeer.of(broker, "core")
        name, token_queue = f"orders.{unique}", f"{unique}.token"

        def open_link() -> AmqpArtemisTake:
            made = harness.make_link("e2e").take(token_queue)
            if not made.token.exists():
                made.token.create(0)
            assert made.token.take(PATIENCE_S) == 0
            return made

        with closing(open_link()) as link:
            link.attach([IntakeQueue(queue("DLQ"))], 10)
            peer.produce(name, ("NullObject", "Stream", "Text"), group=None)
            assert harness.kill(name) == 3
            assert read(link, 1) == 1
            [left] = link.left_behind()
            assert (left.reason, left.count) == ("not_convertible", 2)
        with closing(open_link()) as link:
            assert read(link, 1) == 1
        assert killed(harness) == 0
        harness.close()
        broker.restart()
        harness.connect()
        with closing(open_link()) as link:
            assert read(link, 1) == 1
        origins = Counter((one.type, one.value("_AMQ_ORIG_ADDRESS")) for one in peer.browse("DLQ"))
        assert origins == {("Object", name): 1, ("Stream", name): 1, ("Text", name): 1}
        harness.close()


def test_none_is_tried_in_a_queue_with_a_fully_qualified_name(
    broker: ArtemisBroker, harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """Dead-letter resources that the broker makes: a multicast queue for each address."""
    target, name = f"{harness.prefix}.DLA", f"{harness.prefix}.auto.orders"
    harness.set_address(
        f"{harness.prefix}.auto.#", deadLetterAddress=target, autoCreateDeadLetterResources=True
    )
    harness.set_address(target, deadLetterAddress=target, autoCreateDeadLetterResources=True)
    peer = JmsPeer.of(broker, "core")
    peer.produce(name, ("NullObject", "Stream", "Text"), group=None)
    assert harness.kill(name) == 3
    [found] = [one for one in link.discover() if target in one.destination.name]
    assert found.destination == queue(f"{target}::DLQ.{name}")

    assert read(link, 1, found.destination.name) == 1

    assert_left_whole(harness, link, name, 2, f"DLQ.{name}")


def test_a_property_that_is_named_like_the_type_hides_none(
    broker: ArtemisBroker, harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """The list shows properties beside what the broker itself says of a message."""
    name = f"orders.{harness.prefix}"
    peer = JmsPeer.of(broker, "core")
    for value in ("text", 3):
        peer.produce(name, ("NullObject", "Text"), group=None, properties={"type": value})
    assert harness.kill(name) == 4

    assert read(link, 2) == 2

    assert_left_whole(harness, link, name, 2)


def test_what_did_not_die_is_read_too(
    broker: ArtemisBroker, harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """A consumer may give a message up by a copy; the broker gives that no number of the dead."""
    harness.management.create_queue("DLQ", "DLQ", is_anycast=True)
    for provider, types in (
        ("core", ("Text", "Map", "NullObject")),
        ("openwire", ("Text", "Map", "NullObject")),
        ("qpid", ("Text", "Object", "Stream")),
    ):
        JmsPeer.of(broker, provider).produce("DLQ", types, group=None)

    assert read(link, 7) == 7

    [left] = link.left_behind()
    assert (left.reason, left.count) == ("not_convertible", 2)
    assert killed(harness) == 0


def killed(harness: AmqpArtemisHarness, name: str = "DLQ") -> int:
    """Return how often the broker has given up on a message of the dead-letter queue."""
    [row] = harness.management.queues(name=name)
    return row.killed_count


def assert_left_whole(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake, origin: str, count: int, name: str = "DLQ"
) -> None:
    """Nothing was dropped, what is left has its origin, and the cause is reported."""
    [left] = link.left_behind()
    assert (left.reason, left.count) == ("not_convertible", count)
    assert "ObjectMessages" in left.meaning
    link.attach([], 1)
    assert killed(harness, name) == 0
    selector = f"_AMQ_ORIG_ADDRESS = '{origin}'"
    assert int(harness.ask(f"queue.{name}", "countMessages", selector).value) >= count
