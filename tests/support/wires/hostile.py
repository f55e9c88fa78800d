"""Messages that a stranger may send over each wire; each has its name in its body.

What is here is encoded by hand: client libraries don't write such things.
"""

import re
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TypedDict
from uuid import UUID

from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.stomp_frame import FrameReader, Header, encode
from support.brokers.real import Broker
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

TEN_MB = 10_000_000
LONG = "x" * 60_000
_OURS = ("amqsidecarRedeliveryId", "amqsidecarRedeliveryCount", "redeliveryDelay")
_ORIGINAL_ID = "amqsidecarOriginalMessageId"
_MARK = re.compile(rb"hostile:([a-z0-9 ]+);")


def mark(name: str) -> bytes:
    """Return the beginning of a specimen's body."""
    return f"hostile:{name};".encode()


def name_in(message: bytes) -> str:
    """Return the name of the specimen that an encoded message is."""
    found = _MARK.search(message)
    assert found is not None, message[:300]
    return found[1].decode()


def _binary(data: bytes) -> bytes:
    return struct.pack(">BI", 0xB0, len(data)) + data


def _list(*items: bytes) -> bytes:
    return amqp.make_list(amqp.VALUE, list(items))[3:]


def _value(element: bytes) -> bytes:
    return b"\x00\x53\x77" + element


class _Parts(TypedDict, total=False):
    """Sections of an AMQP message that are not the usual ones."""

    header: list[bytes]
    annotations: list[tuple[str, bytes]]
    properties: list[bytes]
    application: list[tuple[str, bytes]]


def _amqp(
    name: str,
    *,
    header: Iterable[bytes] = (b"\x41",),
    annotations: Iterable[tuple[str, bytes]] = (),
    properties: Iterable[bytes] = (),
    application: Iterable[tuple[str, bytes]] = (),
    body: bytes | None = None,
) -> bytes:
    sections = [amqp.make_list(amqp.HEADER, list(header))]
    if found := [part for key, one in annotations for part in (amqp.symbol(key), one)]:
        sections.append(amqp.make_map(amqp.MESSAGE_ANNOTATIONS, found))
    sections.append(amqp.make_list(amqp.PROPERTIES, list(properties)))
    if found := [part for key, one in application for part in (amqp.string(key), one)]:
        sections.append(amqp.make_map(amqp.APPLICATION_PROPERTIES, found))
    sections.append(_value(amqp.string(mark(name).decode())) if body is None else body)
    return b"".join(sections)


