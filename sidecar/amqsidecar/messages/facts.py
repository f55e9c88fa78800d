"""Facts of dead letters for rules beyond the broker's, each read when it is asked for."""

from amqsidecar.broker import Delivery
from amqsidecar.messages.fields import OpenMessage


class MessageFacts:
    """Facts of a kept message; see `model.dead_letter.Facts`."""

    __slots__ = ("_message", "age_ms", "cause")

    def __init__(self, message: OpenMessage, cause: str | None, age_ms: int) -> None:
        self._message = message
        self.age_ms = age_ms
        self.cause = cause

    @property
    def jms_type(self) -> str | None:
        """Its JMSType; None = it has none."""
        return self._message.jms_type

    def property_of(self, name: str) -> str | None:
        """Return an application property as text; None = it has none of this name."""
        return self._message.property_of(name)

    def header_of(self, name: str) -> str | None:
        """Return a header by its name on the wire; None = it has none of this name."""
        return self._message.header_of(name)

    def later(self, by_ms: int) -> "MessageFacts":
        """Return the message's facts after it has aged by this time."""
        return MessageFacts(self._message, self.cause, self.age_ms + by_ms)


def delivery_facts(delivery: Delivery, cause: str | None, age_ms: int) -> MessageFacts:
    """Return the facts of a delivery, which is not read yet."""
    return MessageFacts(OpenMessage(delivery.encoding, delivery.message), cause, age_ms)
