"""Reading dead-letter queues of Classic over AMQP: receivers, credit, and messages in hand.

A message that this wire would damage is never released: Classic would hand it over again at once.
It stays in hand, unsettled, and goes back when the link is closed.
"""

from collections import Counter
from collections.abc import Mapping

from amqsidecar.broker import Delivery
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.read_ahead import AheadIntake
from amqsidecar.brokers.classic.choice import MessageChoice
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.amqp_classic_message import (
    damage,
    is_native,
    mended,
    read_provenance,
    take_apart,
)
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind, Loss
from amqsidecar.model.provenance import Provenance, lying_id

NATIVE_ONLY = "JMS_AMQP_NATIVE = TRUE"
"""Selects messages of AMQP applications that came through a connector that keeps their bytes."""

# Why not NOT (...): a message without the property is neither the one nor the other to a selector.
OTHERS = "JMS_AMQP_NATIVE IS NULL OR JMS_AMQP_NATIVE = FALSE"
"""Selects all that `NATIVE_ONLY` does not."""

# Bound: damaged messages of a queue that are held out of the way of the others.
_SET_ASIDE_MAX = 1000
_NUDGE_EVERY_S = 2.0
NOT_CONVERTIBLE = "not_convertible"
NOT_AMQP_MADE = "not_amqp_made"
MEANINGS: Mapping[str, str] = {
    Loss.BODY_TYPE: "they would come back as something else: as another type of JMS message, or "
    "mapped where they came in unmapped, or with a text that the broker can't read; read them over "
    "openwire://, or allow it by intake.allow_lossy: [body_type]",
    NOT_CONVERTIBLE: "the broker hands over no AMQP message for them; read them over openwire://",
    NOT_AMQP_MADE: "made by applications that don't speak AMQP: this connector would give them "
    "back as BytesMessages, and Classic looks for others no further than the first "
    "200 messages of a queue, so they may block the messages behind them; read "
    "them over openwire://, or write transport.transformer=jms into the uri of the "
    "AMQP connector",
}
"""Why a message is left behind, by the reason."""


class _Subscription:
    """One queue that is read.

    Attributes:
        origin: where its messages died.
        choice: others than the chosen messages stay in hand.
        reasons: why messages are held back from the engine, and how many of them.
    """

    def __init__(
        self, receiver: Receiver, origin: Destination | None, choice: MessageChoice
    ) -> None:
        self.receiver = receiver
        self.origin = origin
        self.choice = choice
        self.reasons: Counter[str] = Counter()


