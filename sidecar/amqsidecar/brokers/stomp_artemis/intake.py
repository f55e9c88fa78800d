"""Dead letters in hand over STOMP on Artemis: their queues, arrival and acceptance.

- Never NACK: it is an ACK here. A message not accepted stays in hand until its subscription ends
  (`subscriptions.py`).
- When a connection is lost, only the first message in hand of each subscription counts as a failed
  delivery.
- The broker bounds messages in hand by bytes (`consumer-window-size`), not by number; messages
  beyond the prefetch are kept here and not returned.
- A queue read for the first time is tried on a connection of its own: the broker disconnects a
  user that it refuses.
"""

from collections.abc import Sequence

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.connection.message_sizes import TAKEN_BYTES_MAX
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, call, error_text
from amqsidecar.brokers.stomp_artemis.accepted_before import Suspects
from amqsidecar.brokers.stomp_artemis.core_messages import StompCoreFetcher
from amqsidecar.brokers.stomp_artemis.management import connect
from amqsidecar.brokers.stomp_artemis.selection import ORIGINAL, ListedMessage
from amqsidecar.brokers.stomp_artemis.subscriptions import (
    ArtemisSubscription,
    ArtemisSubscriptions,
    StompDelivery,
)
from amqsidecar.errors import LinkLost, QueueRefused
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.formats.stomp_artemis_message import (
    Arrived,
    has_odd_names,
    is_marked_by_others,
    read_frame,
    read_provenance,
)
from amqsidecar.formats.stomp_frame import ENCODING
from amqsidecar.model.left_behind import LeftBehind, Loss
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.sidecar_names import PROPERTY_ORIGINAL_MESSAGE_ID

# Bound: maximum messages that a selector names; more stay in hand.
_EXCLUDED_MAX = 100
_NATIVE_ID = b"NATIVE_MESSAGE_ID"
_ORIGINAL_ID = PROPERTY_ORIGINAL_MESSAGE_ID.encode()


