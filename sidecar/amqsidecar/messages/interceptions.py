"""Whether a message in the listener's queue was written by the listener."""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats import core_artemis_message, stomp_frame
from amqsidecar.formats.core import message as core
from amqsidecar.formats.interception_seal import (
    OF_AMQP,
    SEALED_PROPERTIES,
    CopyKeysOf,
    open_seal,
)
from amqsidecar.messages.kept_message import chosen_properties
from amqsidecar.messages.trees.core import text_of_body
from amqsidecar.model.provenance import Provenance, is_of_listener
from amqsidecar.model.sidecar_names import INTERCEPTED, PROPERTY_SEAL

_TEXT_MAX: Final = 1 << 17
"""More characters than any sealed property has."""

read_sealed: Final = chosen_properties((*SEALED_PROPERTIES, PROPERTY_SEAL), _TEXT_MAX)
"""Reads the bytes under a seal, and the seal."""

NO_KEYS: Final = (
    f"whoever may send to {INTERCEPTED} may have written it: set listener.copy_key_file, the same "
    "file for `listen` and `run`, so that copies of the listener are known; this one can be "
    "retried by a person"
)
NO_SEAL: Final = (
    f"it lay in {INTERCEPTED} without a seal: an older listener or one without "
    "listener.copy_key_file wrote it, or a stranger; retry it if its origin is right"
)
WRONG_SEAL: Final = (
    f"it lay in {INTERCEPTED} with a seal that does not fit: it was changed, or sealed with a key "
    "that is not in listener.copy_key_file, or a stranger wrote it; retry it if its origin is right"
)


def vetting(keys: CopyKeysOf | None) -> Callable[[Delivery], Delivery]:
    """Return a function that makes an unproven copy one that is parked.

    A proven copy gets the number that its seal names.
    """

    def vet(delivery: Delivery) -> Delivery:
        if not is_of_listener(delivery.source):
            return delivery
        return msgspec.structs.replace(delivery, provenance=_vetted(delivery, keys))

    return vet


def _vetted(delivery: Delivery, keys: CopyKeysOf | None) -> Provenance:
    number: str | None = None
    if keys is None:
        problem = NO_KEYS
    else:
        properties = read_sealed(delivery.encoding, delivery.message) or {}
        text = properties.get(PROPERTY_SEAL)
        problem = NO_SEAL if text is None else WRONG_SEAL
        if text is not None:
            number = open_seal(
                keys(),
                text,
                properties,
                lambda number: _body_digest(delivery.encoding, delivery.message, number),
            )
    return msgspec.structs.replace(
        delivery.provenance,
        number=number or "",
        problem=delivery.provenance.problem or (problem if number is None else None),
    )


def _body_digest(encoding: str, message: bytes, number: str) -> bytes | None:
    """Return the SHA-256 of the body as the listener saw it; None = it can't be read."""
    try:
        body = _body(encoding, message, is_of_amqp=number.endswith(OF_AMQP))
    except UndecodableMessage:
        return None
    return None if body is None else sha256(body).digest()


def _body(encoding: str, message: bytes, *, is_of_amqp: bool) -> bytes | memoryview | None:
    if encoding == stomp_frame.ENCODING:
        return None if is_of_amqp else stomp_frame.parse_kept(message)[1]
    if encoding == core_artemis_message.ENCODING:
        kept = core_artemis_message.take_apart(message).message
        if is_of_amqp or kept.kind not in (core.TEXT_MESSAGE, core.BYTES_MESSAGE):
            return None
        if kept.kind == core.BYTES_MESSAGE:
            return kept.body
        return (text_of_body(kept.body) or "").encode(errors="replace")
    # Why not others: over AMQP no copy of a STOMP consumer is taken (`not_convertible`).
    return amqp.split(message).get(amqp.VALUE, b"") if is_of_amqp else None
