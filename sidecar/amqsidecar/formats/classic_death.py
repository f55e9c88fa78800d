"""Marks that Classic leaves on a dead letter, on every wire: its cause, and lost persistence.

Source: ActiveMQ Classic, RegionBroker.sendToDeadLetterQueue (`dlqDeliveryFailureCause`,
`originalDeliveryMode`; an application's copy has them, too).
"""

from collections.abc import Callable

from amqsidecar.model.destination import Destination

KeepsNonPersistent = Callable[[Destination], bool]
"""Returns whether the strategy of a destination keeps non-persistent messages. If not, all
messages in a dead-letter queue were persistent, even if they say otherwise."""

_EXPIRED = "java.lang.Throwable: Message Expired. Expiration:"
# Why: the in-broker plugin knows only the first text and redelivers the second by mistake.
_STORE_DUPLICATE, _CURSOR_DUPLICATE = (
    "duplicate from store for ",
    "duplicate paged in from cursor for ",
)
# Bound: no time is longer, and Python refuses to read very long numbers.
_DIGITS_MAX = 20


def always_keeps(destination: Destination) -> bool:
    """Return the message's own claim: used where the strategies are not known."""
    del destination
    return True


def has_expired(cause: str | None, sent_ms: int, expires_at_ms: int, now_ms: int) -> bool:
    """Return whether this message expired, not the original of a copy.

    A poison ack without a cause leaves the property as it was, so an application that forwards
    all properties of an expired message brings its cause along. A message expires only after it
    was sent.

    Args:
        cause: the broker's words; None = none.
        sent_ms: when the message was sent.
        expires_at_ms: decides without a cause: the message has expired if this is past; 0 = never.
    """
    if cause is None:
        return 0 < expires_at_ms < now_ms
    if not cause.startswith(_EXPIRED):
        return False
    number = cause[len(_EXPIRED) :].strip()[:_DIGITS_MAX]
    return not (number.isascii() and number.isdigit()) or int(number) > sent_ms


def tells_store_duplicate(cause: str | None) -> bool:
    """Return whether a cause says that the broker's store already had the id."""
    return cause is not None and (_STORE_DUPLICATE in cause or _CURSOR_DUPLICATE in cause)
