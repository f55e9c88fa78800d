"""Unrequested messages of a hostile broker, over STOMP and OpenWire."""

import random
import re
from collections.abc import Iterator
from functools import partial
from itertools import repeat

from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.stomp_frame import encode
from support.wires.hostile_broker import OPENWIRE_GREETING, STOMP_CONNECTED, Attack
from support.wires.openwire import WireMessage

_RECEIPT = re.compile(rb"\nreceipt:([^\n]+)\n")
_SUBSCRIPTION = re.compile(rb"SUBSCRIBE\n(?:[^\n]+\n)*?id:([^\n]+)\n")
_PIECE_BYTES = 2**20
_TIMES = 4_096


def _flood(message: bytes) -> Iterator[bytes]:
    return repeat(message * max(1, _PIECE_BYTES // len(message)), _TIMES)


def _stomp(body: bytes, message_id: bytes, heard: bytes) -> bytes | Iterator[bytes]:
    """Confirm requests for a receipt, and flood the first subscription."""
    receipts = _receipts(heard)
    subscription = _SUBSCRIPTION.search(heard)
    if subscription is None:
        return receipts
    headers = [
        (b"subscription", subscription[1]),
        (b"message-id", message_id),
        (b"ack", b"1"),
        (b"destination", b"/queue/ActiveMQ.DLQ"),
        (b"original-destination", b"/queue/orders"),
        (b"timestamp", b"1"),
        (b"content-length", b"%d" % len(body)),
    ]
    return _after(receipts, _flood(encode("MESSAGE", headers, body)))


def _receipts(heard: bytes) -> bytes:
    found = _RECEIPT.findall(heard)
    return b"".join(encode("RECEIPT", [(b"receipt-id", one)]) for one in found)


def _after(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def _openwire(body: bytes, heard: bytes) -> bytes | Iterator[bytes]:
    """Answer requests, and flood the first consumer."""
    answers, consumer = [], b""
    for frame in map(bytes, codec.FrameSplitter(2**20).feed(heard)):
        if frame[0] == codec.CONSUMER_INFO:
            consumer = frame[6 : 27 + int.from_bytes(frame[9:11])]
        if frame[0] < codec.MESSAGE_DISPATCH and frame[5]:
            number = int.from_bytes(frame[1:5])
            answers.append(_frame(codec.RESPONSE, number.to_bytes(4)))
    if not consumer:
        return b"".join(answers)
    message = WireMessage(content=len(body).to_bytes(4) + body)
    fields = (consumer, codec.NULL, b"\x01", message.encoded(), bytes(4))
    dispatch = _frame(codec.MESSAGE_DISPATCH, b"".join(fields))
    return _after(b"".join(answers), _flood(dispatch))


def _frame(code: int, fields: bytes) -> bytes:
    return codec.command(code, 0, fields, answer=False)


SMALL = b"x" * 4_096
LARGE = bytes(5 * 2**20)
BODIES = (SMALL, LARGE)
# Why random: the store keeps what it can't make smaller as it is.
LARGEST = random.Random(0).randbytes(100 * 2**20 - 4_096)
CLASSIC_ID, ARTEMIS_ID = b"ID:host-1-2-2:1:-1:1:1", b"7"


def stomp(body: bytes, message_id: bytes = CLASSIC_ID) -> Attack:
    """Accept the sidecar, then hand over messages with this body without end."""
    return (STOMP_CONNECTED, partial(_stomp, body, message_id))


def openwire(body: bytes) -> Attack:
    """Accept the sidecar, then hand over messages with this body without end."""
    return (OPENWIRE_GREETING, partial(_openwire, body))


def polite_stomp() -> Attack:
    """Accept the sidecar, and confirm requests for a receipt."""
    return (STOMP_CONNECTED, _receipts)
