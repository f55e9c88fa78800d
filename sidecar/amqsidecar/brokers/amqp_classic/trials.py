"""Tries the rights of the sidecar's user on Classic over AMQP, and finds what it would leave."""

from collections import Counter
from collections.abc import Callable, Sequence

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp.browser import Browser
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_classic.intake import MEANINGS, NOT_AMQP_MADE, NOT_CONVERTIBLE, OTHERS
from amqsidecar.brokers.amqp_classic.probe import Transformer
from amqsidecar.brokers.classic.queues import COUNT_MAX, EMPTIED, is_wildcard
from amqsidecar.errors import BrokerRefused, UndecodableMessage
from amqsidecar.formats.amqp_classic_message import damage, take_apart
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind, Loss
from amqsidecar.trials import TrialFeatures

Browse = Callable[[IntakeQueue, int], list[Delivery]]


class AmqpClassicTrials:
    """Trials over one AMQP connection.

    Attributes:
        can_remove: no: AMQP has no word for it.
    """

    can_remove = False

    def __init__(
        self,
        tried: AmqpTrials,
        browser: Browser,
        browse: Browse,
        find_transformer: Callable[[], Transformer],
        *,
        amqp_producers_only: bool,
        allowed_losses: frozenset[Loss],
    ) -> None:
        self._tried = tried
        self._browser = browser
        self._browse = browse
        self._find_transformer = find_transformer
        self._amqp_producers_only = amqp_producers_only
        self._may_damage = Loss.BODY_TYPE in allowed_losses

    @property
    def features(self) -> TrialFeatures:
        """The optional parts of these trials."""
        return TrialFeatures()

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The link gives no credit. The broker makes the destination where it is missing.
        """
        return self._tried.read(str(destination), None)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        Nothing is sent. The broker makes the destination where it is missing.
        """
        return self._tried.write(str(destination), "queue" if destination.is_queue else "topic")

    def remove(self, destination: Destination) -> str | None:
        """Empty a queue of this sidecar; return why it can't be removed."""
        return self._tried.empty(str(destination), None) or EMPTIED

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues of these names; of a wildcard those that hold messages."""
        found: dict[Destination, None] = {}
        for queue in queues:
            if is_wildcard(queue.name):
                seen = self._browse(IntakeQueue(queue), COUNT_MAX)
                found |= dict.fromkeys(one.source for one in seen if one.source != queue)
            else:
                found[queue] = None
        return tuple(found)

    def broker_ms(self) -> int | None:
        """Return None: the time in a message may be its sender's."""
        return None

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return messages that a run would leave, without those shown to no client."""
        transformer = self._find_transformer()
        counts: Counter[tuple[Destination, str]] = Counter()
        if transformer is Transformer.JMS:
            for seen in self._seen(queue):
                counts[seen.source, self._loss(seen)] += 1
        elif self._amqp_producers_only:
            others = self._browser.count(str(queue.destination), COUNT_MAX, OTHERS)
            counts[queue.destination, NOT_AMQP_MADE] = others
        else:
            raise BrokerRefused("a run does not read over this connector")
        return tuple(
            LeftBehind(source, reason, count, MEANINGS[reason], at_least=count >= COUNT_MAX)
            for (source, reason), count in counts.items()
            if reason and count
        )

    def _seen(self, queue: IntakeQueue) -> list[Delivery]:
        try:
            return self._browse(queue, COUNT_MAX)
        except BrokerRefused as refused:
            raise BrokerRefused(
                f"{refused} (doctor looks by that wildcard, so as to make no queue; a run does not)"
            ) from refused

    def _loss(self, seen: Delivery) -> str:
        try:
            found = take_apart(seen.message)
        except UndecodableMessage:
            return NOT_CONVERTIBLE
        is_damaged = not self._may_damage and damage(found, seen.source) is not None
        return Loss.BODY_TYPE.value if is_damaged else ""
