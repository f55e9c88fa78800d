"""Properties of messages on Artemis, written by the broker and by the sidecar, on every wire."""

from collections.abc import Callable
from typing import Final, NamedTuple

from amqsidecar.model.destination import Destination

PROPERTY_CLIENT_CAUSE: Final = "__HDR_dlqDeliveryFailureCause"
"""Property with the cause that an OpenWire client gives when it gives a message up."""

PROPERTY_OPENWIRE_ID: Final = "__HDR_MESSAGE_ID"
"""Property with the message id of an OpenWire producer, which only OpenWire consumers see as id.

Source: Artemis, OpenWireConstants.AMQ_MSG_MESSAGE_ID; OpenWireMessageConverter.
"""

DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
INTERCEPTION_ID_PREFIX: Final = "amqsidecar-nack:"
"""Prefix of the `_AMQ_DUPL_ID` that the listener gives intercepted messages; not a producer's."""

STOMP_LEFTOVERS: Final = frozenset(("destination", "receipt", "destination-type", "content-length"))
"""Headers of a STOMP SEND that Artemis keeps as properties, though they are about the frame."""

COMPRESSED: Final = "_AMQ_LARGE_COMPRESSED"
ANYCAST: Final = 1
MULTICAST: Final = 0

ORIGIN_PREFIXES: Final = ("_AMQ_ORIG_", "_HQ_ORIG_")
"""Of the properties that name the origin of a dead letter."""

ACTUAL_EXPIRIES: Final = ("_AMQ_ACTUAL_EXPIRY", "_HQ_ACTUAL_EXPIRY")
"""Properties of messages that have expired."""

BROKER_MADE_PROPERTIES: Final = ("_AMQ_OperationSucceeded", "_AMQ_NotifType")
"""Properties of the answers and notifications of Artemis's management."""

BROKER_MADE: Final = "it is an answer or a notification of the broker, not an application's message"

TWO_ORIGINS: Final = "it names two different origins: {} in its annotations, {} in its properties"
ORIGIN_LOST: Final = "its origin is a dead-letter queue, the true origin is lost"


class Origin(NamedTuple):
    """The queue that a dead letter left, as the broker wrote it down.

    Attributes:
        address: without `::queue`.
        queue: None = the broker found no queue for it (`send-to-dla-on-no-route`).
        routing_type: `ANYCAST`, `MULTICAST`, or None = the message carried none.
    """

    address: str
    queue: str | None
    routing_type: int | None


_ROUTING_TYPES: Final = {str(ANYCAST): ANYCAST, str(MULTICAST): MULTICAST}

OriginReader = Callable[[Origin], tuple[Destination | None, str | None]]
"""Returns the destination of an origin, or a sentence why it is unknown or wrong."""


def make_origin(address: object, queue: object, routing_type: object) -> Origin | None:
    """Return the origin that these values of properties name; None = they name none."""
    if not isinstance(address, str) or not address:
        return None
    # Why the text: STOMP has no numbers.
    routing_type = _ROUTING_TYPES.get(routing_type) if type(routing_type) is str else routing_type
    # Why the type: True and 1.0 equal a routing type, too.
    kind = routing_type if type(routing_type) is int else None
    return Origin(
        # Quirk (Artemis): a message sent by fully qualified name carries that name as its address.
        address.split("::", 1)[0],
        queue if isinstance(queue, str) and queue else None,
        kind if kind in (ANYCAST, MULTICAST) else None,
    )


def number_of(number: object, created_ms: int) -> str:
    """Return the broker's own name of a dead message; "" = the broker did not write it.

    Args:
        number: the broker's, which it writes on a dead letter.
        created_ms: the message's time, which stays; a broker without its journal counts anew.
    """
    is_written = type(number) is int or (type(number) is str and number.isdigit())
    return f"{number}-{created_ms}" if is_written else ""


def identity_of(message_id: str | None, created_ms: int) -> bytes:
    """Return the identity of a message: its id, and when it was made; None and 0 = absent."""
    return f"{message_id}\0{created_ms}".encode(errors="surrogatepass")