def amqp_messages() -> dict[str, bytes]:
    """Return encoded AMQP messages by name."""
    text, data = amqp.string, b"\x00\x53\x75"
    ours = {
        "ours as text": (text("x"), text("3"), text("soon")),
        "ours as other types": (amqp.long(7), b"\x41", _binary(b"x")),
        "ours negative": (text(""), amqp.integer(-3), amqp.long(-1)),
        "ours huge": (text(LONG), amqp.long(2**62), b"\x80" + b"\xff" * 8),
        "ours at the end of the int": (text("x"), amqp.integer(2**31 - 1), amqp.long(2**62)),
    }
    found: dict[str, _Parts] = {
        name: {"application": list(zip(_OURS, values, strict=True))}
        for name, values in ours.items()
    }
    found["original id of another type"] = {"application": [(_ORIGINAL_ID, amqp.long(5))]}
    found["duplicate id"] = {"application": [("_AMQ_DUPL_ID", text("one"))]}
    found["duplicate id of another type"] = {"application": [("_AMQ_DUPL_ID", amqp.long(5))]}
    found["delivered very often"] = {
        "header": [b"\x41", b"\x50\x04", *[amqp.NULL] * 2, b"\x70" + b"\xff" * 4]
    }
    found["delivery count as a property"] = {"application": [("JMSXDeliveryCount", text("many"))]}
    found["priority 255"] = {"header": [b"\x41", b"\x50\xff"]}
    found["origin in properties"] = {
        "application": [("_AMQ_ORIG_ADDRESS", text("victim")), ("_AMQ_ORIG_QUEUE", text("victim"))]
    }
    found["origin in annotations"] = {
        "annotations": [
            ("x-opt-ORIG-ADDRESS", text("victim")),
            ("x-opt-ORIG-QUEUE", text("victim")),
        ]
    }
    found["origin of other types"] = {
        "application": [("_AMQ_ORIG_ADDRESS", amqp.long(1)), ("_AMQ_ORIG_QUEUE", b"\x41")],
        "annotations": [("x-opt-ORIG-ADDRESS", amqp.long(1))],
    }
    found["keys of the list of messages"] = {
        "application": [("messageID", text("x")), ("type", amqp.integer(3)), ("userID", b"\x41")]
    }
    ids = {
        "id uuid": b"\x98" + UUID(int=7).bytes,
        "id ulong": b"\x80" + b"\xff" * 8,
        "id binary": _binary(b"\0\xff"),
        "id empty": text(""),
        "id of 60 kb": text(LONG),
        "id with line breaks": text("a\nb\0c\r\t"),
    }
    found |= {name: {"properties": [value]} for name, value in ids.items()}
    found["group of 60 kb"] = {
        "properties": [*[amqp.NULL] * 10, text(LONG), amqp.unsigned(2**32 - 1)]
    }
    found["made before 1970"] = {"properties": [*[amqp.NULL] * 9, amqp.timestamp(-5)]}
    found["10000 properties"] = {
        "application": [(f"name{number}", amqp.integer(number)) for number in range(10_000)]
    }
    found["odd names"] = {
        "application": [("", text("")), ("a\0b", text("\0")), ("ü😀\n:", text("\\"))]
    }
    made = {name: _amqp(name, **values) for name, values in found.items()}
    made["10 mb"] = _amqp("10 mb", body=data + _binary(mark("10 mb") + bytes(TEN_MB)))
    bodies: dict[str, Callable[[bytes], bytes]] = {
        "several data": lambda one: (data + one) * 3,
        "sequences": lambda one: (b"\x00\x53\x76" + _list(one, amqp.NULL)) * 2,
        "unknown described value": lambda one: _value(b"\x00\xa3\x03x:y" + one),
        "a list in lists": lambda one: _value(_list(_list(_list(one)))),
        "a footer": lambda one: _value(one) + amqp.make_map(amqp.FOOTER, [amqp.symbol("x"), one]),
    }
    for name, body in bodies.items():
        made[name] = _amqp(name, body=body(_binary(mark(name))))
    return made


def stomp_messages() -> dict[str, tuple[list[Header], bytes]]:
    """Return headers and body of SEND frames by name."""
    found: dict[str, list[Header]] = {
        "stomp ours": [(name.encode(), b"-1") for name in _OURS],
        "stomp ours huge": [(name.encode(), b"9" * 9_000) for name in _OURS],
        "stomp original destination": [(b"original-destination", b"/queue/victim")],
        "stomp origin": [(b"_AMQ_ORIG_ADDRESS", b"victim"), (b"_AMQ_ORIG_QUEUE", b"victim")],
        "stomp origin in annotations": [(b"JMS_AMQP_MA_x-opt-ORIG-ADDRESS", b"victim")],
        "stomp duplicate id": [(b"_AMQ_DUPL_ID", b"two")],
        "stomp escapes": [(b"a\nb:c\\", b"\r\n:\\"), (b"other", b"")],
        "stomp names twice": [(b"twice", b"1"), (b"twice", b"2"), (b"priority", b"9")],
        "stomp priority 255": [(b"priority", b"255")],
        "stomp made before 1970": [(b"timestamp", b"-5")],
        "stomp delivered often": [(b"JMSXDeliveryCount", b"999999999")],
        "stomp other ids": [(b"message-id", b"x"), (b"ack", b"1"), (b"subscription", b"2")],
        "stomp keys of the list": [(b"messageID", b"x"), (b"userID", b"7")],
        "stomp long value": [(b"long", b"x" * 9_000)],
        "stomp not utf 8": [(b"odd", b"\xff\xfe")],
    }
    made = {name: (headers, mark(name)) for name, headers in found.items()}
    nul = mark("stomp nul") + b"\0\0\n\n\0MESSAGE\n\n\0"
    made["stomp nul"] = ([(b"content-length", b"%d" % len(nul))], nul)
    large = mark("stomp 10 mb") + b"x" * TEN_MB
    made["stomp 10 mb"] = ([(b"content-length", b"%d" % len(large))], large)
    return made


