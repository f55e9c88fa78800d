"""Facts about a broker's release: whether it was tested, and which of its faults concern us.

The only table of releases in the product: a run logs it, doctor reports it.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqsidecar.broker import BrokerDescription, BrokerKind

TESTED: Final = {
    BrokerKind.CLASSIC: ("5.18.3", "5.19.1", "5.19.7", "6.2.7", "6.3.1", "6.3.2"),
    BrokerKind.ARTEMIS: ("2.44.0", "2.55.0", "2.57.0"),
}
"""Releases that the sidecar's own tests run against, in order of age."""

PRODUCT: Final = {BrokerKind.CLASSIC: "ActiveMQ Classic", BrokerKind.ARTEMIS: "Apache Artemis"}
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class Fault(NamedTuple):
    """A fault of older releases that loses messages, or gives the broker away."""

    kind: BrokerKind
    mended_in: tuple[int, int, int]
    what: str
    source: str


FAULTS: Final = (
    Fault(
        BrokerKind.CLASSIC,
        (5, 18, 0),
        "its individualDeadLetterStrategy drops a dead letter whose message id died on another "
        "queue before, such as a copy of a virtual topic's message",
        "AMQ-9217",
    ),
    Fault(
        BrokerKind.CLASSIC,
        (5, 18, 3),
        "anyone who reaches its OpenWire port can run programs on its machine",
        "CVE-2023-46604",
    ),
    Fault(
        BrokerKind.ARTEMIS,
        (2, 39, 0),
        "it commits a transaction over AMQP although one of its sends failed, so that a dead "
        "letter can be taken without being sent back: use core:// until the upgrade",
        "ARTEMIS-5106",
    ),
    Fault(
        BrokerKind.ARTEMIS,
        (2, 44, 0),
        "over AMQP it can drop a message that names another routing type than its address has",
        "ARTEMIS-5717",
    ),
)
"""The oldest first within a product."""


def release_name(description: BrokerDescription) -> str:
    """Return product and version in words."""
    return f"{PRODUCT[description.kind]} {description.version or 'of an unknown version'}"


def untested_release(description: BrokerDescription) -> str | None:
    """Return a sentence about a release that no test has run against; None = it is tested."""
    tested = TESTED[description.kind]
    if description.version in tested:
        return None
    known = f"{', '.join(tested[:-1])} and {tested[-1]}"
    return f"is {release_name(description)}; tested are {known}"


def release_faults(description: BrokerDescription) -> Sequence[str]:
    """Return a sentence for each known fault of a release; () = none is known.

    A vendor's build, such as `2.40.0.redhat-00001`, may have fixes of its own and gets none.
    """
    numbers = _NUMBERS.fullmatch(description.version)
    if numbers is None:
        return ()
    version = tuple(int(part) for part in numbers.groups())
    return [
        f"is {release_name(description)}: {one.what} ({one.source}, fixed in "
        f"{'.'.join(map(str, one.mended_in))})"
        for one in FAULTS
        if one.kind is description.kind and version < one.mended_in
    ]
