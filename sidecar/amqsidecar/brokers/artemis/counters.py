"""The queue counters of Artemis, read from its management.

Measured on 2.44: `messagesAcked` grows with each acknowledgement; `messagesKilled` with each dead
letter, also one that a person makes, and with each message of a purge; `messagesExpired` with each
one that expires; `messageCount` has what is handed out and what is scheduled. All but the last
start at 0 when the broker starts.

Quirk (Artemis): what a person moves to another queue by management, and a message that is removed
by its number, counts as acknowledged; no counter separates it from consumed messages.
"""

from collections.abc import Mapping, Sequence

from amqsidecar.brokers.artemis.management import ArtemisQuestions, AskedAhead, about_queues
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters


def queue_counters(
    management: ArtemisQuestions, destinations: Sequence[Destination], run: str
) -> Mapping[Destination, Counters]:
    """Return the counters of each destination that is exactly one queue.

    Args:
        management: of the broker.
        destinations: queues, and topics of which one subscription is named (`address::queue`).
        run: of the connection: the broker has not restarted while it lasts.

    Raises:
        BrokerRefused: the user may not ask.
        LinkLost: the connection is gone.
    """
    management.demand()
    addresses = dict.fromkeys(one.address for one in destinations)
    asked = AskedAhead(management)
    questions = [about_queues(address=address) for address in addresses]
    asked.ask_ahead(questions)
    refused = next((one for one in asked.ask_all(questions) if not one.is_ok), None)
    if refused is not None:
        raise BrokerRefused(f"the queues can't be counted: {refused.value}")
    found = {}
    for destination in destinations:
        counters = _counters(asked, destination, run)
        if counters is not None:
            found[destination] = counters
    return found


def _counters(management: ArtemisQuestions, destination: Destination, run: str) -> Counters | None:
    address, separator, name = destination.name.partition("::")
    rows = [
        row
        for row in management.queues(address=address)
        if row.is_anycast == destination.is_queue and (not separator or row.name == name)
    ]
    if len(rows) > 1:
        # Why: redeliveries go to the queue that has the name of the address.
        rows = [row for row in rows if row.name == address]
    if len(rows) != 1:
        return None
    row = rows[0]
    if row.is_replacing:
        return Counters(depth=row.message_count)
    return Counters(
        depth=row.message_count,
        acknowledged=row.acknowledged_count,
        removed=row.expired_count + row.killed_count,
        # Why the id: a queue that is deleted and created again has another one.
        run=f"{run} {row.id}",
    )