def send_stomp(
    broker: Broker, port: str, destination: str, headers: list[Header], body: bytes
) -> bool:
    """Send one frame on a connection of its own; return whether the broker took it."""
    login = [(b"login", broker.user.encode()), (b"passcode", broker.password.encode())]
    kind = [(b"destination-type", b"ANYCAST")] * (port == "PORT")
    sent = [(b"destination", destination.encode()), *kind, (b"persistent", b"true")]
    reader = FrameReader()
    with socket.create_connection(("127.0.0.1", broker.ports[port]), 30) as peer:
        connect = [(b"accept-version", b"1.2"), (b"host", b"h"), *login]
        for frame, answer in (
            (encode("CONNECT", connect), "CONNECTED"),
            (encode("SEND", [*sent, (b"receipt", b"1"), *headers], body), "RECEIPT"),
        ):
            try:
                peer.sendall(frame)
                while not (frames := reader.feed(data := peer.recv(65536))):
                    if not data:
                        return False
            except ConnectionError:
                return False
            if frames[0].command != answer:
                return False
    return True


def openwire_messages(origin: str) -> dict[str, WireMessage]:
    """Return dead letters as a broker would keep them, by name."""

    def dead(name: str, *entries: bytes, **fields: object) -> WireMessage:
        body = mark(name)
        return WireMessage(
            **{
                "content": struct.pack(">i", len(body)) + body,
                "properties": wire.property_map(*entries) if entries else None,
                "original_destination": (wire.QUEUE, origin),
                **fields,
            }  # type: ignore[arg-type]
        )

    text, deep = wire.text_entry, struct.pack(">i", 1) + b"\x0c"
    found = [
        dead("ours as text", *(text(name, "3") for name in _OURS)),
        dead("ours as other types", *(wire.entry(name, 10, bytes(4)) for name in _OURS)),
        dead("ours negative", *(wire.int_entry(name, -3) for name in _OURS)),
        dead("ours huge", *(wire.long_entry(name, 2**62) for name in _OURS)),
        dead(
            "ours at the end of the int", text(_OURS[0], "x"), wire.int_entry(_OURS[1], 2**31 - 1)
        ),
        dead("original id of another type", wire.long_entry(_ORIGINAL_ID, 5)),
        dead("unknown type of a property", wire.entry("a", 99, bytes(4))),
        dead("deep property", wire.entry("a", 12, deep * 200 + struct.pack(">i", 0))),
        dead("properties cut off", properties=struct.pack(">i", 9) + text("a", "b")),
        dead("text that is no utf 8", wire.entry("a", 9, b"\0\2\xff\xfe")),
        dead("compressed that is not", compressed=True),
        dead("10000 properties", *(wire.int_entry(f"name{n}", n) for n in range(10_000))),
        dead("priority 255", priority=255),
        dead("made before 1970", timestamp=-5),
        dead("delivered very often", redelivery_counter=2**31 - 1),
        dead("delivered less than never", redelivery_counter=-7),
        dead("id as text", text_view="a\nb\0c"),
        dead("id of 60 kb", text_view=LONG),
        dead("group of 60 kb", group=LONG, group_sequence=-1),
        dead("correlation of 60 kb", correlation_id=LONG),
        dead("no origin", original_destination=None),
        dead("origin of wildcards", original_destination=(wire.QUEUE, "victim.>")),
        dead("origin of several", original_destination=(wire.QUEUE, "victim,queue://other")),
        dead("origin with nul", original_destination=(wire.QUEUE, "victim\0x")),
        dead(
            "origin that is a token", original_destination=(wire.QUEUE, "amqsidecar.token.victim")
        ),
        dead("origin of advisories", original_destination=(wire.TOPIC, "ActiveMQ.Advisory.Queue")),
        dead("origin that is temporary", original_destination=(wire.TEMP_QUEUE, "ID:x:1:1")),
        dead("cause of 60 kb", text("dlqDeliveryFailureCause", LONG)),
        dead("cause of another type", wire.int_entry("dlqDeliveryFailureCause", 5)),
        dead("expired by text", text("originalExpiration", "yesterday")),
        dead("expires never", wire.long_entry("originalExpiration", 2**63 - 1)),
        dead(
            "scheduled",
            text("AMQ_SCHEDULED_DELAY", "x"),
            wire.long_entry("AMQ_SCHEDULED_REPEAT", -1),
        ),
    ]
    large = struct.pack(">i", TEN_MB) + mark("10 mb")
    found.append(dead("10 mb", content=large + bytes(TEN_MB - len(large) + 4)))
    return {name_in(one.content or b""): one for one in found}
