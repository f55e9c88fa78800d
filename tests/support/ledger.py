"""Counts by message id what JMS applications really saw: what is lost, doubled, altered."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from support.jms_message import NOT_COMPARED, Delivery, JmsMessage

# What a redelivery may add or change.
ADDED_PROPERTIES = (
    "amqsidecarRedeliveryId",
    "amqsidecarRedeliveryCount",
    "redeliveryDelay",
    "amqsidecarOriginalMessageId",
)
# What a broker adds to a dead letter; it stays on those that nobody will try again.
PROVENANCE_PROPERTIES = ("dlqDeliveryFailureCause", "originalExpiration")
CHANGED_HEADERS = NOT_COMPARED | {"JMSRedelivered"}


@dataclass(frozen=True)
class Count:
    """How a run ended, by id.

    Attributes:
        sent: how many messages a producer sent.
        recovered: those that a consumer processed in the end.
        exhausted: those that ended in the final queue.
        discarded: those that a rule discarded.
        lost: those that ended nowhere.
        doubled: those that were processed twice, or ended in two ways, or were never sent.
    """

    sent: int
    recovered: Sequence[str]
    exhausted: Sequence[str]
    discarded: Sequence[str]
    lost: Sequence[str]
    doubled: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost or doubled."""
        return not (self.lost or self.doubled)


def count(
    sent: Iterable[str],
    deliveries: Iterable[Delivery],
    exhausted: Iterable[str] = (),
    discarded: Iterable[str] = (),
    unknown: Iterable[str] = (),
) -> Count:
    """Count a run.

    Args:
        sent: the ids of all messages that a producer sent.
        deliveries: what the consumers reported, each consumer's in order.
        exhausted: ids as found in the final queue, twice what was there twice.
        discarded: ids of which the sidecar's history says so.
        unknown: those of the sent ones that the producer lost its broker over; they may be missing.
    """
    known = set(sent)
    final, dropped = Counter(exhausted), Counter(discarded)
    processed = Counter(one.id for one in _processed(deliveries, final.keys() | dropped.keys()))
    ends = processed + final + dropped
    return Count(
        sent=len(known),
        recovered=sorted(processed),
        exhausted=sorted(final),
        discarded=sorted(dropped),
        lost=sorted(known - set(unknown) - ends.keys()),
        doubled=sorted(one for one, times in ends.items() if times > 1 or one not in known),
    )


def _processed(deliveries: Iterable[Delivery], ended: Collection[str]) -> list[Delivery]:
    """Return the receipts that led to success.

    A consumer that loses its broker while it commits can't know whether that happened: such a
    receipt counts only when the message does not come again and has not `ended` otherwise.
    """
    found: list[Delivery] = []
    in_hand: dict[str, Delivery] = {}
    in_doubt: dict[str, Delivery] = {}
    for delivery in deliveries:
        if delivery.outcome == "succeeding":
            in_doubt.pop(delivery.id, None)
            in_hand[delivery.id] = delivery
        elif delivery.outcome == "failing":
            in_doubt.pop(delivery.id, None)
        elif delivery.outcome == "succeeded":
            found.append(in_hand.pop(delivery.id))
        elif delivery.outcome == "disconnected":
            in_doubt.update(in_hand)
            in_hand.clear()
    unsure = {**in_doubt, **in_hand}
    return [*found, *(one for one in unsure.values() if one.id not in ended)]


def altered(
    sent: Iterable[JmsMessage],
    deliveries: Iterable[Delivery],
    exhausted: Iterable[JmsMessage],
    added: Sequence[str] = (),
) -> list[str]:
    """Return each field that differs from what was sent, as `id: field: sent != seen`.

    Args:
        sent: as the producer saw them.
        deliveries: of consumers that report whole messages.
        exhausted: as found in the final queue.
        added: properties that this way through the broker may add besides.
    """
    by_id = {message.test_id: message for message in sent}
    found: list[str] = []
    for delivery in deliveries:
        if delivery.message is not None:
            found += _differences(by_id[delivery.message.test_id], delivery.message, added)
    for message in exhausted:
        names = (*PROVENANCE_PROPERTIES, *added)
        found += _differences(by_id[message.test_id], message, names)
    return found


def _differences(sent: JmsMessage, seen: JmsMessage, added: Sequence[str] = ()) -> list[str]:
    found = sent.differences(
        seen,
        without_headers=CHANGED_HEADERS,
        without_properties=(*ADDED_PROPERTIES, *added),
    )
    return [f"{sent.test_id}: {one}" for one in found]
