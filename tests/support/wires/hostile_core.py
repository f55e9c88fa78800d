"""What a hostile peer sends over Core, before and after the log-in."""

import struct
from collections.abc import Mapping

from amqsidecar.formats.core import framing, message_packets, packets
from amqsidecar.formats.core.message import DEFAULT_MESSAGE, NO_PROPERTIES, CoreMessage
from amqsidecar.formats.core.packet_format import CorePacket
from support.wires.hostile_broker import LISTEN, Attack

CHANNEL = framing.FIRST_SESSION_CHANNEL
"""Of the first session."""

CONSUMER = 1
"""The first of a session."""

_MESSAGE = CoreMessage(
    body=b"",
    message_id=1,
    address="a",
    user_id=None,
    kind=DEFAULT_MESSAGE,
    durable=True,
    expiration_ms=0,
    timestamp_ms=0,
    priority=4,
    properties=NO_PROPERTIES,
)
_ALWAYS_ANSWERED = (
    packets.StopSession,
    packets.CloseSession,
    packets.CloseConsumer,
    packets.Rollback,
    packets.DeleteQueue,
)


def said(packet: CorePacket, channel: int = CHANNEL) -> bytes:
    """Return a packet as it goes over the wire."""
    return framing.frame(packets.code_of(packet), channel, packets.encode(packet))


def let_in(heard: bytes) -> bytes:
    """Answer all that is asked."""
    answers = []
    heard = heard.removeprefix(framing.GREETING)
    for code, channel, fields in framing.CoreFrameSplitter(2**20).feed(heard):
        packet = packets.decode(code, fields)
        number = getattr(packet, "correlation_id", packets.NO_CORRELATION)
        if isinstance(packet, packets.CreateSession):
            answers.append(said(packets.SessionCreated(packets.VERSION_MAX), channel))
        elif isinstance(packet, _ALWAYS_ANSWERED) or getattr(packet, "requires_response", False):
            answers.append(said(packets.NullResponse(number), channel))
    return b"".join(answers)


def _message(body: bytes) -> bytes:
    return said(message_packets.ReceiveMessage(_MESSAGE._replace(body=body), CONSUMER, 1))


def _large(body_bytes: int) -> bytes:
    return said(message_packets.ReceiveLarge(CONSUMER, 1, body_bytes, _MESSAGE))


def _credits() -> bytes:
    return b"".join(said(packets.ProducerCredits(1, f"{at}{'x' * 900}")) for at in range(1_000))


_PIECE = said(
    message_packets.ReceiveContinuation(bytes(100_000), continues=True, consumer_id=CONSUMER)
)
_PONG = said(packets.Ping(-1), framing.PING_CHANNEL)
_IN: Attack = (_PONG, let_in, let_in, let_in)

ATTACKS: Mapping[str, Attack] = {
    "frame of 2 GiB at once": (struct.pack(">i", 2**31 - 1) + b"\x0a", bytes(2**20)),
    "frame of 2 MiB before the log-in": (_PONG, LISTEN, struct.pack(">i", 2**21), bytes(2**20)),
    "frame of 2 GiB": (*_IN, struct.pack(">i", 2**31 - 1), bytes(2**20)),
    "frame of 200 MiB": (*_IN, struct.pack(">i", 200 * 2**20), bytes(2**20)),
    "messages without credit": (*_IN, _message(bytes(1_000)) * 1_000),
    "small messages without credit": (*_IN, _message(b"") * 10_000),
    "huge large message": (*_IN, _large(2**40), _PIECE),
    "large message without an end": (*_IN, _large(2**20), _PIECE),
    "pieces without a large message": (*_IN, _PIECE),
    "heads of large messages": (*_IN, _large(2**20) * 10_000),
    "answers that nobody waits for": (
        *_IN,
        b"".join(said(packets.NullResponse(number)) for number in range(50_000)),
    ),
    "rooms that nobody asked for": (*_IN, _credits()),
    "ends of consumers": (*_IN, said(packets.ConsumerDisconnected(CONSUMER)) * 50_000),
}
