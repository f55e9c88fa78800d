"""A link to Artemis over AMQP that takes dead letters."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from typing_extensions import override

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.cycle import AmqpCycle, AmqpMoves, AmqpTools
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.senders import SenderPool
from amqsidecar.brokers.amqp.token import AmqpTokenWire
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp_artemis.intake import AmqpIntake
from amqsidecar.brokers.amqp_artemis.look import AmqpArtemisLook, AmqpArtemisOpened
from amqsidecar.brokers.artemis import queue_watch
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ChosenMessages, selected
from amqsidecar.brokers.artemis.trials import Meeting
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import BrokerRefused, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_CREDIT = 1000
_WAITING_BYTES_MAX = 16 * 1024 * 1024


class Notifications:
    """The subscription to the broker's notifications of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        """Begin to subscribe; the answer is not waited for."""
        self._receiver = Receiver(
            connection,
            "amqsidecar-notifications",
            queue_watch.NOTIFICATIONS,
            capability="topic",
            selector=queue_watch.BINDING_SELECTOR,
            # Why: one in hand would be a dead letter after a death (see `ArtemisManagement`).
            is_settled=True,
            waiting_bytes_max=_WAITING_BYTES_MAX,
        )
        self._receiver.flow(_CREDIT)
        self._is_refusal_told = False
        connection.parts.append(self)

    def take(self) -> Iterator[queue_watch.Binding]:
        """Return name and address of each created or deleted queue, and whether it was created."""
        receiver = self._receiver
        if receiver.refusal is not None and not self._is_refusal_told:
            self._is_refusal_told = True
            queue_watch.log_unheard(receiver.refusal)
        for in_hand, message in receiver.take_arrived(_CREDIT):
            receiver.accept(in_hand)
            if receiver.is_open:
                receiver.flow(1)
            told = _read(message)
            if told is not None:
                yield told

    def close(self) -> None:
        """Begin to end the subscription."""
        self._receiver.close()

    @property
    def is_closed(self) -> bool:
        return self._receiver.is_closed


def _read(message: bytes) -> queue_watch.Binding | None:
    try:
        pairs = amqp.elements(amqp.split(message).get(amqp.APPLICATION_PROPERTIES, b""))
        found = {
            amqp.scalar(key): amqp.scalar(value)
            for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        }
    except (UndecodableMessage, ValueError):
        return None
    names = ("_AMQ_RoutingName", "_AMQ_Address", "_AMQ_NotifType")
    return queue_watch.read_binding(*(found.get(name) for name in names))


class _IntakeSession(AmqpArtemisLook):
    """Reads dead-letter queues, and has transactions."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: ArtemisLinkSettings,
        token_queue: str = "",
    ) -> None:
        super().__init__(opened, settings, token_queue)
        connection = opened.connection
        self._pool = SenderPool(connection, self._target_of)
        self._notifications = Notifications(connection)
        self.intake = AmqpIntake(connection, self._management, is_own_only=settings.is_own_only)
        self._chosen = ChosenMessages(self._management)

    def _tools(self, coordinator: Coordinator) -> AmqpTools:
        """Return the parts of a transaction."""
        return AmqpTools(coordinator, self._pool, encode_resend, self._watch_sends)

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._routes.set_intake(queues)
        self.intake.attach([selected(one) for one in queues], prefetch)
        # Why wait: until then the broker keeps groups for a consumer that is closing, and does not
        # offer their messages to one that `artemis://` opens over Core.
        self._connection.run_until(lambda: self.intake.is_closed)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages that stay in the attached queues: not convertible to AMQP, or stuck."""
        return super().left_behind() + self.intake.left_behind()

    def receive(self, limit: int) -> list[Delivery]:
        self._connection.pump(0)
        return self.intake.receive(limit, self._routes.read_origin)

    def wait(self, timeout_s: float) -> None:
        ends_s = self._clock.monotonic_s() + timeout_s
        while not self._connection.rest_until(
            lambda: self.has_arrived, min(timeout_s, self.intake.look_in_s())
        ):
            self.intake.look()
            timeout_s = ends_s - self._clock.monotonic_s()
            if timeout_s <= 0:
                return

    @property
    def has_arrived(self) -> bool:
        return self.intake.has_arrived

    def queues_read(self) -> tuple[Destination, ...]:
        return self.intake.queues

    def queues_changed(self) -> bool:
        routes = self._routes
        routes.bindings_changed(self._notifications.take())
        has_lost = self.intake.has_lost_queues
        return routes.watch.has_changed() or has_lost

    def _make_unmanaged(self, destination: Destination) -> str | None:
        sender = self._pool.get(destination)
        self._connection.run_until(lambda: sender.credit > 0 or sender.refusal is not None)
        if sender.credit > 0:
            return None
        return f"queue {destination.name} can't be made: {sender.refusal or 'no answer'}"


class AmqpArtemisTake(_IntakeSession):
    """A session of an instance, with its token; see `broker.TakeSession`."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: ArtemisLinkSettings,
        coordinator: Coordinator,
        token_queue: str,
    ) -> None:
        wire = AmqpTokenWire(coordinator, opened.management, token_queue, settings.rules_digest)
        token = TokenQueue(wire, token_queue)
        super().__init__(opened, settings, token_queue)
        self.token = token
        self._cycle = AmqpCycle(self._tools(coordinator), token, wire)
        self.ahead = self._cycle.ahead
        coordinator.declare_ahead()

    @override
    def _browse_count(self, queue: IntakeQueue, at_most: int) -> int:
        # Why suppressed: who may not browse counts nothing, and may still take.
        with suppress(BrokerRefused):
            return self._browser.count(queue.destination.name, at_most)
        return 0

    @property
    def features(self) -> Features:
        return Features(
            background=self._cycle,
            choosing=self._chosen,
            settings=self,
            delayed=self,
            selects_origins=True,
        )

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        held = self.intake.in_hand(accepts)
        self._cycle.commit(held, sends, token)
        self.intake.settle(held)


class AmqpArtemisMove(_IntakeSession):
    """A session without a token: the broker keeps waiting messages; see `broker.MoveSession`."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: ArtemisLinkSettings,
        coordinator: Coordinator,
        met: Meeting,
    ) -> None:
        super().__init__(opened, settings)
        self._met = met
        self._moves = AmqpMoves(self._tools(coordinator))
        coordinator.declare_ahead()

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        held = self.intake.in_hand(accepts)
        self._moves.move(held, sends)
        self.intake.settle(held)

    def clock_ahead_ms(self) -> int:
        return self._met.ahead_ms(self._clock)
