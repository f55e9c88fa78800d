"""A broker that hands over messages without an end loses its link before they fill the memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.waiting_messages import WaitingMessages
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import OpenWireConsumers
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis import intake as stomp_artemis_intake
from amqsidecar.brokers.stomp_artemis.intake import StompArtemisIntake
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import IntakeLimits, QueueReader, StompClassicIntake
from amqsidecar.clock import SystemClock
from amqsidecar.errors import LinkLost, RemoteProtocolError
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.payload import Footprint, Payload
from amqsidecar.formats.stomp_frame import FrameReader
from amqsidecar.model.destination import queue
from support.brokers.loopback import at_loopback
from support.wires import unasked
from support.wires.hostile_broker import Attack, hostile_broker

CLOCK = SystemClock()
DEAD_LETTERS = queue("ActiveMQ.DLQ")
PREFETCH = 1_000
WORDS = "it handed over more messages than it was asked for"
BYTES_MAX = 128 * 2**20
SMALL_BYTES_MAX = PREFETCH * 8_192


def artemis_intake(connection: StompConnection) -> StompArtemisIntake:
    management = ArtemisQuestions()
    management.why_unusable = "there is none"
    settings = ArtemisLinkSettings(at_loopback(1), clock=CLOCK, instance="test")
    return StompArtemisIntake(connection, settings, management)


@contextmanager
def stomp_connection(*attacks: Attack) -> Iterator[Callable[[], StompConnection]]:
    with hostile_broker(attacks) as broker:
        opened: list[StompConnection] = []

        def connect() -> StompConnection:
            opened.append(StompConnection(endpoint_of(broker.port), CLOCK))
            return opened[-1]

        yield connect
        for connection in opened:
            connection.close()


def endpoint_of(port: int) -> Endpoint:
    return at_loopback(port)


def go_on(connection: StompConnection | OpenWireConnection, take: Callable[[], object]) -> None:
    while True:
        connection.wait(10)
        take()


def in_stomp(connection: StompConnection) -> list[Payload]:
    return [frame.payload for frame in (*connection._arrived, *connection.messages)]


def assert_bounded(kept: Sequence[Payload], body: bytes) -> None:
    """Large bodies wait in files, small ones in memory, and neither without a bound."""
    assert kept
    is_large = body is unasked.LARGE
    assert all(isinstance(one, bytes) is not is_large for one in kept)
    room = 6 * len(body) if is_large else SMALL_BYTES_MAX
    assert sum(map(len, kept)) <= BYTES_MAX + room


@pytest.mark.parametrize("body", [unasked.SMALL, unasked.LARGE], ids=["small", "large"])
def test_over_stomp_while_an_answer_is_waited_for(body: bytes) -> None:
    with stomp_connection(unasked.stomp(body)) as connect:
        connection = connect()
        connection.call("SUBSCRIBE", [(b"id", b"1")])
        with pytest.raises(LinkLost, match=WORDS):
            connection.call("SEND", [])
        assert_bounded(in_stomp(connection), body)
        assert not connection.was_ended


@pytest.mark.parametrize("body", [unasked.SMALL, unasked.LARGE], ids=["small", "large"])
def test_over_stomp_on_classic_where_the_intake_keeps_them(body: bytes) -> None:
    with stomp_connection(unasked.stomp(body)) as connect:
        connection = connect()
        consumers = StompSubscriptions(connection, CLOCK)
        limits = IntakeLimits(frozenset(), {}, utf8_is_modified=False)
        readers: list[QueueReader] = []

        def make_reader(*_: object) -> QueueReader:
            readers.append(QueueReader(DEAD_LETTERS, consumers, CLOCK, limits))
            return readers[-1]

        intake = StompClassicIntake(make_reader, connection.waiting)
        intake.read_from([DEAD_LETTERS], PREFETCH)
        with pytest.raises(LinkLost, match=WORDS):
            go_on(connection, consumers.route)
        kept = [one.payload for one in readers[0]._current[0].unproven]
        assert kept
        assert_bounded([*kept, *in_stomp(connection)], body)


@pytest.mark.parametrize("body", [unasked.SMALL, unasked.LARGE], ids=["small", "large"])
def test_over_stomp_on_artemis_where_the_intake_keeps_them(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stomp_connection(
        unasked.stomp(body, unasked.ARTEMIS_ID), unasked.polite_stomp()
    ) as connect:
        connection = connect()
        monkeypatch.setattr(stomp_artemis_intake, "connect", lambda _settings: connect())
        intake = artemis_intake(connection)
        intake.attach([IntakeQueue(DEAD_LETTERS)], PREFETCH)
        with pytest.raises(LinkLost, match=WORDS):
            go_on(connection, lambda: intake.has_arrived)
        kept = [one.arrived.payload for one in intake._subscriptions.buffer]
        assert kept
        assert_bounded([*kept, *in_stomp(connection)], body)


@pytest.mark.parametrize("body", [unasked.SMALL, unasked.LARGE], ids=["small", "large"])
@pytest.mark.parametrize("is_routed", [True, False], ids=["kept", "an answer is waited for"])
def test_over_openwire(body: bytes, is_routed: bool) -> None:
    with (
        hostile_broker([unasked.openwire(body)]) as broker,
        closing(OpenWireConnection(endpoint_of(broker.port), CLOCK)) as connection,
    ):
        connection.call(codec.CONNECTION_INFO, b"")
        consumers = OpenWireConsumers(connection, CLOCK)
        consumers.read_from([DEAD_LETTERS], PREFETCH)
        with pytest.raises(LinkLost, match=WORDS):
            go_on(connection, consumers.route if is_routed else lambda: None)
        dispatches = [*connection.dispatches, *(one[1] for one in consumers._arrived)]
        assert_bounded([one.message for one in dispatches if one.message is not None], body)


def test_what_was_taken_makes_room() -> None:
    waiting = WaitingMessages()
    waiting.expect(consumers=1, prefetch=PREFETCH)
    taken = Footprint(2**20, 2**21)
    for _ in range(1_000):
        waiting.arrive(taken)
        waiting.keep(taken)
        waiting.take(taken)
        waiting.take(taken)


def test_a_large_message_in_a_file_makes_no_room_for_others_in_memory() -> None:
    waiting = WaitingMessages()
    waiting.expect(consumers=1, prefetch=1)
    waiting.arrive(Footprint(1_000, 100 * 2**20))
    for _ in range(132):
        waiting.arrive(Footprint(2**20))
    with pytest.raises(RemoteProtocolError, match="in memory"):
        waiting.arrive(Footprint(2**20))


def test_every_queue_may_have_a_large_message_ahead() -> None:
    waiting = WaitingMessages()
    waiting.expect(consumers=100, prefetch=100)
    for _ in range(100):
        waiting.arrive(Footprint(300, 100 * 2**20))


def test_a_message_of_very_many_headers_is_too_large() -> None:
    reader = FrameReader()
    assert not reader.feed(b"MESSAGE\nmessage-id:7\n%b\n\0" % (b"a\n" * 100_000))
    assert reader.problem == "a frame has more than 100000 headers"
    assert reader.broken is not None
    assert reader.broken.first(b"message-id") == b"7"
