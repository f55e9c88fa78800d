"""What a client makes the listener hold is counted, and given up with what it names."""

from pathlib import Path

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats.amqp_frames import TRUE, frame_of
from amqsidecar.formats.amqp_sections import NULL, string, unsigned
from amqsidecar.formats.stomp_stream import LOGIN_BYTES_MAX
from amqsidecar.listener.amqp.session import AmqpSession
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import Ended, OnFailure
from amqsidecar.listener.stomp.session import StompSession

CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ-Artemis/2.44.0\n\n\0"


def session(folder: Path) -> StompSession:
    made = StompSession(BodyBudget(1 << 20, 1 << 20, folder), "key", OnFailure.CLOSED)
    made.from_client(b"CONNECT\naccept-version:1.2\n\n\0")
    return made


def test_names_of_transactions_and_subscriptions_count_until_they_end(tmp_path: Path) -> None:
    made = session(tmp_path)
    made.from_broker(CONNECTED)
    assert (made.is_logged_in, made.held_bytes) == (True, 0)
    name = b"n" * 1000
    for number in range(10):
        made.from_client(b"BEGIN\ntransaction:%d%b\n\n\0" % (number, name))
        made.from_client(b"SUBSCRIBE\nid:%d%b\ndestination:q\nack:client\n\n\0" % (number, name))
    assert made.held_bytes > 20_000
    for number in range(10):
        made.from_client(b"ABORT\ntransaction:%d%b\n\n\0" % (number, name))
        made.from_client(b"UNSUBSCRIBE\nid:%d%b\n\n\0" % (number, name))
    assert made.held_bytes == 0


def test_names_of_links_count_for_each_handle_until_it_ends(tmp_path: Path) -> None:
    made = AmqpSession(BodyBudget(1 << 20, 1 << 20, tmp_path), OnFailure.CLOSED)
    made.from_client(b"AMQP\0\1\0\0" + frame_of(0, frames.BEGIN, [NULL, *[unsigned(1)] * 3]))
    before = made.held_bytes
    for number in range(10):
        fields = [string("n" * 1000), unsigned(number), TRUE]
        made.from_client(frame_of(0, frames.ATTACH, fields))
    assert made.held_bytes > 10_000
    for number in range(10):
        made.from_client(frame_of(0, frames.DETACH, [unsigned(number)]))
    assert made.held_bytes == before


def test_the_names_of_a_client_count(tmp_path: Path) -> None:
    budget = BodyBudget(1 << 20, 1 << 20, tmp_path)
    stomp = StompSession(budget, "key", OnFailure.CLOSED)
    stomp.from_client(b"CONNECT\nlogin:%b\nclient-id:%b\n\n\0" % (b"l" * 1000, b"c" * 1000))
    assert stomp.held_bytes == 2000
    amqp = AmqpSession(budget, OnFailure.CLOSED)
    amqp.from_client(b"AMQP\0\1\0\0" + frame_of(0, frames.OPEN, [string("c" * 1000)]))
    assert amqp.held_bytes == 1000


def test_a_head_is_short_before_the_log_in(tmp_path: Path) -> None:
    made = StompSession(BodyBudget(1 << 20, 1 << 20, tmp_path), "key", OnFailure.CLOSED)
    head = b"CONNECT\nx:" + b"a" * LOGIN_BYTES_MAX
    assert any(isinstance(one, Ended) for one in made.from_client(head))
