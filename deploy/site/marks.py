"""Names that a sidecar adds to a message or removes, and their effect on it or on a copy."""

from typing import NamedTuple


class RedeliveryMark(NamedTuple):
    """Names that a re-send changes.

    Attributes:
        names: properties, annotations, headers.
        may_change: possible effect of them on a broker, a client or a sidecar.
        why_safe: why that does not happen, or the remaining effect.
        test: file under `tests` that shows it.
    """

    names: str
    may_change: str
    why_safe: str
    test: str


MARKS: tuple[RedeliveryMark, ...] = (
    RedeliveryMark(
        "`amqsidecarRedeliveryId`, `amqsidecarRedeliveryCount`",
        "the death of a copy counts as a return, with the history and count of the first message",
        "`amqsidecarRedeliveryCheck` fits only the message that was sent, at the address that it "
        "was sent to; else a new life begins. Not distinguished: bytes that a bridge forwards as "
        "they are to the same address; over STOMP, copies with the same `timestamp` (Classic) or "
        "made by STOMP clients (Artemis) at the same address",
        "end_to_end/fidelity/test_forwarding.py",
    ),
    RedeliveryMark(
        "`redeliveryDelay`",
        "Classic's in-broker plugin takes it for the delay before this one",
        "It means the same. A producer's own is replaced, as the plugin does",
        "oracle/test_whole_broker.py",
    ),
    RedeliveryMark(
        "`amqsidecarOriginalMessageId`",
        "a copy names the id of the message from which it was copied",
        "At the first redelivery of the copy its own id replaces it",
        "unit/formats/test_amqp_artemis_message.py",
    ),
    RedeliveryMark(
        "`_AMQ_DUPL_ID`",
        "Artemis drops a message whose id it has seen at this address, and says accepted",
        "Redeliveries have none. A producer's own is in `amqsidecarOriginalDuplicateId`: the "
        "broker's own redelivery and `retryMessages` keep it, but a client that sends it again "
        "loses the message",
        "contract/links/test_amqp_artemis_link.py",
    ),
    RedeliveryMark(
        "`amqsidecarCause`, `dlqDeliveryFailureCause`, `originalExpiration`, "
        "`originalDeliveryMode`",
        "a death shows the cause, or the lifetime, of an earlier one",
        "Redeliveries have none. Final dead letters keep them: a copy of one that dies without a "
        "cause of its own shows the old one. An expiry older than the message is not believed",
        "end_to_end/redelivery/test_stomp.py",
    ),
    RedeliveryMark(
        "`_AMQ_ORIG_*`, `x-opt-ORIG-*`",
        "a death counts as one at the place of an earlier one",
        "Redeliveries have none, and Artemis overwrites those of copies when they die",
        "contract/links/test_amqp_artemis_link.py",
    ),
    RedeliveryMark(
        "`AMQ_SCHEDULED_*`, `scheduledJobId`, `x-opt-delivery-*`, `_AMQ_SCHED_DELIVERY`",
        "the broker delays the message, or sends it again and again",
        "Taken off; only `store.url: broker:` writes `x-opt-delivery-time`, and takes it off again",
        "end_to_end/redelivery/test_stomp.py",
    ),
    RedeliveryMark(
        "JMSXDeliveryCount, JMSRedelivered",
        "a client with a limit of its own rejects the message",
        "On Classic they go on counting, as with the in-broker plugin; messages of AMQP clients "
        "keep none. On Artemis each redelivery begins with 1",
        "end_to_end/redelivery/test_classic.py",
    ),
    RedeliveryMark(
        "JMSXGroupID, JMSXGroupSeq",
        "a group moves to another consumer; -1 closes it",
        "They stay as the producer wrote them: a redelivery that closes its group closes it again",
        "end_to_end/redelivery/test_classic.py",
    ),
    RedeliveryMark(
        "`transaction`, `receipt` (STOMP on Artemis)",
        "the broker takes those of a copied frame for orders, and waits for a COMMIT",
        "Artemis keeps those of each SEND, also ours. An application that sends all headers back "
        "must leave them out, or the sidecar must use `artemis://`",
        "end_to_end/fidelity/test_forwarding.py",
    ),
    RedeliveryMark(
        "`JMS_AMQP_*` (Core applications on Artemis)",
        "a loop over all properties fails at names such as `JMS_AMQP_MA_x-opt-jms-dest`, which "
        "the Core client refuses to set",
        "Artemis adds them when it converts. A loop must skip names that begin with `JMS`",
        "end_to_end/fidelity/test_forwarding.py",
    ),
)
