"""The name of one delivery that died, which both the broker and the listener may report."""

from hashlib import sha256
from typing import Final

from amqsidecar.model.destination import Destination
from amqsidecar.model.sidecar_names import INTERCEPTED

COPY: Final = "copy:"
"""Begins the life of a copy that the listener made."""

_DEAD: Final = "dead:"
_HASH_CHARACTERS: Final = 32


def is_of_listener(source: Destination) -> bool:
    """Return whether a queue is the one of the listener's copies."""
    return INTERCEPTED in source.name.split("::")


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
