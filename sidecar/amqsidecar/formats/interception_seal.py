"""The seal on a message that the listener saved: an HMAC over its origin, its past and its body.

Whoever may consume through the listener may also send to the intake queue. The seal, by a key that
only listener and sidecar have, proves that the listener wrote a copy, for a message that the broker
had delivered to this consumer. It is cut off when the message is sent on.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from amqsidecar.formats.redelivery_mark import MARK_NAMES
from amqsidecar.model.sidecar_names import PROPERTY_CAUSE

CopyKeysOf = Callable[[], Sequence[bytes]]
"""Returns the keys of now, at least one; the first key seals."""

SEALED_PROPERTIES: Final = (
    *("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_ROUTING_TYPE", PROPERTY_CAUSE),
    *MARK_NAMES,
)
"""Properties that a seal covers."""

OF_AMQP: Final = "-amqp"
"""Ends the number of a copy over AMQP, whose body is sealed as it is encoded."""

KEY_CHARACTERS_MIN: Final = 32
"""Minimum characters of a key."""

_VERSION: Final = "1"
_SEPARATOR: Final = ";"
_PARTS: Final = 3


def seal(key: bytes, number: str, properties: Mapping[str, str], body_digest: bytes) -> str:
    """Return the seal of a copy.

    Args:
        key: the secret that listener and sidecar share.
        number: of the message that was given up, unique within its queue; no other copy has it.
        properties: the copy's properties as text; only `SEALED_PROPERTIES` count.
        body_digest: SHA-256 of its body.
    """
    return _SEPARATOR.join((_VERSION, number, _code(key, number, properties, body_digest)))


def open_seal(
    keys: Sequence[bytes],
    text: str,
    properties: Mapping[str, str],
    body_digest: Callable[[str], bytes | None],
) -> str | None:
    """Return the number in a seal; None = no key made it for this copy.

    Args:
        keys: any of which may have made it.
        properties: of the copy, as for `seal`.
        body_digest: returns it for a number in a seal; None = the body can't be read.
    """
    parts = text.split(_SEPARATOR)
    if len(parts) != _PARTS or parts[0] != _VERSION:
        return None
    number = parts[1]
    digest = body_digest(number)
    if digest is None:
        return None
    # Why bytes: the compared text may hold any character.
    found = parts[2].encode(errors="replace")
    codes = [_code(key, number, properties, digest).encode() for key in keys]
    return number if any(hmac.compare_digest(found, code) for code in codes) else None


def _code(key: bytes, number: str, properties: Mapping[str, str], body_digest: bytes) -> str:
    values = [properties.get(name) for name in SEALED_PROPERTIES]
    sealed = msgspec.json.encode([_VERSION, number, values, body_digest.hex()])
    return hmac.digest(key, sealed, sha256).hex()
