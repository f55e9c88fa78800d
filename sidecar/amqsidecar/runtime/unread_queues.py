"""Finds dead-letter queues that are not read, so the schedule may not know their messages."""

from collections.abc import Callable, Sequence

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.manual import Manual
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import Destination, final_queue, queue

QUEUES_MAX = 50
"""Maximum queues returned; more are left out."""

FindUnread = Callable[[LookSession], Sequence[Destination]]
"""Returns them; asks the broker over a link."""


def no_unread_queues(_link: LookSession) -> Sequence[Destination]:
    """Find none."""
    return ()


def unread_queues(
    link: LookSession,
    named: Sequence[IntakeQueue],
    find_intake: Callable[[LookSession], Sequence[IntakeQueue]],
    final_suffix: str,
    manual: Manual,
) -> tuple[Destination, ...]:
    """Return final dead-letter queues, and dead-letter queues that the operator did not name.

    Those that do not exist may be among them on Artemis. None where a Classic does not show which
    queues there are: to look at one that does not exist makes it.

    Args:
        link: to the broker.
        named: queues that the operator named; none = all that are found are read.
        find_intake: finds dead-letter queues.
        final_suffix: ends the names of final queues.
        manual: what is left to a person.

    Raises:
        LinkLost: the connection is gone.
    """
    kind = link.description.kind
    names = IntakeNames(kind)
    names.replace(named)
    try:
        found = [one.destination for one in find_intake(link)]
        others = [
            one for one in found if manual.leaves_queue(one) or (named and not names.covers(one))
        ]
        others += [one.destination for one in named if manual.leaves_queue(one.destination)]
        if kind is BrokerKind.ARTEMIS:
            sources = [one.destination for one in named] or found
            others += [final_queue(one, final_suffix) for one in sources]
        elif (listing := link.features.listing) is not None:
            there = frozenset(listing.queue_names())
            others = [one for one in others if one.name in there]
            others += [queue(name) for name in listing.final_names()]
        else:
            others = []
    except DiscoveryRefused:
        return ()
    return tuple(dict.fromkeys(others))[:QUEUES_MAX]
