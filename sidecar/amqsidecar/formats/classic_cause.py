"""Reads Classic's cause texts: why a message died, on every wire.

Source: ActiveMQ Classic, RegionBroker.sendToDeadLetterQueue (property `dlqDeliveryFailureCause`).
"""

_EXPIRED = "java.lang.Throwable: Message Expired. Expiration:"
# Why: the in-broker plugin knows only the first text and redelivers the second by mistake.
_STORE_DUPLICATE, _CURSOR_DUPLICATE = (
    "duplicate from store for ",
    "duplicate paged in from cursor for ",
)
# Bound: no time is longer, and Python refuses to read very long numbers.
_DIGITS_MAX = 20


def tells_expiry(cause: str, sent_ms: int) -> bool:
    """Return whether a cause says that this message expired, and not the original of a copy.

    A poison ack without a cause leaves the property as it was, so an application that forwards
    all properties of an expired message brings its cause along. What expires does so after it was
    sent.

    Args:
        cause: the broker's words.
        sent_ms: when the message was sent.
    """
    if not cause.startswith(_EXPIRED):
        return False
    number = cause[len(_EXPIRED) :].strip()[:_DIGITS_MAX]
    return not (number.isascii() and number.isdigit()) or int(number) > sent_ms


def tells_store_duplicate(cause: str) -> bool:
    """Return whether a cause says that the broker's store already had the id."""
    return _STORE_DUPLICATE in cause or _CURSOR_DUPLICATE in cause
