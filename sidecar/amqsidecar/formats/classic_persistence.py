"""Whether a dead letter of Classic was non-persistent, as a property on it says.

The broker notes it in `originalDeliveryMode`, and an application's copy has that, too.
"""

from collections.abc import Callable

from amqsidecar.model.destination import Destination

KeepsNonPersistent = Callable[[Destination], bool]
"""Tells whether the strategy of a destination keeps non-persistent messages: else nothing that lies
in a dead-letter queue was one, whatever it says."""


def always_keeps(destination: Destination) -> bool:
    """Return the message's own claim: used where the strategies are not known."""
    del destination
    return True
