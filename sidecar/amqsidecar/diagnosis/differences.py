"""All differences that a redelivered message may have from the one that died.

A run of the matrix fails at a difference that is not here, and at an entry that nothing needs.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Difference(NamedTuple):
    """One difference.

    Attributes:
        alters: whether an application loses something that it wrote; False = a mark of the
            redelivery, or of a conversion, beside what it wrote.
        sentence: the difference and its reason.
    """

    alters: bool
    sentence: str


DIFFERENCES: Mapping[str, Difference] = {
    "marks": Difference(
        False,
        "`amqsidecarRedeliveryId`, `amqsidecarRedeliveryCount`, `amqsidecarRedeliveryCheck` "
        "and `redeliveryDelay` are added.",
    ),
    "original-id": Difference(
        False, "The original message id is added as `amqsidecarOriginalMessageId`."
    ),
    "new-id": Difference(
        False,
        "JMSMessageID is new: Classic drops the second death of an id that it has seen. The "
        "original is in `amqsidecarOriginalMessageId`.",
    ),
    "redelivered": Difference(
        False,
        "JMSRedelivered is true and JMSXDeliveryCount goes on counting over the deaths, so that "
        "clients' own limits count them.",
    ),
    "user": Difference(
        False,
        "JMSXUserID contains the sidecar's user if the broker has `populateJMSXUserID`.",
    ),
    "ttl-anew": Difference(
        False,
        "The time to live restarts, so JMSExpiration and, of such messages, JMSTimestamp are "
        "later.",
    ),
    "ttl-gone": Difference(
        True,
        "JMSExpiration is 0: Artemis removes the time to live when a message dies, and Classic "
        "does not show it over AMQP.",
    ),
    "conversion": Difference(
        False,
        "`JMS_AMQP_*` and `NATIVE_MESSAGE_ID` are added, `__AMQ_CID` is gone, and JMSMessageID is "
        "new to clients that do not speak AMQP: Artemis converts the message and says so.",
    ),
    "foreign-id": Difference(
        False,
        "JMSMessageID is new to clients of another protocol than the producer's: Artemis makes "
        "one at the conversion.",
    ),
    "no-id": Difference(
        True,
        "JMSMessageID is gone: STOMP can't give one. That of a JMS producer is in "
        "`amqsidecarOriginalMessageId`.",
    ),
    "new-timestamp": Difference(
        True, "JMSTimestamp is the time of the redelivery: Artemis sets it at each SEND over STOMP."
    ),
    "client-marks": Difference(
        False,
        "`__AMQ_CID` and `__HDR_*`, which Artemis writes on messages of JMS clients, are gone.",
    ),
    "stomp-frame": Difference(
        False,
        "Artemis copies headers of a SEND frame into properties (`destination`, `receipt`, "
        "...). Over STOMP they are those of the sidecar's frame; over AMQP they are gone.",
    ),
    "no-body": Difference(
        True,
        "A message without body arrives as an empty BytesMessage: Artemis converts it so.",
    ),
    "empty-bytes": Difference(
        True,
        "Over AMQP an empty body loses `content-length`, so that a STOMP consumer takes it for "
        "text.",
    ),
    "group-sequence": Difference(
        True,
        "Over AMQP JMSXGroupSeq of a STOMP producer becomes 0: Artemis keeps it as text and "
        "converts only numbers.",
    ),
    "astral": Difference(
        True,
        "Characters beyond U+FFFF in a property: Classic garbles them for STOMP consumers and "
        "can't show them to AMQP consumers, also without a sidecar.",
    ),
    "jms-conversion": Difference(
        False, "`JMS_AMQP_*` are added: Classic converts from AMQP and says so."
    ),
    "encoded-view": Difference(
        False,
        "On the stock connector, clients of other protocols see the encoded AMQP message, with the "
        "sidecar's marks in it.",
    ),
    "stomp-body": Difference(
        True, "STOMP has text and bytes only; every other body comes back as something else."
    ),
    "stomp-properties": Difference(
        True, "Numbers, booleans and null among the properties become text."
    ),
    "stomp-group": Difference(
        True, "JMSXGroupID and JMSXGroupSeq are gone: Classic shows neither."
    ),
}
