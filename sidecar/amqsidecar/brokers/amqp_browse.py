"""Looking into a dead-letter queue of Artemis without taking anything.

Quirk (Artemis 2.44): a browse over AMQP is not harmless. A message that the broker can't convert to
AMQP (a StreamMessage with bytes, made by a Core or OpenWire client) stays in its queue, and a copy
of it goes to the dead-letter address: one more at each look. So the broker's management is asked
to list what is there; where that is not possible, only what needs no conversion is browsed.
"""

import json
from collections.abc import Mapping
from typing import Any

import cproton

from amqsidecar.broker import (
    PROPERTY_CAUSE,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_ID,
    Delivery,
    IntakeQueue,
)
from amqsidecar.brokers.amqp_connection import AmqpConnection
from amqsidecar.brokers.amqp_links import InHand, Receiver
from amqsidecar.brokers.amqp_message import (
    ANYCAST,
    MULTICAST,
    TWO_ORIGINS,
    Origin,
    OriginReader,
    identity_of,
    read_provenance,
)
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question
from amqsidecar.brokers.redelivery_mark import Marks, life_of
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.provenance import Provenance

NEEDS_NO_CONVERSION = "__AMQ_CID IS NULL"
"""Selector of what AMQP, STOMP and MQTT clients have made: Core and OpenWire clients set this."""

# Bound: the broker lists a whole queue at once, several hundred bytes for each message.
_LISTED_MAX = 10_000
_BYTES_MAX = 64 * 1024 * 1024
_FIRST_ASKED = 10
_ASKED_MAX = 500


def list_messages(
    management: ArtemisQuestions, queue: IntakeQueue, at_most: int, read_origin: OriginReader
) -> list[Delivery] | None:
    """Return what the broker lists of a queue, without bodies; None = it can't, or is too many.

    Raises:
        LinkLost: the connection is gone.
    """
    if management.missing is not None:
        return None
    resource = f"queue.{queue.destination.name.rpartition('::')[2]}"
    count = management.ask(Question(resource, attribute="MessageCount"))
    if not count.is_ok:
        return []
    if int(count.value) > max(at_most, _LISTED_MAX):
        return None
    listed = management.ask(Question(resource, "listMessagesAsJSON", ("",)))
    if not listed.is_ok:
        return None
    return [
        Delivery(
            entry.get("messageID"),
            queue.destination,
            b"",
            _read_listed(entry, queue, read_origin),
        )
        for entry in json.loads(listed.value)[:at_most]
    ]


def _read_listed(
    entry: Mapping[str, Any], queue: IntakeQueue, read_origin: OriginReader
) -> Provenance:
    """Return what a listed dead letter tells about its past; see `amqp_message.read_provenance`.

    Source: Artemis, QueueControl.listMessagesAsJSON, which calls Message.toMap.
    """
    annotated = _origin(entry, "x-opt-ORIG-", "-") or _origin(entry, "JMS_AMQP_MA_x-opt-ORIG-", "-")
    found = _origin(entry, "_AMQ_ORIG_", "_") or _origin(entry, "_HQ_ORIG_", "_")
    destination, problem = None, "it does not tell where it comes from"
    if annotated is not None and found is not None and annotated[:2] != found[:2]:
        problem = TWO_ORIGINS.format(annotated.address, found.address)
    elif annotated is not None or found is not None:
        origin = annotated or found
        assert origin is not None  # noqa: S101 - one of them is
        destination, told = read_origin(origin)
        problem = told or ""
    message_id = _message_id(entry)
    count = entry.get(PROPERTY_REDELIVERY_COUNT)
    redelivery_id, redelivery_count = life_of(
        Marks(
            _text(entry.get(PROPERTY_REDELIVERY_ID)),
            count if isinstance(count, int) and 0 <= count < 2**31 else 0,
            _text(entry.get(PROPERTY_REDELIVERY_CHECK)),
        ),
        (destination, queue.destination),
        identity_of(message_id, int(entry.get("timestamp", 0))),
        is_given_up="x-opt-ORIG-MESSAGE-ID" not in entry and "_AMQ_ORIG_MESSAGE_ID" not in entry,
    )
    return Provenance(
        origin=destination,
        cause=_text(entry.get(PROPERTY_CAUSE)),
        expired=queue.expires
        or any(
            name in entry
            for name in ("x-opt-ACTUAL-EXPIRY", "_AMQ_ACTUAL_EXPIRY", "_HQ_ACTUAL_EXPIRY")
        ),
        message_id=message_id,
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=entry.get("durable") is True,
        problem=problem or None,
    )


