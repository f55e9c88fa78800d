"""A link to Artemis over Core that takes dead letters."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis import queue_watch
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ChosenMessages, selected
from amqsidecar.brokers.artemis.trials import Meeting
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import NO_CONSUMER, CoreSession
from amqsidecar.brokers.core_artemis.intake import CoreIntake
from amqsidecar.brokers.core_artemis.look import CoreArtemisLook, CoreArtemisOpened
from amqsidecar.brokers.core_artemis.targets import CoreTargets
from amqsidecar.brokers.core_artemis.token import CoreTokenWire
from amqsidecar.brokers.core_artemis.transaction import CoreCycle, CoreMoves, CoreTools
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import CoreMessage, read_core_properties
from amqsidecar.formats.core.primitives import CoreProtocolError
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_WINDOW_BYTES = 1 << 20


class CoreNotifications:
    """The subscription to the broker's notifications over one settled session."""

    def __init__(self, session: CoreSession) -> None:
        """Subscribe, where the user may."""
        self._session = session
        self._consumer = NO_CONSUMER
        name = str(uuid4())
        try:
            session.create_queue(
                name,
                address=queue_watch.NOTIFICATIONS,
                routing_type=packets.MULTICAST,
                temporary=True,
                selector=queue_watch.BINDING_SELECTOR,
            )
            self._consumer = session.create_consumer(name, window_bytes=_WINDOW_BYTES)
        except CoreRefused as refused:
            queue_watch.log_unheard(refused)

    def take(self) -> Iterator[queue_watch.Binding]:
        """Return name and address of each created or deleted queue, and whether it was created."""
        for delivery in self._session.take_from(self._consumer):
            self._session.give_back(delivery)
            if delivery.large_body is not None:
                delivery.large_body.close()
            told = _read(delivery.message)
            if told is not None:
                yield told


def _read(message: CoreMessage) -> queue_watch.Binding | None:
    try:
        found = read_core_properties(message.properties)
        names = ("_AMQ_RoutingName", "_AMQ_Address", "_AMQ_NotifType")
        return queue_watch.read_binding(*(found[name].value for name in names))
    except (CoreProtocolError, KeyError):
        return None


class _IntakeSession(CoreArtemisLook):
    """Reads dead-letter queues, and has transactions."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: ArtemisLinkSettings,
        session: CoreSession,
        token_queue: str = "",
    ) -> None:
        super().__init__(opened, settings, token_queue)
        self._session = session
        self._sessions.append(session)
        self._notifications = CoreNotifications(self._service)
        targets = CoreTargets(session)
        self._targets = targets
        self.intake = CoreIntake(session, settings.selector, self._route)
        self._tools = CoreTools(
            session,
            self.intake,
            targets,
            self._target_of,
            settings.crash_point,
            self._watch_sends,
        )
        self._chosen = ChosenMessages(self._management)

    def close(self) -> None:
        self.intake.close()
        super().close()

    def _route(self) -> None:
        """Hand each arrived delivery to its owner."""
        deliveries = self._session.deliveries
        while deliveries:
            self.intake.arrived(deliveries.popleft())

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._routes.set_intake(queues)
        self._route()
        self.intake.attach([selected(one) for one in queues], prefetch)
        self._connection.flush()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages that stay in attached queues: of AMQP clients, too large, or stuck."""
        made = self._left_amqp_made(self.queues_read())
        return super().left_behind() + made + self.intake.left_behind()

    def receive(self, limit: int) -> list[Delivery]:
        self._connection.poll()
        self._route()
        return self.intake.receive(limit, self._routes.read_origin)

    def wait(self, timeout_s: float) -> None:
        self._wait_until(lambda: self.has_arrived, timeout_s)

    @property
    def has_arrived(self) -> bool:
        self._route()
        return self.intake.has_arrived

    def queues_read(self) -> tuple[Destination, ...]:
        return self.intake.queues

    def queues_changed(self) -> bool:
        routes = self._routes
        for address in routes.bindings_changed(self._notifications.take()):
            self._targets.forget(address)
        has_lost = self.intake.has_lost_queues()
        return routes.watch.has_changed() or has_lost

    def _make_unmanaged(self, destination: Destination) -> str | None:
        name = destination.name
        try:
            if not self._service.ask_queue(name).exists:
                self._service.create_queue(name, address=name, routing_type=packets.ANYCAST)
        except CoreRefused as refused:
            if refused.kind != QUEUE_EXISTS:
                return f"queue {name} can't be made: {refused}"
        return None


class CoreArtemisTake(_IntakeSession):
    """A session of an instance, with its token; see `broker.TakeSession`."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: ArtemisLinkSettings,
        session: CoreSession,
        token_queue: str,
    ) -> None:
        super().__init__(opened, settings, session, token_queue)
        self._token_wire = CoreTokenWire(
            session,
            self._management,
            token_queue,
            self._route,
            settings.rules_digest,
        )
        self.token = TokenQueue(self._token_wire, token_queue)
        self._cycle = CoreCycle(self._tools, self.token, self._token_wire)
        self.ahead = self._cycle.ahead

    def _route(self) -> None:
        deliveries = self._session.deliveries
        while deliveries:
            delivery = deliveries.popleft()
            wire = self._token_wire
            (wire if wire.reads(delivery) else self.intake).arrived(delivery)

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


class CoreArtemisMove(_IntakeSession):
    """A session without a token: the broker keeps waiting messages; see `broker.MoveSession`."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: ArtemisLinkSettings,
        session: CoreSession,
        met: Meeting,
    ) -> None:
        super().__init__(opened, settings, session)
        self._met = met
        self._moves = CoreMoves(self._tools)

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        held = self.intake.in_hand(accepts)
        self._moves.move(held, sends)
        self.intake.settle(held)

    def clock_ahead_ms(self) -> int:
        return self._met.ahead_ms(self._clock)
