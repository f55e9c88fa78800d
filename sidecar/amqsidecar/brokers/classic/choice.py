"""The choice of messages in a queue of Classic.

Classic looks for the messages of a selector among the first 200 of a queue only. So a consumer
without a selector receives everything up to the last chosen message, and acknowledges the chosen
messages alone. The others pass: they stay in hand, where every browser goes on seeing them, and are
at their place when the consumer is closed (measured on 5.18.3 and 6.3.1). After a crash they are
there too, but count as delivered once until the broker restarts, as with every consumer. So
they do at each end of a STOMP consumer.

Messages in hand take memory of the broker, which blocks producers where it is full. So a choice has
a reach: ours, or less where the broker has little memory for the queue (`memoryLimit`), which it
does not tell.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from amqsidecar.broker import REACH_BYTES, IntakeQueue
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters

_LOOKS_AT_REST: Final = 3


class MessageChoice:
    """Chooses messages by redelivery ids.

    Attributes:
        ids: that are chosen; empty = every message is.
        passed: how many messages passed.
    """

    def __init__(self, ids: Collection[str] = ()) -> None:
        self.ids = frozenset(ids)
        self.passed = 0
        self._left_bytes = REACH_BYTES
        self._passed_before = -1
        self._looks = 0

    def takes(self, redelivery_id: str, size_bytes: int) -> bool:
        """Return whether a message is chosen; the others pass."""
        if not self.ids or redelivery_id in self.ids:
            return True
        self.passed += 1
        self._left_bytes -= size_bytes
        return False

    @property
    def is_at_its_reach(self) -> bool:
        """Whether no more messages should arrive."""
        return self._left_bytes <= 0

    def prefetch(self, share: int) -> int:
        """Return the prefetch with which about `share` messages more arrive.

        Why in steps: each change is a question to the broker.
        """
        if self.is_at_its_reach:
            return 1
        return share + self.passed - self.passed % max(1, share // 2)

    def is_moving(self) -> bool:
        """Return whether messages have passed lately; call it from time to time."""
        self._looks = self._looks + 1 if self.passed == self._passed_before else 0
        self._passed_before = self.passed
        return self._looks < _LOOKS_AT_REST


def chosen_ids(queues: Iterable[IntakeQueue]) -> dict[Destination, frozenset[str]]:
    """Return the redelivery ids of the messages that are read, by queue; empty = all are."""
    return {one.destination: frozenset(one.redelivery_ids) for one in queues}


class ClassicChoices:
    """Takes chosen messages out of queues; see `broker.TakesChosen`.

    Args:
        reading: returns the choice of the consumer that reads a queue, with how many messages
            are in hand that did not pass; None = the queue is not read.
    """

    def __init__(
        self,
        reading: Callable[[Destination], tuple[MessageChoice, int] | None],
        ask_counters: Callable[[Sequence[Destination]], Mapping[Destination, Counters]],
    ) -> None:
        self._reading = reading
        self._ask_counters = ask_counters

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        """Return whether a queue may hold a chosen message that did not arrive.

        Why not by a browse: it ends where the broker's memory ends, as the consumer did.
        """
        del redelivery_ids
        choice, unread = self._reading(queue) or (MessageChoice(), 1)
        if unread or choice.is_moving():
            return True
        counters = self._ask_counters([queue]).get(queue)
        is_counted = counters is not None and counters.acknowledged is not None
        if counters is None or (choice.passed and not is_counted):
            return None
        return None if counters.depth != choice.passed else False
