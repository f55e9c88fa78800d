"""Whether a message can have copies in other queues, which all have its message id."""

from collections.abc import Callable

from amqsidecar.broker import BrokerKind, LookSession
from amqsidecar.model.destination import Destination, queue
from amqsidecar.policy.classic_rules import DestinationInterceptors, VirtualTopic
from amqsidecar.policy.destination_map import DestinationMap


class OneQueue:
    """Tells, over one link, where a message can't have copies.

    Args:
        link: to the broker.
        is_copied: returns whether Classic's interceptors put copies into a queue.
    """

    def __init__(self, link: LookSession, is_copied: Callable[[Destination], bool]) -> None:
        self._link = link
        self._is_copied = is_copied

    def holds(self, origin: Destination) -> bool:
        """Return whether only this queue gets messages sent to its address; False also if unknown.

        Raises:
            LinkLost: the connection is gone.
        """
        if not origin.is_queue or "::" in origin.name:
            return False
        if self._link.description.kind is BrokerKind.CLASSIC:
            return not self._is_copied(origin)
        return self._link.send_terms(origin).has_copies is False


def copied_by(interceptors: DestinationInterceptors | None) -> Callable[[Destination], bool]:
    """Return a check whether a queue of Classic gets copies; None = a stock broker's interceptors.

    Source: org.apache.activemq.broker.region.virtual: VirtualTopicInterceptor,
        CompositeDestinationFilter.
    """
    known = interceptors
    if known is None or not known.are_known:
        known = DestinationInterceptors(virtual_topics=(VirtualTopic(),))
    copied = [
        queue(f"{one.prefix}{pattern.name}{'' if pattern.name.endswith('>') else one.postfix}")
        for one in known.virtual_topics
        for pattern in one.destinations
    ]
    for composite in known.composites:
        copied += [one.destination for one in composite.forward_to]
        copied += composite.destinations
    patterns = DestinationMap([((one,), True) for one in copied])
    return lambda destination: patterns.find(destination) is not None
