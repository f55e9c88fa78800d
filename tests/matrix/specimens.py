"""What is sent through the matrix: one message per body type, property type and header."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.jms.message import Typed, typed

STOMP = "stomp"
ASTRAL = "astral \U0001f600, two bytes \xe9, three \u20ac, zero \0, <&>\r\n"
# Why: Classic lets no STOMP header be longer than 10 240 characters.
LARGE = "0123456789" * 1000


@dataclass(frozen=True)
class Specimen:
    """One message.

    Attributes:
        subject: the row of the matrix that it is sent for: `body Map`, `property int`,
            `header JMSPriority`.
        type: body type as Peer.java names it.
        properties: application properties by name.
        options: of the message and its producer, as Peer.java names them.
        is_alone: whether it needs a queue of its own, since a broker may choke on it.
    """

    subject: str
    type: str = "Text"
    properties: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    is_alone: bool = False

    def described(self, destination: str, test_id: str) -> dict[str, Any]:
        """Return the specimen as Peer.java takes it."""
        return {
            "destination": destination,
            "type": self.type,
            "text": "plain text",
            "sampleProperties": False,
            "properties": typed({**self.properties, "testId": test_id}),
            **self.options,
        }


_BODIES = {
    "Text": "Text",
    "empty Text": "EmptyText",
    "null Text": "NullText",
    "Bytes": "Bytes",
    "empty Bytes": "EmptyBytes",
    "Map": "Map",
    "Object": "Object",
    "plain Message": "Message",
}
# What some brokers can't show to some consumers: they close the consumer, and show nothing else.
_HAZARDS = {"Stream": "PlainStream", "Stream with bytes": "Stream"}
_PROPERTIES = {
    "boolean": Typed("Boolean", True),
    "byte": Typed("Byte", 3),
    "short": Typed("Short", 7),
    "int": Typed("Integer", -42),
    "long": Typed("Long", 1 << 40),
    "float": Typed("Float", 1.5),
    "double": Typed("Double", 2.5),
    "String": "odd: \\ and\nline",
    "empty String": "",
    "null": None,
    "large String": LARGE,
    "non-ASCII String": "h\xe9llo \u20ac",
}
_HEADERS: Mapping[str, Mapping[str, Any]] = {
    "JMSCorrelationID": {"correlationId": "correlation-1 \xe9\u20ac"},
    "JMSReplyTo": {"replyTo": "matrix.reply"},
    "JMSReplyTo topic": {"replyTo": "topic://matrix.reply.topic"},
    "JMSType": {"jmsType": "my.type"},
    "JMSPriority": {"priority": 9},
    "JMSDeliveryMode": {"persistent": False},
    "JMSExpiration": {"ttlMs": 3_600_000},
    "JMSXGroupID": {"group": "group-1"},
    "JMSXGroupSeq": {"group": "group-2", "groupSeq": 7},
}
# What every message has, or gets on its way.
COMMON_HEADERS = (
    "JMSMessageID",
    "JMSTimestamp",
    "JMSDestination",
    "JMSRedelivered",
    "JMSXDeliveryCount",
    "JMSXUserID",
)

SPECIMENS = (
    *(Specimen(f"body {name}", kind) for name, kind in _BODIES.items()),
    *(Specimen(f"property {name}", properties={"p": value}) for name, value in _PROPERTIES.items()),
    Specimen("property non-ASCII name", properties={"pr\xe9nom\u20ac": "value"}),
    *(Specimen(f"header {name}", options=options) for name, options in _HEADERS.items()),
    Specimen("property astral String", properties={"p": "\U0001f600"}, is_alone=True),
    Specimen("body Text, astral and NUL", options={"text": ASTRAL}, is_alone=True),
    *(Specimen(f"body {name}", kind, is_alone=True) for name, kind in _HAZARDS.items()),
)
# A STOMP frame is text or bytes, its headers are text; what else JMS has, it can't say.
STOMP_SUBJECTS = {
    *(f"body {name}" for name in ("Text", "empty Text", "Bytes", "empty Bytes")),
    "body Text, astral and NUL",
    *(f"property {name}" for name in ("String", "empty String", "large String")),
    *("property non-ASCII String", "property non-ASCII name", "property astral String"),
    *(f"header {name}" for name in _HEADERS),
}


def specimens_of(producer: str) -> tuple[Specimen, ...]:
    """Return what a producer can send."""
    if producer != STOMP:
        return SPECIMENS
    return tuple(one for one in SPECIMENS if one.subject in STOMP_SUBJECTS)


def fields_of(subject: str) -> tuple[str, ...]:
    """Return the fields of an observation that a subject is about; a final `*` is a prefix."""
    group, _, name = subject.partition(" ")
    if group == "body":
        return ("type", "body", "body error")
    if group == "property":
        return ("property pr\xe9nom\u20ac",) if name == "non-ASCII name" else ("property p",)
    if name.startswith("JMSXGroup"):
        return ("group id" if name == "JMSXGroupID" else "group sequence",)
    return (name.removesuffix(" topic"),)
