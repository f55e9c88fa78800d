"""The intake of a Classic link: named queues, and all queues that wildcards match."""

from collections.abc import Callable, Sequence

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.classic.queues import MENDS_ADVISORIES, ClassicQueues, is_wildcard
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.errors import BrokerRefused, DiscoveryRefused, QueueRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import REFUSED, LeftBehind

ReadFrom = Callable[[Sequence[Destination], int], dict[Destination, str]]
"""Makes these queues the intake; returns the broker's words for each that can't be read."""


class WildcardIntake:
    """Keeps a link reading the queues of names and wildcards as they are created and deleted.

    Args:
        queues: the existing queues.
        known: a queue that exists; see `ClassicQueues.expand`.
        drop: stops reading a deleted queue, even with messages of it in hand.
    """

    def __init__(
        self,
        queues: ClassicQueues,
        known: Destination | None,
        *,
        read_from: ReadFrom,
        drop: Callable[[Destination], None],
    ) -> None:
        self._queues = queues
        self._deleted = queues.deleted = set[Destination]()
        self._known = known
        self._read_from = read_from
        self._drop = drop
        self._wanted: tuple[Destination, ...] = ()
        self._prefetch = 0
        self._refused: dict[Destination, str] = {}
        self._is_listed = False
        self._has_changed = False

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these only; deliveries from others stay valid.

        A wildcard stands for all queues that it matches, now and later, except the sidecar's own
        queues, and unreadable queues, which `left_behind` reports.

        Raises:
            QueueRefused: a named queue can't be read, or a wildcard can't be expanded.
        """
        self._queues.taken_back = frozenset(one.destination for one in queues if one.is_final)
        self._wanted = tuple(one.destination for one in queues)
        self._prefetch = prefetch
        self._refused = {}
        self._read()
        self._has_changed = False
        refused = {
            one.name: f"can't read {one}: {self._refused[one]}"
            for one in self._wanted
            if one in self._refused
        }
        if refused:
            raise QueueRefused.all_of(refused)

    def follow(self) -> None:
        """Begin to read new queues, and stop reading deleted ones.

        Raises:
            QueueRefused: the broker does not report its queues any more.
        """
        if self._queues.has_changed:
            self._has_changed = self._has_changed or self._is_listed
            self._read()
            self._queues.has_changed = False

    def _read(self) -> None:
        # Quirk (Classic): a consumer outlives its queue, and gets messages of the next queue with
        # its name; messages in hand of the old queue would keep the consumer from being removed.
        for gone in self._deleted.difference(self._wanted):
            self._drop(gone)
        self._deleted.clear()
        try:
            expanded = self._queues.expand(self._wanted, self._known)
        except QueueRefused:
            raise
        except (RequestRefused, BrokerRefused) as cause:
            wildcard = next(one for one in self._wanted if is_wildcard(one.name))
            words = f"can't find the queues of {wildcard}: {cause}; {MENDS_ADVISORIES}"
            raise QueueRefused(wildcard.name, words) from cause
        readable = [one for one in expanded if one not in self._refused]
        refused = self._read_from(readable, self._prefetch)
        self._has_changed = self._has_changed or bool(refused)
        self._refused |= refused

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the queues that can't be read."""
        return tuple(
            LeftBehind(destination, REFUSED, 0, words, at_least=True)
            for destination, words in self._refused.items()
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of all queues but ours; later changes are reported.

        Raises:
            DiscoveryRefused: the broker does not report them.
        """
        self._is_listed = True
        return listed(lambda: self._queues.list_names(self._known))

    def has_changed(self) -> bool:
        """Return whether discovery may find other queues than last time; wildcards need none."""
        changed, self._has_changed = self._has_changed, False
        return changed


def listed(list_names: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Return names of queues.

    Raises:
        DiscoveryRefused: the broker does not report them.
    """
    try:
        return list_names()
    except (RequestRefused, BrokerRefused) as cause:
        words = f"can't find out which queues exist: {cause}; {MENDS_ADVISORIES}"
        raise DiscoveryRefused(words) from cause
