"""What a dead letter tells about its past."""

import msgspec

from amqsidecar.model.destination import Destination


class Provenance(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where a dead letter comes from and why it died, as far as the wire shows.

    Attributes:
        origin: where a redelivery goes to; None = the message does not tell. On Artemis a fully
            qualified name where one queue of an address is meant.
        cause: the broker's words for why it died; None = the broker gives none.
        expired: whether it died because its time to live ran out.
        is_store_duplicate: the cause says that the broker's store had the id already.
        message_id: the id that consumers see (`JMSMessageID`, AMQP message-id) as text.
        redelivery_id: `amqsidecarRedeliveryId` of an earlier redelivery by a sidecar; None = first
            death.
        redelivery_count: `amqsidecarRedeliveryCount`, redeliveries so far by a sidecar, 0-based.
        persistent: whether the producer sent it as persistent.
        problem: why it can't be redelivered as it is (can't be decoded, no origin, ...), as a
            sentence; such a message is parked. None = nothing is wrong.
    """

    origin: Destination | None = None
    cause: str | None = None
    expired: bool = False
    is_store_duplicate: bool = False
    message_id: str | None = None
    redelivery_id: str | None = None
    redelivery_count: int = 0
    persistent: bool = True
    problem: str | None = None
