"""Dead letters that stay in their queue, and why."""

from enum import StrEnum

import msgspec

from amqsidecar.model.destination import Destination

REFUSED = "refused"
"""Reason of `LeftBehind` for a queue that the broker forbids us to read."""


class Loss(StrEnum):
    """A part of a message that a wire may be unable to carry; such a message is not taken.

    Attributes:
        BODY_TYPE: a Map, Object or Stream would arrive as something else, or Text as Bytes.
        PROPERTY_TYPES: application properties that are numbers or booleans would become strings.
        GROUP: `JMSXGroupID` and `JMSXGroupSeq` would be gone.
    """

    BODY_TYPE = "body_type"
    PROPERTY_TYPES = "property_types"
    GROUP = "group"


class LeftBehind(msgspec.Struct, frozen=True):
    """Messages that stay in their queue since this link must not or can't take them.

    Attributes:
        queue: the dead-letter queue; that of an application where messages are stuck in the broker.
        reason: a short word for metrics, such as a value of `Loss` or `not_acknowledgeable`.
        count: how many are known now; `at_least` of them where the wire shows no more.
        meaning: the reason and the fix, as a sentence.
        at_least: whether there may be more.
    """

    queue: Destination
    reason: str
    count: int
    meaning: str
    at_least: bool = False
