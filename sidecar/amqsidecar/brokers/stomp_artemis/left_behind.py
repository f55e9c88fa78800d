"""Messages that stay in dead-letter queues read over STOMP on Artemis, and why."""

from collections.abc import Sequence

from amqsidecar.brokers.artemis.management import ArtemisQuestions, of_queue
from amqsidecar.brokers.stomp_artemis.accepted_before import Suspects
from amqsidecar.brokers.stomp_artemis.selection import (
    MADE_BY_OTHERS,
    MEANINGS,
    NOT_STOMP_MADE,
    NOT_TAKEN,
    TOO_LARGE,
    TOO_LARGE_BY_STOMP,
    WITHHELD,
)
from amqsidecar.brokers.stomp_artemis.subscriptions import ArtemisSubscription, ArtemisSubscriptions
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


def count(management: ArtemisQuestions, queue: Destination, selector: str) -> int:
    """Return how many messages of a queue match; 0 where the broker does not answer.

    Quirk (Artemis 2.44): it looks at the first 200 messages only (management-browse-page-size).
    """
    answer = management.ask(of_queue(queue, "countMessages", selector))
    return int(answer.value) if answer.is_ok and answer.value else 0


def left(queue: Destination, reason: str, number: int) -> LeftBehind:
    """Report that at least this number of messages stays in a queue."""
    return LeftBehind(queue, reason, number, MEANINGS[reason], at_least=True)


class StompLeftBehind:
    """Counts messages not taken; by the counts it settles a predecessor's accepted messages."""

    def __init__(
        self,
        subscriptions: ArtemisSubscriptions,
        suspects: Suspects,
        management: ArtemisQuestions,
    ) -> None:
        self._subscriptions = subscriptions
        self._suspects = suspects
        self._management = management
        self._waiting: dict[str, int] = {}

    def look(self) -> tuple[LeftBehind, ...]:
        """Return messages of the attached queues that are not taken, and why."""
        found: list[LeftBehind] = []
        for subscription in self._subscriptions.attached:
            if self._management.is_usable:
                found += self._look_into(subscription)
            else:
                queue, why = subscription.queue.destination, self._management.why_unusable
                meaning = f"{NOT_TAKEN}; the user may not count them ({why})"
                found.append(LeftBehind(queue, NOT_STOMP_MADE, 0, meaning, at_least=True))
        return tuple(found)

    def _look_into(self, subscription: ArtemisSubscription) -> Sequence[LeftBehind]:
        management, queue = self._management, subscription.queue.destination
        counts = {WITHHELD: self._withheld(subscription)}
        if not subscription.queue.selector:
            others = count(management, queue, MADE_BY_OTHERS)
            counts[NOT_STOMP_MADE] = others + subscription.kept
            counts[TOO_LARGE] = count(management, queue, TOO_LARGE_BY_STOMP)
            held = len(self._subscriptions.held(subscription))
            self._suspects.clear(subscription.name, held, others)
        return [left(queue, reason, number) for reason, number in counts.items() if number]

    def _withheld(self, subscription: ArtemisSubscription) -> int:
        """Return how many are selected, now and at the last look, while nothing is in hand."""
        before, now = self._waiting.get(subscription.name, 0), 0
        if not self._subscriptions.held(subscription):
            queue = subscription.queue.destination
            now = count(self._management, queue, subscription.selector)
        self._waiting[subscription.name] = now
        return min(before, now)
