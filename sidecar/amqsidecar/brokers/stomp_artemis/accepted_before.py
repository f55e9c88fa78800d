"""Messages that a predecessor over STOMP on Artemis accepted without acknowledging them.

The token names it by the broker's numbers. It is acknowledged when it comes again, and a later
token goes on naming it until it came, or is known to lie in its queue no more.
"""

from collections.abc import Collection, Sequence

from amqsidecar.brokers.artemis.management import ArtemisQuestions, attribute_of_queue, of_queue
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis.selection import MADE_BY_OTHERS
from amqsidecar.brokers.stomp_artemis.subscriptions import StompDelivery
from amqsidecar.brokers.token import Accepted
from amqsidecar.model.destination import queue

_CARRIED_MAX = 4000


class Suspects:
    """Numbers of messages to acknowledge and not to return, by queue."""

    def __init__(self, connection: StompConnection, management: ArtemisQuestions) -> None:
        self._connection = connection
        self._management = management
        self._numbers: dict[str, set[int]] = {}
        self._silenced: list[tuple[str, int]] = []

    def replace(self, accepted: Accepted) -> None:
        """Add the messages that a token names."""
        self._numbers = {name: set(numbers) for name, numbers in accepted.items()}

    @property
    def are_settled(self) -> bool:
        """Whether all of them have come."""
        return not any(self._numbers.values())

    def silences(self, name: str, number: int, ack: bytes) -> bool:
        """Acknowledge a message of a queue if it is one of these; return whether it is."""
        if number not in self._numbers.get(name, ()):
            return False
        self._connection.send("ACK", [(b"id", ack)])
        self._silenced.append((name, number))
        return True

    def accepted_with(self, held: Sequence[StompDelivery]) -> Accepted:
        """Return the ids that the next token names: these, and earlier ids that may arrive."""
        if self._silenced:
            # Why a question: its answer shows that the broker has processed all earlier frames.
            self._connection.answers([self._connection.ask("BEGIN", [(b"transaction", b"sync")])])
            self._connection.send("ABORT", [(b"transaction", b"sync")])
            for name, number in self._silenced:
                self._numbers.get(name, set()).discard(number)
            self._silenced.clear()
        accepted: dict[str, set[int]] = {}
        room = _CARRIED_MAX
        for name, numbers in self._numbers.items():
            newest = sorted(numbers)[-room:] if room else []
            accepted[name] = set(newest)
            room -= len(newest)
        for one in held:
            accepted.setdefault(one.subscription.name, set()).add(one.arrived.number)
        return {name: frozenset(numbers) for name, numbers in accepted.items() if numbers}

    def clear(
        self, name: str, held: Sequence[StompDelivery], made_by_others: int, listed: Collection[int]
    ) -> None:
        """Forget a queue's messages once all others of it are in hand.

        Args:
            made_by_others: how many of its messages STOMP did not make when `listed` was asked.
            listed: the numbers of these, but for what is left behind.
        """
        numbers = self._numbers.get(name)
        if not numbers:
            return
        known = sum(one.listed is None for one in held) + made_by_others
        place = queue(name)
        # Why both, and at once: if one of the others is gone meanwhile, a suspect fills its place.
        total, others = self._management.ask_all(
            [
                attribute_of_queue(place, "MessageCount"),
                of_queue(place, "countMessages", MADE_BY_OTHERS),
            ]
        )
        is_told = total.is_ok and others.is_ok
        if is_told and (int(total.value), int(others.value)) == (known, made_by_others):
            numbers.intersection_update(listed)
