"""Browses dead-letter queues of Classic over AMQP."""

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp_classic.browse import COUNT_MAX, Browser
from amqsidecar.brokers.amqp_classic.watch import OriginNames
from amqsidecar.brokers.classic.queues import is_wildcard, pattern_of
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.amqp_classic_message import (
    is_native,
    mended,
    named_destination,
    read_provenance,
    take_apart,
)
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import Provenance

# Bound: of all queues that a wildcard matches; of one queue the broker shows 400.
_WILDCARD_MAX = 20_000


def browse(
    browser: Browser,
    names: OriginNames,
    queue: IntakeQueue,
    at_most: int,
    now_ms: int,
    encoding: str,
) -> list[Delivery]:
    """Return the messages of a queue, or of those of a wildcard, from the head of each.

    Raises:
        BrokerRefused: the user may not browse.
        LinkLost: the connection is gone, or the broker does not answer.
    """
    asked = queue.destination
    # Why: a browser makes the queue that it names, but none that its wildcard matches; this
    # wildcard matches the queue itself, and those below it.
    pattern = asked.name if is_wildcard(asked.name) else f"{asked.name}.>"
    deliveries: dict[Destination, list[Delivery]] = {}
    limit = _WILDCARD_MAX if pattern == asked.name else COUNT_MAX
    for message in browser.look(pattern, limit):
        delivery = _delivery(message, queue, pattern, names, now_ms, encoding)
        deliveries.setdefault(delivery.source, []).append(delivery)
    if pattern != asked.name:
        return deliveries.get(asked, [])[:at_most]
    return [one for found in deliveries.values() for one in found[:at_most]]


def _delivery(
    message: bytes,
    queue: IntakeQueue,
    pattern: str,
    names: OriginNames,
    now_ms: int,
    encoding: str,
) -> Delivery:
    """Return a message that a wildcard browser showed, with its queue where the message names it.

    A message that names no queue counts as one of the queue that was asked for.
    """
    source = queue.destination
    try:
        found = take_apart(message)
    except UndecodableMessage as undecodable:
        problem = f"it can't be parsed: {undecodable}"
        return Delivery(None, source, message, Provenance(problem=problem), encoding)
    told = named_destination(found)
    if told is not None:
        is_there = told.is_queue and pattern_of(pattern).fullmatch(told.name)
        source = told if is_there else names.queue_for(told) or source
    origin = queue.origin if source == queue.destination else None
    is_native_made = is_native(found, source)
    if not is_native_made:
        found = mended(found) or found
    provenance = read_provenance(
        found,
        source,
        origin=origin or names.origin_of(source),
        now_ms=now_ms,
        is_native_made=is_native_made,
    )
    return Delivery(None, source, message, provenance, encoding)
