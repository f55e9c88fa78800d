"""Counts by message id the messages that JMS applications saw: lost, doubled, altered."""

from collections.abc import Iterable, Sequence

from amqsidecar.demo.accounts import Count, count
from support.jms.message import NOT_COMPARED, Delivery, JmsMessage

__all__ = ["Count", "altered", "count"]

# What a redelivery may add or change.
ADDED_PROPERTIES = (
    "amqsidecarRedeliveryId",
    "amqsidecarRedeliveryCount",
    "amqsidecarRedeliveryCheck",
    "redeliveryDelay",
    "amqsidecarOriginalMessageId",
)
# What Artemis adds where it turns an AMQP message into a Core one.
CONVERSION = (
    "JMS_AMQP_ContentType",
    "JMS_AMQP_HEADER",
    "JMS_AMQP_HEADERDURABLE",
    "JMS_AMQP_HEADERPRIORITY",
    "JMS_AMQP_MA_x-opt-jms-dest",
    "JMS_AMQP_MA_x-opt-jms-msg-type",
    "JMS_AMQP_MA_x-opt-jms-reply-to",
    "JMS_AMQP_ORIGINAL_ENCODING",
    "NATIVE_MESSAGE_ID",
)
# What a broker adds to a dead letter; it stays on those that nobody will try again.
PROVENANCE_PROPERTIES = (
    *("dlqDeliveryFailureCause", "originalExpiration"),
    *("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_ROUTING_TYPE", "_AMQ_ORIG_MESSAGE_ID"),
)
CHANGED_HEADERS = NOT_COMPARED | {"JMSRedelivered"}


def altered(
    sent: Iterable[JmsMessage],
    deliveries: Iterable[Delivery],
    exhausted: Iterable[JmsMessage],
    added: Sequence[str] = (),
) -> list[str]:
    """Return each field that differs from the sent message, as `id: field: sent != seen`.

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


def assert_each_ended_once(
    sent: Sequence[JmsMessage],
    deliveries: Sequence[Delivery],
    exhausted: Sequence[JmsMessage] = (),
    added: Sequence[str] = (),
) -> Count:
    """Return the ends of messages, none of which is lost, doubled or altered; see `altered`."""
    result = count(
        (str(message.test_id) for message in sent),
        deliveries,
        (str(message.test_id) for message in exhausted),
    )
    assert (result.lost, result.doubled) == ([], [])
    assert altered(sent, deliveries, exhausted, added) == []
    return result


def _differences(sent: JmsMessage, seen: JmsMessage, added: Sequence[str] = ()) -> list[str]:
    found = sent.differences(
        seen,
        without_headers=CHANGED_HEADERS,
        without_properties=(*ADDED_PROPERTIES, *added),
    )
    return [f"{sent.test_id}: {one}" for one in found]
