"""Destinations of Classic without room, which hold up a connection that sends to them.

It relies on these facts (measured on 5.18.3 and 6.3.1): with producer flow control, and without
`sendFailIfNoSpace`, the broker reads nothing more from a connection until its messages have room;
it notices the end of such a connection only when it can't write to it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from amqsidecar.broker import Resend
from amqsidecar.brokers.classic.consumers import ClassicConnection
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.errors import BrokerError, LinkLost
from amqsidecar.model.destination import Destination

PATIENCE_S = 1.0
"""Time within which the broker answers on a separate connection, unless it waits for room."""

FULL = (
    f"the broker took nothing for it within {PATIENCE_S:.0f} s: is it full (memoryLimit with "
    "producerFlowControl, and without sendFailIfNoSpace)?"
)

_IDLE_TIMEOUT_S = 3.0
_REMEMBERED_MAX = 1_000
# Bound: each takes its time; the others are found the next time.
_FOUND_MAX = 10


def of_a_trial(endpoint: Endpoint) -> Endpoint:
    """Return where a trial connects to; the broker soon notices the end of its connection."""
    return replace(endpoint, idle_timeout_s=_IDLE_TIMEOUT_S)


class Rooms:
    """Remembers destinations that held up a connection; outlives links; used by one thread."""

    def __init__(self) -> None:
        self._suspects: dict[Destination, None] = {}

    def problem(self, destination: Destination, takes: Callable[[Destination], bool]) -> str | None:
        """Return why sends there must wait; None = it may have room.

        Only who held up a connection before is asked.
        """
        if destination not in self._suspects:
            return None
        with suppress(BrokerError):
            return None if takes(destination) else FULL
        return None

    def give_up(
        self,
        connection: ClassicConnection,
        sends: Sequence[Resend],
        takes: Callable[[Destination], bool],
        ours: Destination | None,
    ) -> None:
        """End a connection if some of these sends hold it up; see `find`.

        Raises:
            LinkLost: they do.
        """
        try:
            self.find(sends, takes, ours)
        except LinkLost:
            connection.reset()
            raise

    def find(
        self,
        sends: Sequence[Resend],
        takes: Callable[[Destination], bool],
        ours: Destination | None,
    ) -> None:
        """Find the destinations of these sends that hold up a connection.

        Args:
            sends: under way.
            takes: returns whether a destination takes a message now.
            ours: the token queue, which is never full: if it takes nothing either, the broker is
                slow, and no destination is to blame.

        Raises:
            LinkLost: some do, so the connection won't go on.
        """
        destinations = dict.fromkeys(send.destination for send in sends)
        try:
            is_slow = ours is None or not takes(ours)
            without_room = () if is_slow else (one for one in destinations if not takes(one))
            found = list(islice(without_room, _FOUND_MAX))
        except BrokerError:
            return
        if not found:
            return
        for one in found:
            self._suspects[one] = None
        while len(self._suspects) > _REMEMBERED_MAX:
            del self._suspects[next(iter(self._suspects))]
        names = [str(one) for one in found]
        raise LinkLost(f"we are held up by {', '.join(names)}", dict.fromkeys(names, FULL))
