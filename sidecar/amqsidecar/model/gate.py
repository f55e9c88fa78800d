"""The input and the answer of a gate for a due message."""

import msgspec

from amqsidecar.model.destination import Destination
from amqsidecar.model.schedule import GroupPlace


class DueMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A redelivery whose time has come.

    Attributes:
        destination: where it would be sent now.
        due_at_ms: since when; after a wait of a gate exactly the time that the gate named.
        redelivery_count: the count that it will carry.
        passes_gates: a person retried it: the gates are notified, not asked.
        redelivery_id: its id over all its deaths.
        group: its message group, where a gate looks at groups; None = none.
        place: where it stands in its group; None = it has none, or `passes_gates`.
    """

    destination: Destination
    due_at_ms: int
    redelivery_count: int
    passes_gates: bool = False
    redelivery_id: str = ""
    group: str | None = None
    place: GroupPlace | None = None


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A due message does not go now.

    Attributes:
        until_ms: when to ask again.
        reason: for the operator, who sees it beside the message.
        is_news: the destination was open until now; this is logged.
    """

    until_ms: int
    reason: str
    is_news: bool = False
