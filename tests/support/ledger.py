"""Counts by message id what JMS applications really saw: what is lost, doubled, altered."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from support.jms_message import NOT_COMPARED, Delivery, JmsMessage

# What a redelivery may add or change; the duplicate id is Artemis's.
ADDED_PROPERTIES = (
    "amqsidecarRedeliveryId",
    "amqsidecarRedeliveryCount",
    "redeliveryDelay",
    "amqsidecarOriginalMessageId",
    "_AMQ_DUPL_ID",
)
# What a broker adds to a dead letter; it stays on those that nobody will try again.
PROVENANCE_PROPERTIES = ("dlqDeliveryFailureCause", "originalExpiration")
CHANGED_HEADERS = NOT_COMPARED | {"JMSRedelivered"}


@dataclass(frozen=True)
class Count:
    """How a run ended.

    Attributes:
        sent: messages that a producer sent.
        recovered: of them, those that a consumer processed in the end.
        exhausted: of them, those that ended in the final queue.
        discarded: of them, those that a rule discarded, as the caller says.
        lost: ids that ended nowhere.
        doubled: ids that were processed twice, or ended in two ways, or were never sent.
        altered: `id: field: sent != seen`.
    """

    sent: int
    recovered: int
    exhausted: int
    discarded: int
    lost: Sequence[str]
    doubled: Sequence[str]
    altered: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, doubled or altered."""
        return not (self.lost or self.doubled or self.altered)


def count(
    sent: Sequence[JmsMessage],
    deliveries: Iterable[Delivery],
    exhausted: Iterable[JmsMessage] = (),
    discarded: Iterable[str] = (),
) -> Count:
    """Count a run.

    Args:
        sent: as the producer saw them.
        deliveries: what the consumers reported, each consumer's in order.
        exhausted: what was found in the final queue.
        discarded: ids that were to be discarded and are neither seen processed nor exhausted.
    """
    by_id = {str(message.test_id): message for message in sent}
    final = list(exhausted)
    processed: Counter[str] = Counter()
    altered: list[str] = []
    for delivery in _processed(deliveries):
        processed[delivery.id] += 1
        if delivery.message is not None and delivery.id in by_id:
            altered += _differences(by_id[delivery.id], delivery.message)
    for message in final:
        if message.test_id in by_id:
            altered += _differences(by_id[str(message.test_id)], message, PROVENANCE_PROPERTIES)
    ends = processed + Counter(str(message.test_id) for message in final) + Counter(discarded)
    return Count(
        sent=len(by_id),
        recovered=len(processed),
        exhausted=len(final),
        discarded=len(list(discarded)),
        lost=sorted(by_id.keys() - ends.keys()),
        doubled=sorted(
            test_id for test_id, times in ends.items() if times > 1 or test_id not in by_id
        ),
        altered=altered,
    )


def _processed(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return the receipts that led to success.

    A consumer that loses its broker while it commits can't know whether that happened: such a
    receipt counts only when the message does not come again.
    """
    found: list[Delivery] = []
    in_doubt: dict[str, Delivery] = {}
    open_now: dict[str, Delivery] = {}
    for delivery in deliveries:
        if delivery.outcome == "succeeding":
            in_doubt.pop(delivery.id, None)
            open_now[delivery.id] = delivery
        elif delivery.outcome == "succeeded":
            found.append(open_now.pop(delivery.id))
        elif delivery.outcome == "disconnected":
            in_doubt.update(open_now)
            open_now.clear()
    return [*found, *in_doubt.values(), *open_now.values()]


def _differences(sent: JmsMessage, seen: JmsMessage, added: Sequence[str] = ()) -> list[str]:
    found = sent.differences(
        seen,
        without_headers=CHANGED_HEADERS,
        without_properties=(*ADDED_PROPERTIES, *added),
    )
    return [f"{sent.test_id}: {one}" for one in found]
