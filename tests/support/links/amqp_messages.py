"""AMQP messages of applications, as the harnesses of both brokers send and take them."""

import uuid
from collections.abc import Sequence
from typing import Any

from proton import Message

from amqsidecar.clock import SystemClock
from support.links.harness import Drained


def copies_of(encoded: Sequence[bytes]) -> list[Message]:
    """Return new messages with the bodies and the properties of others."""
    return [
        Message(
            id=f"ID:{uuid.uuid4()}",
            creation_time=SystemClock().now_ms() / 1000,
            durable=True,
            body=found.body,
            properties=found.properties,
        )
        for found in map(_decoded, encoded)
    ]


def drained(encoded: bytes) -> Drained:
    """Return a consumer's view of a message."""
    message = _decoded(encoded)
    properties: dict[str, Any] = message.properties or {}
    plain = {
        name: int(one) if isinstance(one, int) and not isinstance(one, bool) else one
        for name, one in properties.items()
    }
    return Drained(str(properties.get("testId")), str(message.body), plain)


def _decoded(encoded: bytes) -> Message:
    message = Message()
    message.decode(encoded)
    return message
