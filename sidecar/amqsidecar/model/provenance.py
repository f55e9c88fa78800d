"""The provenance of a dead letter, and the name of the delivery that died (its life)."""

from hashlib import sha256
from typing import Final

import msgspec

from amqsidecar.model.cause import bounded_cause
from amqsidecar.model.destination import Destination
from amqsidecar.model.sidecar_names import INTERCEPTED

_MESSAGE_ID_MAX: Final = 1_024


class Provenance(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where a dead letter comes from and why it died, as far as the wire shows.

    Attributes:
        origin: where a redelivery goes to; None = the message does not show it. On Artemis a fully
            qualified name where one queue of an address is meant.
        cause: the broker's words for why it died, as `kept_cause` gives them; None = the broker
            gives none.
        expired: whether it died because its time to live ran out.
        is_store_duplicate: the cause says that the broker's store had the id already.
        message_id: the id that consumers see (`JMSMessageID`, AMQP message-id) as text.
        openwire_id: the id that OpenWire consumers on Artemis see instead; None = the message has
            none that stays, or the broker is Classic.
        number: the broker's name for it: a number and a time; "" = the broker did not write it, or
            is not Artemis.
        redelivery_id: `amqsidecarRedeliveryId` of an earlier redelivery by a sidecar; None = first
            death.
        redelivery_count: `amqsidecarRedeliveryCount`, redeliveries so far by a sidecar, 0-based.
        persistent: whether the producer sent it as persistent.
        expires_at_ms: when the broker drops or moves it from the queue that it is in; 0 = never, or
            the wire does not show it.
        problem: why it can't be redelivered as it is (can't be decoded, no origin, ...), as a
            sentence; such a message is parked. None = nothing is wrong.
    """

    origin: Destination | None = None
    cause: str | None = None
    expired: bool = False
    is_store_duplicate: bool = False
    message_id: str | None = None
    openwire_id: str | None = None
    number: str = ""
    redelivery_id: str | None = None
    redelivery_count: int = 0
    persistent: bool = True
    expires_at_ms: int = 0
    problem: str | None = None


LONGEST_REDELIVERY_ID: Final = 256
"""A longer one is not from a sidecar, and would be in each event and each index."""
BY_NUMBER: Final = "in-place-number:"
BY_MESSAGE_ID: Final = "in-place:"
"""Begin the redelivery ids of messages that never left their dead-letter queue; see `lying_id`."""
BY_AGAIN: Final = "in-place-again:"
"""Begins the texts of `again_id`."""


def lying_id(provenance: Provenance) -> str:
    """Return the id by which a message is found in the queue that it lies in; "" = it has none.

    That is its redelivery id, or a name made of the broker's number or of the message id, which
    becomes its redelivery id when it is taken.
    """
    found = provenance.redelivery_id
    if not found and provenance.number:
        found = BY_NUMBER + provenance.number
    elif not found and provenance.message_id:
        found = BY_MESSAGE_ID + provenance.message_id
    # Why printable: every store and every selector has to keep it as it is.
    is_kept = found and len(found) <= LONGEST_REDELIVERY_ID and found.isprintable()
    return found if found and is_kept else ""


def again_id(address: str, message_id: str) -> str:
    """Return the substitute for the redelivery id of a message that died where it lay (Artemis).

    Such a death gives it another number, and the address of its queue as its origin.
    """
    return f"{BY_AGAIN}{address}\n{message_id}"


def kept_cause(text: str | None) -> str | None:
    """Return the part of a cause of death that is kept; None = there is none."""
    return None if text is None else bounded_cause(text)


def kept_message_id(text: str | None) -> str | None:
    """Return the part of a message id that is kept: all, or a unique beginning.

    At most 1,024 characters; None = there is no id.
    """
    if text is None or len(text) <= _MESSAGE_ID_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{text[: _MESSAGE_ID_MAX - 35]}...{digest}"


COPY: Final = "copy:"
"""Begins the life of a copy that the listener made."""

_DEAD: Final = "dead:"
_HASH_CHARACTERS: Final = 32


def is_of_listener(source: Destination) -> bool:
    """Return whether a queue is the one of the listener's copies."""
    # Why twice: it is asked for each message, and splitting a name takes four times as long.
    return INTERCEPTED in source.name and INTERCEPTED in source.name.split("::")


def life_of_death(source: Destination, origin: Destination | None, number: str) -> str:
    """Return the life that ended; "" = not known.

    Args:
        source: the queue that the dead letter was found in.
        origin: where it died; None = not known.
        number: see `Provenance.number`; "" = none.
    """
    if not number or origin is None:
        return ""
    name = f"{origin}\0{number}".encode(errors="surrogatepass")
    kind = COPY if is_of_listener(source) else _DEAD
    return kind + sha256(name).hexdigest()[:_HASH_CHARACTERS]


def twin_of(life: str) -> str:
    """Return the life of the other report of the same delivery."""
    return (_DEAD if life.startswith(COPY) else COPY) + pair_of(life)


def pair_of(life: str) -> str:
    """Return the common name of both reports of a delivery."""
    return life.partition(":")[2]
