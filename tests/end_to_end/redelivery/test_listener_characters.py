"""Whatever characters a property or a reason has, the listener saves the message, unaltered."""

import uuid
from collections.abc import Iterator

import pytest

from support.brokers.real import ArtemisBroker
from support.sidecar.listener import ListenerProcess
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

ANYCAST = {"subscription-type": "ANYCAST"}
TO_ANYCAST = {"destination-type": "ANYCAST"}
ODD = ["\\", "\\r", ":", "\x7f", "\x80", "\u2028", "\ufeff", "\U0001f600"]
CHARACTERS = [*map(chr, range(32)), *ODD]


@pytest.fixture(scope="module")
def listener(
    artemis: ArtemisBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ListenerProcess]:
    folder = tmp_path_factory.mktemp("listener")
    with ListenerProcess(folder, artemis.ports["PORT"]) as started:
        yield started


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_no_character_ends_the_connection_or_gets_lost(
    artemis: ArtemisBroker, listener: ListenerProcess, version: str
) -> None:
    """In STOMP 1.1 a carriage return has no escape, and `\\r` is an error."""
    queue = f"characters.{uuid.uuid4().hex[:8]}"
    with (
        StompPeer(artemis.ports["PORT"]) as other,
        StompPeer(listener.port, version=version) as consumer,
    ):
        consumer.subscribe(queue, headers=ANYCAST)
        other.subscribe("amqsidecar.intercepted", f"_AMQ_ORIG_ADDRESS = '{queue}'", headers=ANYCAST)
        for one in CHARACTERS:
            text = f"a{one}b"
            other.send(queue, {**TO_ANYCAST, "app-value": text, f"app-{text}": "name"}, b"x")
            consumer.nack(consumer.receive(), reason=text)
            saved = other.receive()
            other.ack(saved)
            assert saved.headers["app-value"] == text
            assert saved.headers[f"app-{text}"] == "name"
            assert saved.headers["amqsidecarCause"].endswith(f": {text}")
