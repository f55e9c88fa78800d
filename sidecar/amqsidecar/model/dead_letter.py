"""The inputs of a decision."""

from dataclasses import dataclass

from amqsidecar.model.destination import Destination


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that the broker gave up on, as the broker's rules see it.

    Attributes:
        destination: where the message was sent before it died (Classic: the region destination).
        redelivery_count: redeliveries so far, 0-based; Classic's `redeliveryCounter`. Artemis
            compares the delivery count, which is one more.
        persistent: whether the producer sent it as persistent.
        expired: whether it died because its time to live ran out.
        is_store_duplicate: whether the broker says it found the id in its store already.
        subscription: `clientId:name` of the durable subscription it died on; None for a queue or
            when it is not known.
    """

    destination: Destination
    redelivery_count: int = 0
    persistent: bool = True
    expired: bool = False
    is_store_duplicate: bool = False
    subscription: str | None = None

    @property
    def delivery_count(self) -> int:
        """Deliveries so far, 1-based, the last of which failed."""
        return self.redelivery_count + 1
