"""Where redeliveries may go at all.

Anyone with write permission on a dead-letter queue chooses the origin, and the sidecar sends with
its own rights.
"""

from collections.abc import Sequence

from amqsidecar.engine.judging.resend_copies import ResendProblem
from amqsidecar.model.destination import Destination, parse_pattern
from amqsidecar.policy.destination_map import DestinationMap

OPTION = "redelivery.allowed_origins"


def within(allowed: Sequence[str], problem: ResendProblem) -> ResendProblem:
    """Return a problem if no pattern matches, else the result of `problem`.

    Args:
        allowed: patterns, matched with the address of an Artemis queue; empty = all are allowed.
        problem: the further check of allowed destinations.
    """
    if not allowed:
        return problem
    patterns = DestinationMap([((parse_pattern(text),), True) for text in allowed])

    def find(destination: Destination) -> str | None:
        address = Destination(destination.kind, destination.name.split("::", 1)[0])
        if patterns.find(address) is None:
            return f"{OPTION} does not allow its origin {destination}"
        return problem(destination)

    return find
