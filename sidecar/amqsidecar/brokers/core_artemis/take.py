"""What a link to Artemis over Core can do that reads dead-letter queues."""

from collections.abc import Callable, Sequence

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.chosen import ChosenMessages, selected
from amqsidecar.brokers.artemis.meeting import Meeting
from amqsidecar.brokers.artemis.session import ReadingSession
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.intake import CoreIntake
from amqsidecar.brokers.core_artemis.look import (
    CoreArtemisLook,
    CoreArtemisOpened,
    CoreArtemisSettings,
)
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.brokers.core_artemis.notifications import CoreNotifications
from amqsidecar.brokers.core_artemis.targets import CoreTargets
from amqsidecar.brokers.core_artemis.token import CoreTokenQueue
from amqsidecar.brokers.core_artemis.transaction import CoreCycle, CoreMoves
from amqsidecar.brokers.token_session import TokenSession
from amqsidecar.formats.core import packets
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class _IntakeSession(CoreArtemisLook, ReadingSession[CoreManagement]):
    """Reads dead-letter queues, and has transactions."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: CoreArtemisSettings,
        session: CoreSession,
        token_queue: str = "",
    ) -> None:
        super().__init__(opened, settings, token_queue)
        self._session = session
        self._sessions.append(session)
        self._stuck = StuckMessages(self._management)
        self._notifications = CoreNotifications(self._service)
        self._targets = CoreTargets(self._connection, session, self._clock)
        self._intake = CoreIntake(self._connection, session, self._clock, settings.selector)
        self._chosen = ChosenMessages(self._management, self._intake, self.attach)

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        self._intake.close()
        super().close()

    def _route(self) -> None:
        """Hand each arrived delivery to its owner."""
        deliveries = self._session.deliveries
        while deliveries:
            self._intake.arrived(deliveries.popleft())

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        self._routes.set_intake(queues)
        self._route()
        self._intake.attach([selected(one) for one in queues], prefetch)
        self._connection.flush()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what stays in the attached queues: by AMQP clients, too large, or stuck."""
        queues = self.queues_read()
        made = self._left_amqp_made(queues)
        return super().left_behind() + made + self._intake.left_behind() + self._stuck.look(queues)

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        self._connection.poll()
        self._route()
        deliveries = self._intake.receive(limit, self._routes.read_origin)
        return self._chosen.sort_out(deliveries)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        self._wait_until(lambda: self.has_arrived, timeout_s)

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` would return something."""
        self._route()
        return self._intake.has_arrived

    def held_back(self, queue: Destination) -> int | None:
        """Return how many messages of a queue are in hand and never received; None = unknown yet.

        It is unknown while one arrives in pieces.
        """
        return self._intake.held_back(queue)

    def is_leaving(self, queue: Destination) -> bool:
        """Return whether a consumer of a queue is still open that was detached."""
        return self._intake.is_leaving(queue)

    def queues_changed(self) -> bool:
        """Return whether a look for queues may find others than the last one; forgets it."""
        routes = self._routes
        for address in routes.bindings_changed(self._notifications.take()):
            self._targets.forget(address)
        has_lost = self._intake.has_lost_queues()
        return routes.watch.has_changed() or has_lost

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return self._intake.queues

    def prepare_final(self, destination: Destination) -> str | None:
        """Make sure that a final dead-letter queue exists and will keep what is sent there."""
        if self._management.missing is None:
            return self._routes.prepare_final(destination)
        name = destination.name
        try:
            if not self._service.ask_queue(name).exists:
                self._service.create_queue(name, address=name, routing_type=packets.ANYCAST)
        except CoreRefused as refused:
            if refused.kind != QUEUE_EXISTS:
                return f"queue {name} can't be made: {refused}"
        return None


class CoreArtemisTake(_IntakeSession, TokenSession[CoreTokenQueue, CoreCycle]):
    """A session of an instance, with its token; see `broker.TakeSession`."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: CoreArtemisSettings,
        session: CoreSession,
        token_queue: str,
    ) -> None:
        """Begin to wait for the token.

        Args:
            opened: the connection.
            settings: of the link.
            session: transacted and started.
            token_queue: its name.

        Raises:
            BrokerRefused: the token queue can't be used.
            LinkLost: the connection is gone.
        """
        super().__init__(opened, settings, session, token_queue)
        self._token = CoreTokenQueue(
            self._connection,
            session,
            self._management,
            token_queue,
            self._clock,
            self._route,
            settings.rules_digest,
        )
        self._cycle = CoreCycle(
            connection=self._connection,
            session=session,
            intake=self._intake,
            targets=self._targets,
            target_of=self._target_of,
            clock=self._clock,
            crash_point=settings.crash_point,
            token=self._token,
        )

    def _route(self) -> None:
        deliveries = self._session.deliveries
        while deliveries:
            delivery = deliveries.popleft()
            (self._token if self._token.reads(delivery) else self._intake).arrived(delivery)

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(
            background=self, choosing=self._chosen, settings=self._live_settings, delayed=self
        )

    def release_token(self) -> None:
        """Give the token back and wait for it no more, until `take_token`.

        When it returns, the token is in its queue; that does not count as a failed delivery.

        Raises:
            LinkLost: the connection is gone.
        """
        self._token.release()

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit."""
        self._cycle.while_committing = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, exchange the token in one transaction; durable when it returns."""
        held = self._intake.in_hand(accepts, self._route)
        self._cycle.commit(held, sends, token)
        self._intake.settle(held)


class CoreArtemisMove(_IntakeSession):
    """A session without a token: the broker keeps what waits; see `broker.MoveSession`."""

    def __init__(
        self,
        opened: CoreArtemisOpened,
        settings: CoreArtemisSettings,
        session: CoreSession,
        met: Meeting,
    ) -> None:
        """Begin.

        Args:
            opened: the connection.
            settings: of the link.
            session: transacted and started.
            met: what the broker's clock said.
        """
        super().__init__(opened, settings, session)
        self._met = met
        self._moves = CoreMoves(
            connection=self._connection,
            session=session,
            intake=self._intake,
            targets=self._targets,
            target_of=self._target_of,
            clock=self._clock,
            crash_point=settings.crash_point,
        )

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction; durable when it returns."""
        held = self._intake.in_hand(accepts, self._route)
        self._moves.move(held, sends)
        self._intake.settle(held)

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        return self._met.ahead_ms(self._clock)
