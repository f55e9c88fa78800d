"""All differences that a redelivered message may have from the one that died.

A run of the matrix fails at a difference that is not here, and at an entry that nothing needs.
"""

from collections.abc import Mapping
from importlib.resources import files

import msgspec


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One difference.

    Attributes:
        alters: whether an application loses something that it wrote; False = a mark of the
            redelivery, or of a conversion, beside what it wrote.
        sentence: the difference and its reason.
    """

    alters: bool
    sentence: str


DIFFERENCES: Mapping[str, Difference] = msgspec.toml.decode(
    files("amqsidecar.diagnosis").joinpath("differences.toml").read_bytes(),
    type=dict[str, Difference],
)