class StompArtemisIntake:
    """All dead-letter queues of one connection.

    Attributes:
        suspects: messages that a predecessor accepted; they are acknowledged when they come.
    """

    def __init__(
        self,
        connection: StompConnection,
        settings: ArtemisLinkSettings,
        management: ArtemisQuestions,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._prefetch = 0
        self._subscriptions = ArtemisSubscriptions(connection, management)
        self.suspects = Suspects(connection, management)
        self._fetcher = StompCoreFetcher(self._subscriptions, self.suspects, management, settings)
        # Why ended subscriptions, too: a message on its way when one ended comes late. The broker
        # has it back then, and `_sort` drops it.
        connection.is_ours = self._subscriptions.is_ours

    # Which queues

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._connection.poll()
        known = {one.queue for one in self._subscriptions.attached}
        self._prefetch = prefetch
        self._connection.waiting.expect(len(queues), prefetch)
        self._subscriptions.share = max(1, prefetch // max(1, len(queues)))
        tried = {one.destination for one in known}
        for queue in queues:
            if queue.destination not in tried:
                self._try(queue)
        for subscription in self._subscriptions.attached:
            if subscription.queue not in queues:
                self._subscriptions.detach(subscription)
        for queue in queues:
            if queue not in known:
                self._subscriptions.attach(queue)
        self._connection.flush()

    def _try(self, queue: IntakeQueue) -> None:
        trial = connect(self._settings)
        try:
            call(trial, "SUBSCRIBE", self._subscriptions.trial(queue))
            trial.send("UNSUBSCRIBE", [(b"id", b"trial")])
            trial.disconnect(2.0)
        except (FrameRefused, LinkLost) as refused:
            # Why: the ERROR that refuses a subscription does not always name its receipt.
            if isinstance(refused, LinkLost) and not trial.errors:
                raise
            words = error_text(trial.errors[-1]) if trial.errors else str(refused)
            name = queue.destination.name
            raise QueueRefused(name, f"queue {name} can't be read: {words}") from refused
        finally:
            trial.close()

    # Arrival

    @property
    def has_arrived(self) -> bool:
        self._sort()
        return (
            bool(self._subscriptions.buffer) and len(self._subscriptions.returned) < self._prefetch
        )

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        """Return newly arrived messages in order; never blocks.

        It ends early with the message that makes them more than `TAKEN_BYTES_MAX`.
        """
        self._connection.poll()
        self._sort()
        self._connection.flush()
        deliveries: list[Delivery] = []
        returned = self._subscriptions.returned
        room = min(limit, self._prefetch - len(returned))
        left_bytes = TAKEN_BYTES_MAX
        while self._subscriptions.buffer and len(deliveries) < room and left_bytes > 0:
            in_hand = self._subscriptions.take()
            queue = in_hand.subscription.queue
            arrived = in_hand.arrived
            left_bytes -= len(arrived.payload)
            provenance = _read(arrived, queue, read_origin)
            if provenance.redelivery_id is None and in_hand.listed is None:
                unnamed = _without_id(arrived)
                if unnamed is not arrived:
                    arrived, provenance = unnamed, _read(unnamed, queue, read_origin)
            deliveries.append(
                Delivery(in_hand, queue.destination, arrived.message, provenance, ENCODING)
            )
        return deliveries

    def _sort(self) -> None:
        connection = self._connection
        if connection.errors:
            words = error_text(connection.errors.popleft())
            connection.close()
            raise LinkLost(f"the broker ended the connection of the dead letters: {words}")
        while connection.messages:
            frame = connection.next_message()
            subscription = self._subscriptions.find(frame.text(b"subscription"))
            if subscription is None:
                continue
            arrived = read_frame(frame)
            listed = subscription.wanted.get(arrived.number)
            if listed is not None:
                subscription.looks = 0
            if self.suspects.silences(subscription.name, arrived.number, arrived.ack):
                # A cycle before a crash has accepted it, and could not acknowledge it.
                subscription.wanted.pop(arrived.number, None)
            elif self._may_be_returned(subscription, arrived, listed):
                named = arrived if listed is None else _named(arrived, listed)
                self._subscriptions.keep(StompDelivery(named, subscription, listed))

    def _may_be_returned(
        self, subscription: ArtemisSubscription, arrived: Arrived, listed: ListedMessage | None
    ) -> bool:
        """Return whether a message is whole; else it waits until its subscription ends."""
        if listed is not None:
            if self._is_whole(arrived):
                return True
            del subscription.wanted[arrived.number]
            self._fetcher.leave(subscription, listed._replace(loss=Loss.BODY_TYPE.value))
            subscription.has_strays = True
        elif is_marked_by_others(arrived.headers):
            # It has the original of one that is wanted; the next look identifies it.
            subscription.has_strays = True
        elif all(name != _NATIVE_ID for name, _ in arrived.headers):
            return True
        else:
            _exclude(subscription, arrived)
        return False

    def _is_whole(self, arrived: Arrived) -> bool:
        return not has_odd_names(arrived.headers) and (
            arrived.is_bytes
            or (len(arrived.payload) > 0 and b"\0" not in arrived.body)
            or (not len(arrived.payload) and Loss.BODY_TYPE in self._settings.allowed_losses)
        )

    # Acceptance

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[StompDelivery]:
        """Return the handles of these deliveries.

        Raises:
            LinkLost: a delivery is not in hand.
        """
        held = [one.handle for one in deliveries if isinstance(one.handle, StompDelivery)]
        if len(held) < len(deliveries) or not self._subscriptions.returned.issuperset(held):
            raise LinkLost("a delivery is not in hand any more")
        return held

    def accept(self, held: Sequence[StompDelivery]) -> None:
        """Acknowledge these; durable when this returns.

        If the process dies inside, the broker has lost none, some or all of them; the token of the
        cycle names them all.
        """
        self._acknowledge([one.arrived.ack for one in held])
        self._subscriptions.accepted(held)
        if any(one.listed is not None and not one.subscription.wanted for one in held):
            self._fetcher.look_soon()
        self._connection.flush()

    def _acknowledge(self, acks: Sequence[bytes]) -> None:
        if not acks:
            return
        for ack in acks[:-1]:
            self._connection.send("ACK", [(b"id", ack)])
        try:
            self._connection.call("ACK", [(b"id", acks[-1])])
        except FrameRefused as refused:
            raise LinkLost(f"the broker refuses to accept a dead letter: {refused}") from refused
        self._sort()

    # What STOMP did not make

    def look(self) -> None:
        self._fetcher.look()
        self._connection.flush()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        return self._fetcher.left_behind()

    def close(self) -> None:
        """Give all in hand back and disconnect; never raises."""
        try:
            self._subscriptions.close()
            self._connection.disconnect(2.0)
        except LinkLost:
            self._connection.close()


def _named(arrived: Arrived, listed: ListedMessage) -> Arrived:
    """Add the JMSMessageID, which only the management shows."""
    if not listed.message_id:
        return arrived
    arrived = _without_id(arrived)
    headers = [*arrived.headers, (_ORIGINAL_ID, listed.message_id.encode())]
    return arrived._replace(headers=headers)


def _without_id(arrived: Arrived) -> Arrived:
    """Remove the JMSMessageID of the message from which an application copied this one."""
    headers = [header for header in arrived.headers if header[0] != _ORIGINAL_ID]
    return arrived if len(headers) == len(arrived.headers) else arrived._replace(headers=headers)


def _read(arrived: Arrived, queue: IntakeQueue, read_origin: OriginReader) -> Provenance:
    return read_provenance(
        arrived.headers,
        arrived.number,
        queue.destination,
        created_ms=arrived.created_ms,
        expires=queue.expires,
        read_origin=read_origin,
    )


def _exclude(subscription: ArtemisSubscription, arrived: Arrived) -> None:
    """Exclude an AMQP client's message with a forged property from the next subscription."""
    original = dict(arrived.headers).get(ORIGINAL.encode(), b"")
    if original.isdigit() and len(subscription.excluded) < _EXCLUDED_MAX:
        subscription.excluded.append(int(original))
        subscription.has_strays = True
    else:
        subscription.kept += 1
