"""The broker's answer to the question what becomes of a send to a destination."""

import msgspec

from amqsidecar.model.resend_effect import SideEffect


class BoundQueue(msgspec.Struct, frozen=True):
    """A queue that gets what is sent to a destination.

    Attributes:
        filter: the JMS selector that a message must match; "" = it takes every message.
    """

    name: str
    filter: str = ""


class SendTerms(msgspec.Struct, frozen=True):
    """The broker's treatment of sends to one destination, whatever the message holds.

    Attributes:
        problem: why a send gets lost or holds the link up now, as a sentence; None = it routes.
        exists: whether the destination exists; False = the broker makes it at the first send,
            None = unknown.
        queues: each gets the message if its filter matches; none of them = the message is lost.
            Empty = the broker makes a queue without a filter, or does not report its queues.
        effects: on a message that is sent there, which the operator does not allow.
        has_copies: whether more than one queue, address or bridge gets what producers send to its
            address; None = unknown.
        trusts_filters: the operator lets a filter that the sidecar can't evaluate count as one
            that matches (`redelivery.allow`).
    """

    problem: str | None = None
    exists: bool | None = None
    queues: tuple[BoundQueue, ...] = ()
    effects: tuple[SideEffect, ...] = ()
    has_copies: bool | None = None
    trusts_filters: bool = False

    @property
    def has_filters(self) -> bool:
        """Whether the properties of a message decide its fate."""
        return any(one.filter for one in self.queues) or any(one.filter for one in self.effects)


ROUTES = SendTerms()
"""Of a destination that takes every message, as far as anyone knows."""
