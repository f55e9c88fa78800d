"""Sessions of Core on a real Artemis: what is handed out, moved, undone, refused, and cut off."""

import hashlib
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from tempfile import TemporaryFile

import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import (
    ADDRESS_FULL,
    DUPLICATE_ID,
    QUEUE_MISSING,
    CoreRefused,
)
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    BYTES_MESSAGE,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    encode_message,
    new_message,
    read_core_properties,
)
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.cycles import IDLE_S, stay_idle
from support.versions import newest
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

LIMITED = "".join(
    f"""
<address-setting match="{policy.lower()}.#">
  <address-full-policy>{policy}</address-full-policy>
  <max-size-bytes>100K</max-size-bytes>
</address-setting>
"""
    for policy in ("BLOCK", "FAIL")
)
WINDOW = 1 << 20
DUPLICATE_PROPERTY = "_AMQ_DUPL_ID"
Connect = Callable[..., CoreConnection]


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=STOCK_ADDRESS_SETTINGS + LIMITED) as started:
        yield started


@pytest.fixture
def connect(broker: ArtemisBroker) -> Iterator[Connect]:
    made: list[CoreConnection] = []

    def connect(
        to: ArtemisBroker = broker, port: str = "PORT", **options: object
    ) -> CoreConnection:
        made.append(CoreConnection(to.endpoint(port, **options), SystemClock()))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


@pytest.fixture
def connection(connect: Connect) -> CoreConnection:
    return connect()


@pytest.fixture
def session(connection: CoreConnection) -> CoreSession:
    return connection.create_session(is_transacted=True)


def make(address: str, body: bytes = b"", **properties: CoreProperty) -> CoreMessage:
    now_ms = SystemClock().now_ms()
    return new_message(address, properties, timestamp_ms=now_ms, kind=BYTES_MESSAGE, body=body)


def number(value: int) -> CoreProperty:
    return CoreProperty(CorePropertyType.INT, value)


def text(value: str) -> CoreProperty:
    return CoreProperty(CorePropertyType.STRING, value)


def new_queue(session: CoreSession, name: str) -> str:
    session.create_queue(name, address=name, routing_type=packets.ANYCAST)
    return name


def fill(session: CoreSession, queue: str, count: int, size_bytes: int = 10) -> None:
    for at in range(count):
        session.send(encode_message(make(queue, bytes(size_bytes), n=number(at))))
    session.commit()


def numbers(deliveries: list[CoreDelivery]) -> list[object]:
    return [read_core_properties(one.message.properties)["n"].value for one in deliveries]


def receive(
    connection: CoreConnection, session: CoreSession, count: int, *, gives_back: bool = True
) -> list[CoreDelivery]:
    found: list[CoreDelivery] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline_s:
        while session.deliveries and len(found) < count:
            found.append(session.deliveries.popleft())
            if gives_back:
                session.give_back(found[-1])
        if len(found) < count:
            connection.wait(0.5)
    assert len(found) == count
    return found


def is_idle(session: CoreSession) -> bool:
    """Check that nothing more was delivered: the answer to a stop follows all deliveries."""
    session.stop()
    session.start()
    return not session.deliveries


def await_counts(session: CoreSession, expected: dict[str, int]) -> None:
    """Wait until the broker counts these messages by queue.

    Quirk (Artemis 2.44): what was committed is counted a moment later, by another thread; what is
    handed back is counted twice for a moment.
    """

    def counts() -> dict[str, int]:
        return {queue: session.ask_queue(queue).message_count for queue in expected}

    eventually(lambda: counts() == expected, what=str(expected), last=lambda _: str(counts()))


