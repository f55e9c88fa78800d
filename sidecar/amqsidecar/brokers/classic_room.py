"""Which destinations of Classic have no room, so that a connection that sends there is held up.

What it rests on (measured on 5.18.3 and 6.3.1): with producer flow control, and without
`sendFailIfNoSpace`, the broker reads nothing more from a connection until what it sent has room;
it notices the end of such a connection only when it can't write to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from amqsidecar.broker import Resend
from amqsidecar.brokers.endpoint import Endpoint
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination

PATIENCE_S = 1.0
"""So soon the broker answers on a connection of its own, unless it waits for room."""

FULL = (
    f"the broker took nothing for it within {PATIENCE_S:.0f} s: is it full (memoryLimit with "
    "producerFlowControl, and without sendFailIfNoSpace)?"
)

_IDLE_TIMEOUT_S = 3.0
_REMEMBERED_MAX = 1_000


def of_a_trial(endpoint: Endpoint) -> Endpoint:
    """Return where a trial connects to; the broker soon notices the end of its connection."""
    return replace(endpoint, idle_timeout_s=_IDLE_TIMEOUT_S)


class Rooms:
    """Remembers who held up a connection; outlives links, and belongs to one thread."""

    def __init__(self) -> None:
        self._suspects: dict[Destination, None] = {}

    def problem(self, destination: Destination, takes: Callable[[Destination], bool]) -> str | None:
        """Return why nothing should be sent there now; None = it may have room.

        Only who held up a connection before is asked.
        """
        if destination in self._suspects and not takes(destination):
            return FULL
        return None

    def find(
        self, sends: Sequence[Resend], takes: Callable[[Destination], bool], name: str
    ) -> None:
        """Look for those that hold up a connection with these sends.

        Raises:
            LinkLost: it is they; so it won't go on.
        """
        found = [one for one in dict.fromkeys(send.destination for send in sends) if not takes(one)]
        if not found:
            return
        for one in found:
            self._suspects[one] = None
        while len(self._suspects) > _REMEMBERED_MAX:
            del self._suspects[next(iter(self._suspects))]
        names = [str(one) for one in found]
        raise LinkLost(f"{name} is held up by {', '.join(names)}", dict.fromkeys(names, FULL))
