"""What a hostile peer sends over AMQP, before and after the log-in."""

import re
import struct
from collections.abc import Mapping

from amqsidecar.formats import amqp_sections as amqp
from support.wires.hostile_broker import LISTEN, Attack

_AMQP, _SASL = 0, 1
_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _CLOSE = (*range(0x10, 0x16), 0x18)
_TRUE, _FALSE, _ZERO = b"\x41", b"\x42", b"\x43"
_HANDLE = 77
"""Ours, of the first link on which the sidecar receives."""

_ANSWER = 0
"""The number of the message in an answer."""

DEEP = bytes(200_000)
"""A described type whose descriptor is described, and so on."""


def _uint(number: int) -> bytes:
    return struct.pack(">BI", 0x70, number)


def _frame(code: int, *fields: bytes, kind: int = _AMQP, rest: bytes = b"") -> bytes:
    body = amqp.make_list(code, list(fields)) + rest
    return struct.pack(">IBBH", len(body) + 8, 2, kind, 0) + body


def _nested_lists() -> bytes:
    found = b"\x45"
    for _ in range(20_000):
        found = struct.pack(">BII", 0xD0, len(found) + 4, 1) + found
    return found


def transfer(payload: bytes, *, number: int = _ANSWER, has_more: bool = False) -> bytes:
    """Return a frame with a message, or with a part of one."""
    tag = b"\xa0\x04" + struct.pack(">I", number)
    more = _TRUE if has_more else _FALSE
    return _frame(_TRANSFER, _uint(_HANDLE), _uint(number), tag, _ZERO, _FALSE, more, rest=payload)


def _messages(count: int, size: int) -> bytes:
    parts, rest = divmod(size, 200_000)
    return b"".join(
        transfer(bytes(200_000), number=number, has_more=True) * parts
        + transfer(bytes(rest), number=number)
        for number in range(count)
    )


def let_in(said: bytes) -> bytes:
    """Answer each attach, and give credit on each link on which the sidecar sends."""
    answers = []
    for at, (name, role) in enumerate(_ATTACHED.findall(said)):
        is_receiver = role == _TRUE
        handle = _uint(_HANDLE if is_receiver else at)
        named = amqp.string(name[1:].decode())
        ends = amqp.make_list(0x28, [named]), amqp.make_list(0x29, [named])
        ours = _FALSE if is_receiver else _TRUE
        fields = [named, handle, ours, amqp.NULL, amqp.NULL, *ends, amqp.NULL, amqp.NULL, _ZERO]
        answers.append(_frame(_ATTACH, *fields))
        if not is_receiver:
            flow = [_ZERO, _uint(1000), _ZERO, _uint(1000), handle, _ZERO, _uint(100)]
            answers.append(_frame(_FLOW, *flow))
    return b"".join(answers)


# Name, handle and role, as the engine writes them.
_ATTACHED = re.compile(rb"\x00S\x12\xc0..\xa1(.[a-z-]+)(?:\x43|\x52.)([AB])", re.DOTALL)
_PRODUCT = amqp.symbol("product") + amqp.string("apache-activemq-artemis")
_PROPERTIES = struct.pack(">BII", 0xD1, len(_PRODUCT) + 4, 2) + _PRODUCT
_MECHANISMS = b"AMQP\x03\x01\x00\x00" + _frame(0x40, amqp.symbol("ANONYMOUS"), kind=_SASL)
_OUTCOME = _frame(0x44, b"\x50\x00", kind=_SASL)
_HEADER = b"AMQP\x00\x01\x00\x00"
_NULLS = [amqp.NULL] * 8
_OPENED = _HEADER + _frame(_OPEN, amqp.string("h"), *_NULLS, _PROPERTIES)
_BEGUN = _frame(_BEGIN, b"\x60\x00\x00", _ZERO, _uint(1000), _uint(1000))
_LOGGED_IN = (_MECHANISMS, LISTEN, _OUTCOME, LISTEN)
_IN = (*_LOGGED_IN, _OPENED + _BEGUN, let_in)
_ERROR = [amqp.symbol("amqp:x"), amqp.string("x")]


def whole_messages(count: int, size: int) -> Attack:
    """Admit the sidecar, and deliver messages in parts, none of which is missing."""
    return (*_IN, _messages(count, size), LISTEN)


ATTACKS: Mapping[str, Attack] = {
    "SASL frame of 2 GiB": (_MECHANISMS[:8] + b"\x7f\xff\xff\xff\x02\x01", bytes(2**20)),
    "SASL frame, nested": (_MECHANISMS[:8] + struct.pack(">IBBH", 200_008, 2, 1, 0), DEEP),
    "frame of 2 GiB": (*_LOGGED_IN, _HEADER + b"\x7f\xff\xff\xff\x02\x00", bytes(2**20)),
    "open, nested": (*_LOGGED_IN, _HEADER, _frame(_OPEN, amqp.string("h"), *_NULLS, DEEP)),
    "endless message": (*_IN, transfer(bytes(200_000), has_more=True)),
    "endless message in small frames": (*_IN, transfer(b"xy", has_more=True) * 3_000),
    "unasked messages": (*_IN, _messages(150, 200_000)),
    "large answers": whole_messages(8, 10_000_000),
    "unasked links": (*_IN, _frame(_ATTACH, amqp.string("x"), _uint(9), _FALSE)),
    "outcome, nested": (*_IN, _frame(_DISPOSITION, _TRUE, _ZERO, _ZERO, _TRUE, DEEP)),
    "close, nested": (*_IN, _frame(_CLOSE, amqp.make_list(0x1D, [*_ERROR, _nested_lists()]))),
}
