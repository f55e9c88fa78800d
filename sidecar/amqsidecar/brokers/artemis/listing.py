"""Lists a queue of Artemis through its management: nothing is taken or converted.

Why not a browse: see `brokers/amqp_artemis/look.py`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion, of_queue
from amqsidecar.formats.artemis_properties import (
    BROKER_MADE,
    BROKER_MADE_PROPERTIES,
    TWO_ORIGINS,
    Origin,
    OriginReader,
    identity_of,
    make_origin,
    number_of,
)
from amqsidecar.formats.redelivery_mark import MARK_NAMES, life_of, marks_of
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
)

LISTED_MAX: Final = 10_000
"""Longer queues are browsed: a list comes at once, several hundred bytes for each message."""


def list_messages(
    management: ArtemisQuestions,
    queue: IntakeQueue,
    at_most: int,
    read_origin: OriginReader,
    encoding: str,
) -> list[Delivery] | None:
    """Return the messages of a queue without bodies; None = not allowed, or not all are listed.

    Quirk (Artemis): a list ends after `management-browse-page-size` messages, 200 by default.
    """
    count = management.count(queue.destination, LISTED_MAX + 1)
    if count is None or count > LISTED_MAX:
        return None
    if not count:
        return []
    name = queue.destination.name.rpartition("::")[2]
    listed, in_hand = management.ask_all(
        [
            of_queue(queue.destination, "listMessagesAsJSON", ""),
            ManagementQuestion(f"queue.{name}", attribute="DeliveringCount"),
        ]
    )
    if not (listed.is_ok and in_hand.is_ok):
        return None
    entries = json.loads(listed.value)
    # Why less: messages that another reader has in hand are counted, and not listed.
    if len(entries) < min(count - int(in_hand.value), at_most):
        return None
    return [
        Delivery(
            entry.get("messageID"),
            queue.destination,
            b"",
            _read_listed(entry, queue, read_origin),
            encoding,
        )
        for entry in entries[:at_most]
    ]


def _read_listed(
    entry: Mapping[str, Any], queue: IntakeQueue, read_origin: OriginReader
) -> Provenance:
    """Return the provenance that a listed dead letter shows.

    Source: Artemis, QueueControl.listMessagesAsJSON, which calls Message.toMap.
    """
    annotated = _origin(entry, "x-opt-ORIG-", "-") or _origin(entry, "JMS_AMQP_MA_x-opt-ORIG-", "-")
    found = _origin(entry, "_AMQ_ORIG_", "_") or _origin(entry, "_HQ_ORIG_", "_")
    destination, problem = None, "it does not show where it comes from"
    if any(name in entry for name in BROKER_MADE_PROPERTIES):
        problem = BROKER_MADE
    elif annotated is not None and found is not None and annotated[:2] != found[:2]:
        problem = TWO_ORIGINS.format(annotated.address, found.address)
    elif annotated is not None or found is not None:
        origin = annotated or found
        assert origin is not None  # noqa: S101 - one of them is
        destination, told = read_origin(origin)
        problem = told or ""
    number = entry.get("_AMQ_ORIG_MESSAGE_ID") or entry.get("x-opt-ORIG-MESSAGE-ID")
    message_id, created_ms = _message_id(entry), int(entry.get("timestamp", 0))
    redelivery_id, redelivery_count = life_of(
        marks_of(*map(entry.get, MARK_NAMES)),
        (destination, queue.destination),
        identity_of(message_id, created_ms),
        is_given_up=number is None,
    )
    return Provenance(
        origin=destination,
        cause=kept_cause(_text(entry.get(PROPERTY_CAUSE))),
        expired=queue.expires
        or any(
            name in entry
            for name in ("x-opt-ACTUAL-EXPIRY", "_AMQ_ACTUAL_EXPIRY", "_HQ_ACTUAL_EXPIRY")
        ),
        message_id=message_id,
        number=number_of(number, created_ms),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=entry.get("durable") is True,
        problem=problem or None,
    )


def _origin(entry: Mapping[str, Any], prefix: str, joint: str) -> Origin | None:
    return make_origin(
        _text(entry.get(f"{prefix}ADDRESS")),
        _text(entry.get(f"{prefix}QUEUE")),
        entry.get(f"{prefix}ROUTING{joint}TYPE"),
    )


def _message_id(entry: Mapping[str, Any]) -> str | None:
    text = _text(entry.get("userID"))
    # Quirk (Artemis): an AMQP message has `_AMQ_AD`, and its message-id is listed as `ID:` and id.
    return text[3:] if text is not None and "_AMQ_AD" in entry else text


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
