"""Messages that a STOMP link leaves in the dead-letter queues of Classic, counted by reason."""

from collections import Counter
from collections.abc import Iterable, Iterator

from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import IntakeLimits, QueueReader
from amqsidecar.formats.stomp_classic_message import NOT_ACKNOWLEDGEABLE, NOT_CARRIED
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind, Loss

# Source: ActiveMQ Classic, BaseDestination.MAX_PAGE_SIZE: a consumer with a selector sees no more.
_PAGE = 200
# Precedent: a browser ends at maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400

_MENDS = "take them over openwire://"
_MEANINGS = {
    NOT_ACKNOWLEDGEABLE: "they were made by AMQP clients: Classic can't let a STOMP consumer "
    f"acknowledge their ids, and shows no body that could be sent back; {_MENDS}",
    NOT_CARRIED: "STOMP can't carry them: they have a property that is named like one of its own "
    f"headers or longer than 10 KiB, or are a Text with a zero character; {_MENDS}",
    Loss.GROUP.value: "STOMP does not show JMSXGroupID, so that they would lose their group; "
    f"{_MENDS}, or allow it with intake.allow_lossy: [group]",
    Loss.PROPERTY_TYPES.value: "they have properties that are perhaps no strings, which STOMP "
    f"would make of them; {_MENDS}, or allow it with intake.allow_lossy: [property_types]",
    Loss.BODY_TYPE.value: "their body is perhaps a Map, Object, Stream or null, which STOMP shows "
    f"as empty; {_MENDS}, or allow it with intake.allow_lossy: [body_type]",
}
_STALLED = (
    f"; the broker looks for ours among the first {_PAGE} messages only, and all of these are left"
    " behind: it hands over nothing more, and the intake stalls"
)


class Leftovers:
    """Counts the messages that are left behind."""

    def __init__(self, consumers: StompSubscriptions, rules: IntakeLimits) -> None:
        self._consumers = consumers
        self._rules = rules

    def of(self, readers: Iterable[QueueReader]) -> tuple[LeftBehind, ...]:
        """Return the messages that are left in these queues now.

        Raises:
            FrameRefused: no permission to browse one.
        """
        return tuple(
            left
            for reader in readers
            for left in self._of_one(reader.destination, reader.held(), is_full=reader.is_full)
        )

    def of_unread(self, queues: Iterable[Destination]) -> tuple[LeftBehind, ...]:
        """Return messages that would be left in queues that are not read, as selectors show it.

        Raises:
            FrameRefused: no permission to browse one.
        """
        return tuple(
            left for queue in queues for left in self._of_one(queue, Counter(), is_full=False)
        )

    def _of_one(
        self, queue: Destination, held: Counter[str], *, is_full: bool
    ) -> Iterator[LeftBehind]:
        counts = dict(held)
        unreadable = self._rules.unreadable_in(queue)
        kept_out = selectors.left(self._rules.allowed_losses, unreadable)
        for reason, selector in kept_out.items():
            frames = self._consumers.browse(queue, _COUNT_MAX, selector)
            counts[reason] = counts.get(reason, 0) + len(frames)
        # Why not asked for: the answer would break the connection.
        counts[NOT_CARRIED] = counts.get(NOT_CARRIED, 0) + len(unreadable)
        unseen = sum(counts.values()) - held.total()
        is_stalled = unseen >= _PAGE or is_full
        for reason, count in counts.items():
            if count:
                yield LeftBehind(
                    queue=queue,
                    reason=reason,
                    count=count,
                    meaning=_MEANINGS[reason] + (_STALLED if is_stalled else ""),
                    at_least=is_stalled,
                )
