"""A hostile peer over Core ends its connection, or makes us keep nothing."""

from contextlib import closing

import pytest

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.clock import SystemClock
from amqsidecar.errors import LinkLost
from support.brokers.loopback import at_loopback
from support.waiting import PATIENCE_S
from support.wires.hostile_broker import hostile_broker
from support.wires.hostile_core import ATTACKS

WINDOW_BYTES = 1 << 20
ENDED = "closed the connection|Connection reset"
WORDS = {
    "frame of 2 GiB at once": "a packet of 2147483647 bytes",
    "frame of 2 MiB before the log-in": "a packet of 2097152 bytes",
    "frame of 2 GiB": "a packet of 2147483647 bytes",
    "frame of 200 MiB": "a packet of 209715200 bytes",
    "messages without credit": "more was handed out than there was credit for",
    "small messages without credit": "more was handed out than there was credit for",
    "huge large message": ENDED,
    "large message without an end": "where 1048576 were announced",
    "pieces without a large message": ENDED,
    "heads of large messages": "more was handed out than there was credit for",
    "answers that nobody waits for": ENDED,
    "rooms that nobody asked for": ENDED,
    "ends of consumers": ENDED,
}
KEPT_BYTES_MAX = 3 * WINDOW_BYTES


@pytest.mark.parametrize("attack", WORDS)
def test_the_connection_ends_and_little_is_kept(attack: str) -> None:
    with hostile_broker([ATTACKS[attack]], times=20) as broker:
        endpoint = at_loopback(broker.port)
        sessions: list[CoreSession] = []
        with pytest.raises(LinkLost, match=WORDS[attack]):
            talk(endpoint, sessions)
        for session in sessions:
            assert_little_is_kept(session)


def talk(endpoint: Endpoint, sessions: list[CoreSession]) -> None:
    with closing(CoreConnection(endpoint, SystemClock())) as connection:
        session = connection.create_session(is_transacted=True)
        session.create_consumer("queue", window_bytes=WINDOW_BYTES)
        session.start()
        sessions.append(session)
        connection.wait_for(lambda: False, "end", PATIENCE_S)


def assert_little_is_kept(session: CoreSession) -> None:
    assert sum(one.credit_bytes for one in session.deliveries) < KEPT_BYTES_MAX
    assert len(session.ended_consumers) <= 1
    assert not session.rooms._granted
    assert not session._answers
    assert not session._awaited
