"""A message in a plan of bulk redelivery."""

from enum import StrEnum

import msgspec


class PlannedPlace(StrEnum):
    """Where a planned message lies now.

    Attributes:
        QUEUE: in a final dead-letter queue of the broker.
        STORE: held or parked in the schedule of a sidecar.
    """

    QUEUE = "queue"
    STORE = "store"


class PlannedMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One row of a plan.

    Attributes:
        number: place in the plan, 0-based, without a gap.
        redelivery_id: what the message keeps over all its deaths.
        place: where it lies.
        source: `QUEUE`: the queue in which it lies; `STORE`: the one that it was taken from.
        sidecar: which one wrote the last of its history.
        destination: where it goes, such as `queue://orders`.
        offset_ms: when, in milliseconds from the start of the execution.
    """

    number: int
    redelivery_id: str
    place: PlannedPlace
    source: str
    sidecar: str
    destination: str
    offset_ms: int
