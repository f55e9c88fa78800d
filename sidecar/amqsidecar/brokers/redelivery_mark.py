"""Tells a message that a sidecar re-sent from a copy that an application made of it; pure.

Applications that forward a message copy its properties, those of the sidecar among them. So each
re-send carries a check over what a copy does not share with it: where it was sent, and what the
wire calls this very message. A dead letter whose check does not fit begins a new life.
"""

from typing import NamedTuple
from zlib import crc32

from amqsidecar.model.destination import Destination


class Marks(NamedTuple):
    """What a message says of its redeliveries, whoever wrote it.

    Attributes:
        redelivery_id: None = it says nothing.
        redelivery_count: redeliveries so far.
        check: `amqsidecarRedeliveryCheck`; None = it has none.
    """

    redelivery_id: str | None
    redelivery_count: int
    check: str | None


def check_of(
    redelivery_id: str, redelivery_count: int, destination: Destination, identity: bytes
) -> str:
    """Return the value of `amqsidecarRedeliveryCheck`: 16 hexadecimal digits.

    The first eight depend on id, count and address, the others also on the identity.

    Args:
        redelivery_id: of the message.
        redelivery_count: that is written beside it.
        destination: where the message is sent to.
        identity: what tells it from a copy on its wire; b"" = the wire has nothing of the kind.
    """
    place = _place(redelivery_id, redelivery_count, destination)
    return f"{place:08x}{crc32(identity, place):08x}"


def life_of(
    marks: Marks,
    places: tuple[Destination | None, Destination | None],
    identity: bytes,
    *,
    is_given_up: bool,
) -> tuple[str | None, int]:
    """Return redelivery id and count of a dead letter; None and 0 = its first life.

    Args:
        marks: that are on it.
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