class ClassicIntake(AheadIntake):
    """The receivers of a link, one per dead-letter queue.

    Attributes:
        chosen: redelivery ids of messages, by the queues of which these alone are read.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        encoding: str,
        *,
        is_native_wire: bool,
        allowed_losses: frozenset[Loss],
    ) -> None:
        self._encoding = encoding
        self._is_native_wire = is_native_wire
        self._may_damage = Loss.BODY_TYPE in allowed_losses
        self._subscriptions: dict[Destination, _Subscription] = {}
        super().__init__(connection)
        self.chosen: Mapping[Destination, frozenset[str]] = {}
        self._nudge_at_s = 0.0

    def read_from(
        self, queues: Mapping[Destination, Destination | None], prefetch: int
    ) -> dict[Destination, str]:
        """Read from these queues only; return the reason for each that can't be read.

        Args:
            queues: the origin of each queue's messages; None = unknown, in a final queue.
            prefetch: over all queues.
        """
        self._ahead.sweep()
        for queue in [queue for queue in self._subscriptions if queue not in queues]:
            self._retire(self._subscriptions.pop(queue))
        for queue, subscription in list(self._subscriptions.items()):
            subscription.origin = queues[queue]
            is_other = subscription.choice.ids != self.chosen.get(queue, frozenset())
            if is_other or subscription.receiver.refusal is not None:
                # Why a refusal: the broker has closed it, such as when the queue was deleted.
                self._retire(self._subscriptions.pop(queue))
        for queue, origin in queues.items():
            if queue not in self._subscriptions:
                receiver = Receiver(
                    self._connection,
                    self._next_name(),
                    str(queue),
                    selector=NATIVE_ONLY if self._is_native_wire else "",
                )
                self._subscriptions[queue] = _Subscription(
                    receiver, origin, MessageChoice(self.chosen.get(queue, ()))
                )
        waiting = [subscription.receiver for subscription in self._subscriptions.values()]
        self._connection.run_until(lambda: all(receiver.is_answered for receiver in waiting))
        # Why: a refused attach is answered first and closed a moment later.
        self._connection.pump(0)
        refused: dict[Destination, str] = {}
        for queue, subscription in list(self._subscriptions.items()):
            if not subscription.receiver.is_open:
                self._retire(self._subscriptions.pop(queue))
                refused[queue] = subscription.receiver.refusal or self._connection.no_answer
        self._spread(prefetch, len(queues))
        return refused

    @property
    def queues(self) -> tuple[Destination, ...]:
        return tuple(self._subscriptions)

    def reading(self, queue: Destination) -> tuple[MessageChoice, int] | None:
        """Return the choice in a queue and how many in hand did not pass; None = it is not read."""
        subscription = self._subscriptions.get(queue)
        if subscription is None:
            return None
        choice = subscription.choice
        return choice, subscription.receiver.in_hand_count - choice.passed

    def _retire(self, subscription: _Subscription) -> None:
        """Stop reading; delivered messages can still be accepted."""
        held_back = subscription.reasons.total() + subscription.choice.passed
        self._ahead.retire(subscription.receiver, held_back)

    @property
    def has_arrived(self) -> bool:
        return any(subscription.receiver.arrived for subscription in self._subscriptions.values())

    def receive(self, limit: int) -> list[Delivery]:
        """Return new deliveries in order, queues in turn."""
        subscriptions = list(self._subscriptions.items())
        deliveries: list[Delivery] = []
        self._turn += 1
        now_ms = self._connection.clock.now_ms()
        had_set_aside = False
        for at in range(len(subscriptions)):
            queue, subscription = subscriptions[(self._turn + at) % len(subscriptions)]
            while len(deliveries) < limit and subscription.receiver.arrived:
                [(in_hand, message)] = subscription.receiver.take_arrived(1)
                self._ahead.note_size(in_hand.size_bytes)
                provenance = self._read(message, queue, subscription.origin, now_ms)
                if isinstance(provenance, str):
                    subscription.reasons[provenance] += 1
                elif subscription.choice.takes(lying_id(provenance), len(message)):
                    self._ahead.hand_over(in_hand)
                    deliveries.append(Delivery(in_hand, queue, message, provenance, self._encoding))
                    continue
                had_set_aside = True
        if had_set_aside:
            self.top_up()
        return deliveries

    def _read(
        self, message: bytes, queue: Destination, origin: Destination | None, now_ms: int
    ) -> Provenance | str:
        """Return the provenance of a message, or the reason why it must not be taken."""
        try:
            found = take_apart(message)
            if not self._is_native_wire and not self._may_damage and damage(found, queue):
                return Loss.BODY_TYPE
            # Why not by its `to` alone: a producer may write that of the dead-letter queue.
            is_native_made = self._is_native_wire or is_native(found, queue)
            if not is_native_made:
                found = mended(found) or found
            return read_provenance(
                found, queue, origin=origin, now_ms=now_ms, is_native_made=is_native_made
            )
        except UndecodableMessage:
            # Quirk (Classic): it hands on the body of any message that has the property
            # JMS_AMQP_NATIVE, and nothing else of it; the whole message can't be had.
            return NOT_CONVERTIBLE

    def top_up(self) -> None:
        """Grant the broker as many messages as prefetch and held bytes allow.

        Quirk (Classic): once a receiver has used all its credit, the broker takes as many messages
        as are in hand off the next grants. So those held back count twice.
        """
        self._ahead.top_up(
            (one.receiver, 2 * (min(one.reasons.total(), _SET_ASIDE_MAX) + one.choice.passed))
            for one in self._subscriptions.values()
            if not one.choice.is_at_its_reach
        )

    def nudge(self) -> None:
        """Make the broker continue after a message that it can't encode.

        Quirk (Classic): a StreamMessage with bytes in it can't be encoded; it stays in its queue,
        and messages behind it are handed over only after the next grant of credit.
        """
        now_s = self._connection.clock.monotonic_s()
        if self._is_native_wire or now_s < self._nudge_at_s:
            return
        self._nudge_at_s = now_s + _NUDGE_EVERY_S
        idle = [
            subscription.receiver
            for subscription in self._subscriptions.values()
            if subscription.receiver.is_open and subscription.receiver.credit > 0
        ]
        for step in (1, -1):
            for receiver in idle:
                # Why: by now it may all be used, and less than none is a very large number.
                if receiver.credit > 0:
                    receiver.flow(step)
            self._connection.pump(0)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that are held back because this wire would damage them."""
        return tuple(
            LeftBehind(
                queue,
                reason,
                count,
                MEANINGS[reason],
                at_least=subscription.reasons.total() >= _SET_ASIDE_MAX,
            )
            for queue, subscription in self._subscriptions.items()
            for reason, count in subscription.reasons.items()
        )

    def close(self) -> None:
        self._ahead.close(subscription.receiver for subscription in self._subscriptions.values())
        self._subscriptions.clear()
