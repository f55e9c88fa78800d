"""Distinguishes a message that a sidecar re-sent from an application's copy of it; pure.

Applications that forward a message copy its properties, the sidecar's too. So each re-send carries
a check over values that a copy does not share: its destination, and the identity of the message on
this wire. A dead letter whose check does not match begins a new life.
"""

from typing import AnyStr, Final, NamedTuple
from zlib import crc32

from amqsidecar.broker import Resend
from amqsidecar.model.destination import Destination
from amqsidecar.model.sidecar_names import (
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
)

MARK_NAMES: Final = (PROPERTY_REDELIVERY_ID, PROPERTY_REDELIVERY_COUNT, PROPERTY_REDELIVERY_CHECK)
"""The properties that `marks_of` takes, in its order."""

MARKS: Final = frozenset((*MARK_NAMES, PROPERTY_REDELIVERY_DELAY))
"""The properties that each re-send replaces."""

ENCODED_MARK_NAMES: Final = tuple(name.encode() for name in MARK_NAMES)
ENCODED_MARKS: Final = frozenset(name.encode() for name in MARKS)

_COUNT_LIMIT: Final = 2**31
_COUNT_DIGITS: Final = 10


class Marks(NamedTuple):
    """A message's own record of its redeliveries, possibly written by a stranger.

    Attributes:
        redelivery_id: None = it says nothing.
        redelivery_count: redeliveries so far.
        check: `amqsidecarRedeliveryCheck`; None = it has none.
    """

    redelivery_id: str | None
    redelivery_count: int
    check: str | None


def marks_of(redelivery_id: object, redelivery_count: object, check: object) -> Marks:
    """Return the marks of a message from its property values, which strangers may have written.

    A value of another type counts as absent. A count may be text, as STOMP writes it.
    """
    return Marks(
        redelivery_id if isinstance(redelivery_id, str) and redelivery_id else None,
        _count(redelivery_count),
        check if isinstance(check, str) else None,
    )


def _count(value: object) -> int:
    if isinstance(value, str):
        is_number = len(value) <= _COUNT_DIGITS and value.isascii() and value.isdigit()
        value = int(value) if is_number else 0
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value < _COUNT_LIMIT else 0


def original_id(kept: AnyStr | None, own: AnyStr | None, *, is_return: bool) -> AnyStr | None:
    """Return the value of `amqsidecarOriginalMessageId` for a re-send; None = it gets none.

    Args:
        kept: the message's present value. An application that copies a message copies it, too.
        own: the id of this message; None = it has none, or the re-send shows it itself.
        is_return: whether the message bears the redelivery id of the re-send.
    """
    return kept if is_return and kept is not None else own


def check_of(
    redelivery_id: str, redelivery_count: int, destination: Destination, identity: bytes
) -> str:
    """Return the value of `amqsidecarRedeliveryCheck`: 16 hexadecimal digits.

    The first eight depend on id, count and address, the others also on the identity.

    Args:
        redelivery_count: the count written beside it.
        destination: where the message is sent to.
        identity: distinguishes it from a copy on its wire; b"" = the wire has no such field.
    """
    place = _place(redelivery_id, redelivery_count, destination)
    return f"{place << 32 | crc32(identity, place):016x}"


def check_on(resend: Resend, identity: bytes) -> str:
    """Return the check of a message to send; see `check_of`."""
    return check_of(resend.redelivery_id, resend.redelivery_count, resend.destination, identity)


def mark_headers(resend: Resend, identity: bytes) -> list[tuple[bytes, bytes]]:
    """Return the marks of a message to send, as headers."""
    values = {
        PROPERTY_REDELIVERY_ID: resend.redelivery_id,
        PROPERTY_REDELIVERY_COUNT: str(resend.redelivery_count),
        PROPERTY_REDELIVERY_DELAY: str(resend.redelivery_delay_ms),
        PROPERTY_REDELIVERY_CHECK: check_on(resend, identity),
    }
    return [(name.encode(), value.encode()) for name, value in values.items()]


def life_of(
    marks: Marks,
    places: tuple[Destination | None, Destination | None],
    identity: bytes,
    *,
    is_given_up: bool,
) -> tuple[str | None, int]:
    """Return redelivery id and count of a dead letter; None and 0 = its first life.

    Args:
        places: where it died, and where it lies: a sidecar sent it to one of them. None = unknown.
        identity: as in `check_of`.
        is_given_up: its consumer made this copy, to give the message up with a cause
            (`causes.md`); then it need not be the same message, only from the same address.
    """
    redelivery_id, count, check = marks
    if redelivery_id is None or check is None:
        return None, 0
    for place in places:
        if place is None:
            continue
        if is_given_up:
            is_own = check[:8] == f"{_place(redelivery_id, count, place):08x}"
        else:
            is_own = check == check_of(redelivery_id, count, place, identity)
        if is_own:
            return redelivery_id, count
    return None, 0


def _place(redelivery_id: str, redelivery_count: int, destination: Destination) -> int:
    text = f"{redelivery_id}\0{redelivery_count}\0{destination.address}"
    return crc32(text.encode(errors="surrogatepass"))
