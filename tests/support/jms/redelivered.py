"""What the redelivery of a message may change, and how a message is followed through its deaths."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from support.jms.message import Delivery, JmsMessage
from support.jms.peer import FlakyConsumer

RECEIPTS = frozenset({"failing", "succeeding"})


def receipts(consumer: FlakyConsumer) -> dict[str, list[Delivery]]:
    """Return the application's deliveries, by `testId`, in order."""
    found: dict[str, list[Delivery]] = {}
    for event in consumer.events():
        if event.outcome in RECEIPTS:
            found.setdefault(event.id, []).append(event)
    return found


def waits_ms(deliveries: list[Delivery]) -> list[int]:
    """Return the times between the deliveries of one message."""
    return [later.at_ms - earlier.at_ms for earlier, later in pairwise(deliveries)]


def assert_not_early(deliveries: list[Delivery], delays_ms: list[int]) -> None:
    """Check that each redelivery kept its delay at least."""
    waits = waits_ms(deliveries)
    assert all(wait >= delay for wait, delay in zip(waits, delays_ms, strict=True)), waits


def assert_same_but(
    found: JmsMessage | None, never_failed: JmsMessage, changed: Mapping[str, Any]
) -> None:
    """Compare body, headers and properties field by field with a message that never failed.

    Args:
        found: what a consumer was handed.
        never_failed: the same message, sent by the same producer, consumed at once.
        changed: the fields that differ, each with the value that it must have.
    """
    assert found is not None
    fields, expected = found._fields(), {**never_failed._fields(), **changed}
    differing = {
        name: f"{fields.get(name, 'missing')!r}, expected {expected.get(name, 'missing')!r}"
        for name in sorted(fields | expected)
        if fields.get(name, "missing") != expected.get(name, "missing")
    }
    assert not differing, differing


def sidecar_properties(
    found: JmsMessage, redelivery_count: int, delay_ms: int
) -> dict[str, list[Any]]:
    """Return the properties that every redelivery has; id and check are those that were found."""
    check = found.value("amqsidecarRedeliveryCheck")
    assert re.fullmatch("[0-9a-f]{16}", check)
    return {
        "property amqsidecarRedeliveryId": ["String", found.value("amqsidecarRedeliveryId")],
        "property amqsidecarRedeliveryCheck": ["String", check],
        "property amqsidecarRedeliveryCount": ["Integer", redelivery_count],
        "property redeliveryDelay": ["Long", delay_ms],
    }