def test_a_consumer_gets_no_more_than_its_credits(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    queue = new_queue(session, unique)
    fill(session, queue, 50, size_bytes=1000)
    session.create_consumer(queue, window_bytes=5000)
    session.start()
    first = receive(connection, session, 5, gives_back=False)
    assert is_idle(session)
    assert sum(one.credit_bytes for one in first) >= 5000
    for one in first:
        session.give_back(one)
    rest = receive(connection, session, 45)
    assert numbers(first + rest) == list(range(50))


def test_credits_stay_exact_over_many_messages(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    """We end a connection on which more comes than there is credit for, so no byte may be off."""
    queue = new_queue(session, unique)
    fill(session, queue, 10_000, size_bytes=100)
    window_bytes = 5_000
    consumer = session.create_consumer(queue, window_bytes=window_bytes)
    session.start()
    for _ in range(9_900):
        (found,) = receive(connection, session, 1)
    known = session._consumers[consumer]
    connection.wait_for(lambda: known.granted_bytes <= 0, "use all credit")
    session.stop()  # Its answer comes after all that was handed out.
    ahead_bytes = sum(one.credit_bytes for one in session.deliveries) + known.owed_bytes
    assert known.granted_bytes == window_bytes - ahead_bytes
    assert known.granted_bytes > -found.credit_bytes


@pytest.mark.proof
@pytest.mark.parametrize(
    ("option", "error", "words"),
    [
        ("", LinkLost, "coreInitialMaxFrameSize=65536"),
        (";coreInitialMaxFrameSize=65536", BrokerRefused, "refuses us"),
    ],
)
def test_a_long_log_in_that_the_broker_does_not_read_is_named(
    option: str, error: type[Exception], words: str
) -> None:
    """As with a long token in place of a password; releases before 2.57 read it."""
    acceptors = {"core": f"tcp://127.0.0.1:@PORT@?protocols=CORE{option}"}
    with ArtemisBroker(version=newest("artemis", "core").version, acceptors=acceptors) as broker:
        endpoint = broker.endpoint("PORT", password="x" * 5000)
        connection = CoreConnection(endpoint, SystemClock())
        with closing(connection), pytest.raises(error, match=words):
            connection.create_session(is_transacted=False)


def test_answers_without_a_waiter_are_not_kept(connection: CoreConnection, unique: str) -> None:
    session = connection.create_session(is_transacted=False, is_settled=True)
    session.start()
    management = CoreManagement(session)
    assert management.is_usable
    asked = [session.ask_send(make(unique)) for _ in range(10)]
    session.abandon_answers(asked[:5])
    connection.wait_for(lambda: len(session._answers) == 5, "answer")
    session.abandon_answers(asked[5:])
    for _ in range(5):
        management.ask_all([ManagementQuestion("broker", attribute="Version")] * 100)
    session.ask_queue("DLQ")
    assert (session._answers, session._awaited) == ({}, set())


def test_a_wrong_selector_and_a_missing_queue_are_refused(
    session: CoreSession, unique: str
) -> None:
    with pytest.raises(CoreRefused) as refused:
        session.create_consumer(f"{unique}.none", window_bytes=WINDOW)
    assert refused.value.kind == QUEUE_MISSING
    queue = new_queue(session, unique)
    with pytest.raises(CoreRefused, match="filter"):
        session.create_consumer(queue, "n >>> 1", window_bytes=WINDOW)
    assert session.ask_queue(queue).consumer_count == 0


def test_what_is_rolled_back_comes_again_and_was_not_sent(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    queue, target = new_queue(session, f"{unique}.a"), new_queue(session, f"{unique}.b")
    fill(session, queue, 100, size_bytes=1000)
    session.create_consumer(queue, window_bytes=20_000)
    session.start()
    for _ in range(8):
        found = receive(connection, session, 15)
        assert numbers(found) == list(range(15))
        session.send(encode_message(make(target)))
        session.acknowledge(found[-1])
        session.rollback()
    await_counts(session, {queue: 100, target: 0})
    again = receive(connection, session, 100)
    assert numbers(again) == list(range(100))
    assert again[0].delivery_count == 9


def test_a_duplicate_id_refuses_the_commit_and_nothing_of_it_happens(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    source, target = new_queue(session, f"{unique}.a"), new_queue(session, f"{unique}.b")
    fill(session, source, 2)
    session.create_consumer(source, window_bytes=WINDOW)
    session.start()
    first, second = receive(connection, session, 2)
    for delivery, refusal in ((first, None), (second, DUPLICATE_ID)):
        session.send(encode_message(make(target, b"", **{DUPLICATE_PROPERTY: text(unique)})))
        session.send(encode_message(make(target)))
        session.acknowledge(delivery)
        if refusal is None:
            session.commit()
            continue
        with pytest.raises(CoreRefused, match="uplicate") as refused:
            session.commit()
        assert refused.value.kind == refusal
    session.rollback()
    await_counts(session, {source: 1, target: 2})
    assert numbers(receive(connection, session, 1)) == [1]


def test_each_refused_send_of_a_transaction_is_reported(session: CoreSession, unique: str) -> None:
    full = new_queue(session, f"fail.{unique}")
    other = new_queue(session, unique)
    asked = [session.ask_send(make(full, bytes(60_000))) for _ in range(4)]
    asked.append(session.ask_send(make(other)))
    answers = session.answers(asked)
    assert answers[0] is None
    assert answers[-1] is None
    refused = [one for one in answers if one is not None]
    assert refused
    assert {one.kind for one in refused} == {ADDRESS_FULL}
    session.rollback()
    await_counts(session, {other: 0})


SIZE = 24 * 2**20


def large_body() -> Iterator[bytes]:
    for at in range(SIZE // 4096):
        yield hashlib.sha256(at.to_bytes(4, "big")).digest() * 128


def test_large_messages_go_both_ways_in_bounded_memory(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    source, target = new_queue(session, f"{unique}.a"), new_queue(session, f"{unique}.b")
    expected = hashlib.sha256()
    with TemporaryFile() as body:
        for piece in large_body():
            expected.update(piece)
            body.write(piece)
        tracemalloc.start()
        for at in range(3):
            body.seek(0)
            assert session.answers([session.ask_send_large(make(source, n=number(at)), body)]) == [
                None
            ]
    session.commit()
    session.create_consumer(source, window_bytes=WINDOW)
    session.start()
    for at in range(3):
        (found,) = receive(connection, session, 1)
        assert found.large_body is not None
        session.ask_send_large(found.message._replace(address=target), found.large_body)
        found.large_body.close()
        session.acknowledge(found)
        session.commit()
        assert numbers([found]) == [at]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < SIZE / 2
    session.create_consumer(target, window_bytes=WINDOW)
    for _ in range(3):
        (found,) = receive(connection, session, 1)
        assert found.large_body is not None
        with found.large_body as arrived:
            digest = hashlib.sha256()
            while piece := arrived.read(2**16):
                digest.update(piece)
        assert digest.digest() == expected.digest()


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_large_message_of_a_jms_client_is_moved_unaltered(
    broker: ArtemisBroker,
    connection: CoreConnection,
    session: CoreSession,
    unique: str,
    is_compressed: bool,
) -> None:
    source, target = new_queue(session, f"{unique}.a"), new_queue(session, f"{unique}.b")
    peer = JmsPeer.of(broker, "core", url_options={"compressLargeMessage": is_compressed})
    sent = peer.produce(source, ("Text", "Bytes", "Map"), body_size=300_000)
    session.create_consumer(source, window_bytes=WINDOW)
    session.start()
    larges = 0
    for delivery in receive(connection, session, len(sent)):
        message = delivery.whole()._replace(address=target)
        if delivery.large_body is None:
            session.send(encode_message(message))
        else:
            larges += 1
            session.ask_send_large(message, delivery.large_body)
            delivery.large_body.close()
        session.acknowledge(delivery)
    session.commit()
    assert larges or is_compressed
    for before, after in zip(sent, peer.consume(target, len(sent)), strict=True):
        assert not before.differences(
            after,
            without_headers=("JMSDestination", "JMSDeliveryTime"),
            without_properties=("_AMQ_LARGE_SIZE", "_AMQ_LARGE_COMPRESSED"),
        )


def test_a_rollback_in_the_middle_of_a_large_message_brings_it_again(
    connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    queue = new_queue(session, unique)
    body = bytes(range(256)) * 40_000
    session.ask_send_large(make(queue, n=number(0)), BytesIO(body))
    session.commit()
    session.create_consumer(queue, window_bytes=WINDOW)
    session.start()
    for _ in range(5):
        connection.wait(5)
        session.rollback()
    (found,) = receive(connection, session, 1)
    assert found.large_body is not None
    with found.large_body as arrived:
        assert arrived.read() == body


def test_a_full_address_that_blocks_has_room_again_when_it_is_emptied(
    connect: Connect, connection: CoreConnection, session: CoreSession, unique: str
) -> None:
    queue = new_queue(session, f"block.{unique}")
    sent = 0
    while session.rooms.take(queue, 30_000, timeout_s=3):
        session.send(encode_message(make(queue, bytes(30_000), n=number(sent))))
        session.commit()
        sent += 1
        assert sent < 100
    assert sent >= 3
    other = connect()
    reader = other.create_session(is_transacted=False)
    reader.create_consumer(queue, window_bytes=WINDOW)
    reader.start()
    for found in receive(other, reader, sent):
        reader.acknowledge(found)
    other.flush()
    assert session.rooms.take(queue, 30_000, timeout_s=PATIENCE_S)


def _address(session: CoreSession, name: str) -> packets.AddressAnswer | packets.AddressAnswerV5:
    [answer] = session.ask_addresses([name])
    assert not isinstance(answer, CoreRefused)
    return answer


def test_a_queue_and_an_address_show_their_properties(session: CoreSession, unique: str) -> None:
    assert not session.ask_queue(unique).exists
    assert not _address(session, unique).exists
    new_queue(session, unique)
    fill(session, unique, 3)
    await_counts(session, {unique: 3})
    queue = session.ask_queue(unique)
    assert (queue.exists, queue.durable) == (True, True)
    assert (queue.name, queue.address, queue.routing_type) == (unique, unique, packets.ANYCAST)
    address = _address(session, unique)
    assert isinstance(address, packets.AddressAnswerV5)
    assert (address.exists, address.queues) == (True, (unique,))
    assert (address.supports_anycast, address.supports_multicast) == (True, False)
    session.delete_queue(unique)
    assert not session.ask_queue(unique).exists


def test_a_wrong_password_is_refused(connect: Connect) -> None:
    with pytest.raises(BrokerRefused, match="refuses us"):
        connect(password="wrong").create_session(is_transacted=True)


def test_an_unknown_version_is_lowered_until_the_broker_knows_it(connect: Connect) -> None:
    connection = connect()
    connection.version = packets.VERSION_MAX + 3
    session = connection.create_session(is_transacted=True)
    assert connection.version == packets.VERSION_MAX
    assert not session.ask_queue("none").exists


@pytest.mark.parametrize("version", range(packets.VERSION_MIN, packets.VERSION_MAX + 1))
def test_each_version_is_spoken(connect: Connect, unique: str, version: int) -> None:
    connection = connect()
    connection.version = version
    session = connection.create_session(is_transacted=True)
    queue = new_queue(session, unique)
    fill(session, queue, 2)
    session.create_consumer(queue, window_bytes=WINDOW)
    session.start()
    assert numbers(receive(connection, session, 2)) == [0, 1]
    assert _address(session, queue).queues == (queue,)


def test_a_broker_that_ends_is_distinguished_from_one_that_dies_or_is_silent() -> None:
    with ArtemisBroker() as broker:

        def opened(**options: object) -> CoreConnection:
            connection = CoreConnection(broker.endpoint("PORT", **options), SystemClock())
            connection.create_session(is_transacted=True)
            return connection

        def words_of_the_end(connection: CoreConnection) -> str:
            with pytest.raises(LinkLost) as lost, closing(connection):
                connection.wait_for(lambda: False, "end")
            return str(lost.value)

        silent = opened(idle_timeout_s=IDLE_S)
        broker.pause()
        assert "it was silent" in words_of_the_end(silent)
        broker.resume()
        stopped = opened()
        broker.stop()
        assert "it shuts down" in words_of_the_end(stopped)
        broker.start()
        killed = opened()
        broker.kill()
        assert "closed the connection" in words_of_the_end(killed)


def test_an_idle_connection_stays_open(connect: Connect) -> None:
    """The broker drops one that is silent for its time to live; pings keep both sides content."""
    connection = connect(idle_timeout_s=IDLE_S)
    session = connection.create_session(is_transacted=True)
    stay_idle(connection)
    assert session.ask_queue("DLQ").exists
