"""The view that an Artemis filter has of a message that the sidecar sends, per wire; sans-IO.

The message is encoded as it will be sent and read as the broker reads it. A value that the broker
sets itself, or whose Java type is unlike Python's, is unknown.

Source: Artemis, FilterImpl.getHeaderFieldValue, AMQPMessage.getObjectPropertyForFilter,
CoreMessage.getObjectProperty, StompUtils.copyStandardHeadersFromFrameToMessage.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from amqsidecar.broker import Resend
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats import core_artemis_message, stomp_artemis_message
from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.formats.core.message import (
    CoreProperty,
    CorePropertyType,
    decode_headers,
    read_core_properties,
)
from amqsidecar.model.destination import Destination
from amqsidecar.policy.selector import UNKNOWN, NarrowInt, PropertyOf, SelectorValue, Unknown

_Values = Mapping[str, SelectorValue | Unknown]

_SET_BY_BROKER: Final[_Values] = dict.fromkeys(
    (
        *("AMQSize", "AMQUserID", "AMQTimestamp", "AMQGroupID", "JMSXGroupID", "JMSXGroupSeq"),
        *("JMSXUserID", "JMSCorrelationID", "__AMQ_CID", "_AMQ_VALIDATED_USER"),
        *("_AMQ_INGRESS_TIMESTAMP", "_AMQ_HOPS"),
    ),
    UNKNOWN,
)
_CREATED: Final = 9
_NO_PRIORITY: Final = 4
_PRIORITY_MAX: Final = 9
_AMQP_TEXT: Final = frozenset((0xA1, 0xB1))
# Boolean, byte, short, int, long, float, double, text and null; Java lacks the other types.
_AMQP_PLAIN: Final = _AMQP_TEXT | {
    *(0x40, 0x41, 0x42, 0x56, 0x51, 0x61, 0x54, 0x71, 0x55, 0x81, 0x72, 0x82)
}
_AMQP_PROPERTIES: Final = {3: "JMSType", 10: "JMSXGroupID"}
_AMQP_NARROW: Final = frozenset((0x51, 0x61))
_CORE_NARROW: Final = frozenset((CorePropertyType.BYTE, CorePropertyType.SHORT))
_CORE_OPAQUE: Final = frozenset((CorePropertyType.BYTES, CorePropertyType.CHAR))
_STOMP_OF_FRAME: Final = frozenset(
    ("destination", "destination-type", "content-length", "expires", "reply-to", "correlation-id")
)


def filter_view(
    resend: Resend, target: str, encoding: str, now_ms: int, *, expires_by_itself: bool
) -> PropertyOf:
    """Return the properties and header fields of a message under the names that filters use.

    Args:
        target: the address or qualified name to send to.
        encoding: the message's encoding.
        expires_by_itself: the broker sets an expiration on messages that arrive there.

    Raises:
        UndecodableMessage: the message can't be taken apart.
    """
    resend = msgspec.structs.replace(
        resend, destination=Destination(resend.destination.kind, target)
    )
    if encoding.startswith("amqp/"):
        found = _of_amqp(amqp.split(encode_resend(resend, now_ms)))
    elif encoding == core_artemis_message.ENCODING:
        made = core_artemis_message.make_resend(resend, target, now_ms)
        found = _of_core(made.headers)
    else:
        found = _of_stomp(stomp_artemis_message.resend_frame(resend, now_ms)[0])
    is_final = resend.is_final and resend.expiration_ms > 0
    expires_at_ms = now_ms + resend.expiration_ms if is_final else 0
    values: _Values = {
        **_SET_BY_BROKER,
        **found,
        "AMQAddress": target,
        "AMQExpiration": UNKNOWN if expires_by_itself else expires_at_ms,
    }

    def property_of(name: str) -> SelectorValue | Unknown:
        # Why the prefix: it marks names outside the properties, such as AMQP annotations.
        return UNKNOWN if name.startswith("m.") else values.get(name)

    return property_of


def _durability(durable: bool) -> str:
    return "DURABLE" if durable else "NON_DURABLE"


def _of_amqp(sections: Mapping[int, bytes]) -> dict[str, SelectorValue | Unknown]:
    header = amqp.elements(sections[amqp.HEADER]) if amqp.HEADER in sections else []
    durable = amqp.scalar(header[0]) if header else None
    priority = amqp.scalar(header[1]) if len(header) > 1 else None
    values: dict[str, SelectorValue | Unknown] = {
        "AMQDurable": _durability(durable is True),
        "AMQPriority": min(priority if isinstance(priority, int) else _NO_PRIORITY, _PRIORITY_MAX),
        "JMSType": None,
    }
    items = amqp.elements(sections[amqp.PROPERTIES]) if amqp.PROPERTIES in sections else []
    for at, name in _AMQP_PROPERTIES.items():
        values[name] = _amqp_value(items[at]) if len(items) > at else None
    values["AMQGroupID"] = values["JMSXGroupID"]
    created_ms = amqp.scalar(items[_CREATED]) if len(items) > _CREATED else None
    values["AMQTimestamp"] = created_ms if isinstance(created_ms, int) else 0
    if items and items[0][0] in _AMQP_TEXT:
        message_id = str(amqp.scalar(items[0]))
        values["AMQUserID"] = message_id if message_id.startswith("ID:") else f"ID:{message_id}"
    section = sections.get(amqp.APPLICATION_PROPERTIES)
    pairs = [] if section is None else amqp.pairs(section)
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if key[0] in _AMQP_TEXT and (name := str(amqp.scalar(key))) not in values:
            values[name] = _amqp_value(value)
    return values


def _amqp_value(element: bytes) -> SelectorValue | Unknown:
    value = amqp.scalar(element) if element[0] in _AMQP_PLAIN else UNKNOWN
    if isinstance(value, int) and element[0] in _AMQP_NARROW:
        return NarrowInt(value)
    return value if isinstance(value, bool | int | float | str | None) else UNKNOWN


def _of_core(headers: bytes) -> dict[str, SelectorValue | Unknown]:
    message = decode_headers(headers)
    values = {
        name: _core_value(found) for name, found in read_core_properties(message.properties).items()
    }
    message_id = core_artemis_message.message_id_of(message)
    return {
        **({} if message_id is None else {"AMQUserID": message_id}),
        "JMSCorrelationID": None,
        **values,
        "AMQPriority": message.priority,
        "AMQTimestamp": message.timestamp_ms,
        "AMQDurable": _durability(message.durable),
        "AMQGroupID": values.get("_AMQ_GROUP_ID"),
    }


def _core_value(found: CoreProperty) -> SelectorValue | Unknown:
    value = found.value
    if found.kind in _CORE_OPAQUE or isinstance(value, bytes):
        return UNKNOWN
    if isinstance(value, int) and found.kind in _CORE_NARROW:
        return NarrowInt(value)
    return value


def _of_stomp(headers: list[tuple[bytes, bytes]]) -> dict[str, SelectorValue | Unknown]:
    values: dict[str, SelectorValue | Unknown] = {
        "AMQPriority": _NO_PRIORITY,
        "AMQDurable": _durability(False),
    }
    for name_bytes, value_bytes in headers:
        name, text = name_bytes.decode(errors="replace"), value_bytes.decode(errors="replace")
        match name:
            case "priority":
                values["AMQPriority"] = int(text) if text.isdigit() else UNKNOWN
            case "persistent":
                values["AMQDurable"] = _durability(text.lower() == "true")
            case "type":
                values["JMSType"] = text
            case _ if name in _STOMP_OF_FRAME:
                values[name] = UNKNOWN
            case _:
                # Why the first: of several headers of a name it counts.
                values.setdefault(name, text)
    return values