def _origin(entry: Mapping[str, Any], prefix: str, joint: str) -> Origin | None:
    address = _text(entry.get(f"{prefix}ADDRESS"))
    if address is None:
        return None
    routing_type = entry.get(f"{prefix}ROUTING{joint}TYPE")
    is_known = routing_type in (ANYCAST, MULTICAST) and not isinstance(routing_type, bool)
    return Origin(
        address.split("::", 1)[0],
        _text(entry.get(f"{prefix}QUEUE")),
        routing_type if is_known else None,
    )


def _message_id(entry: Mapping[str, Any]) -> str | None:
    text = _text(entry.get("userID"))
    # Quirk (Artemis): an AMQP message has `_AMQ_AD`, and its message-id is listed as `ID:` and id.
    return text[3:] if text is not None and "_AMQ_AD" in entry else text


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def browse_convertible(
    connection: AmqpConnection,
    link_name: str,
    queue: IntakeQueue,
    at_most: int,
    read_origin: OriginReader,
    timeout_s: float,
) -> list[Delivery]:
    """Return what AMQP, STOMP and MQTT clients have made, until it is many or holds many bytes.

    Raises:
        BrokerRefused: the user may not browse, or it is a queue that can't be browsed safely.
        LinkLost: the connection is gone, or the broker does not answer in `timeout_s`.
    """
    name = queue.destination.name
    if "::" in name:
        # Quirk (Artemis): a selector on a multicast queue by its fully qualified name ends the
        # connection, and without one what can't be converted is copied.
        raise BrokerRefused(
            f"can't look into {name} without the right to manage the broker: allow the user to "
            "send and manage on activemq.management"
        )
    receiver = Receiver(
        connection,
        link_name,
        name,
        capability="queue",
        is_browsing=True,
        selector=NEEDS_NO_CONVERSION,
    )
    found: list[Delivery] = []
    held_bytes = 0
    asked = _FIRST_ASKED
    try:
        while len(found) < at_most and held_bytes < _BYTES_MAX:
            asked = min(asked, at_most - len(found))
            arrived = _next(connection, receiver, asked, timeout_s)
            for in_hand, message in arrived:
                receiver.settle(in_hand, cproton.PN_ACCEPTED)
                provenance = read_provenance(message, queue, read_origin=read_origin)
                found.append(Delivery(None, queue.destination, message, provenance))
                held_bytes += len(message)
            if len(arrived) < asked:
                break
            mean_bytes = held_bytes // len(found) + 1
            asked = max(1, min(_ASKED_MAX, (_BYTES_MAX - held_bytes) // mean_bytes))
    finally:
        receiver.end(timeout_s)
    return found


def _next(
    connection: AmqpConnection, receiver: Receiver, asked: int, timeout_s: float
) -> list[tuple[InHand, bytes]]:
    """Return the next messages; fewer than asked for = there are no more."""
    receiver.drain(asked)
    is_done = connection.run_until(lambda: receiver.is_drained or receiver.refusal, timeout_s)
    if receiver.refusal is not None:
        raise BrokerRefused(
            f"can't browse {receiver.address}: {receiver.refusal}; allow the user to browse it"
        )
    if not is_done:
        raise LinkLost(f"browsing {receiver.address} did not come to an end in {timeout_s:g} s")
    return receiver.take_arrived(asked)
