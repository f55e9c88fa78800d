"""What a link to Artemis over AMQP can do that reads dead-letter queues."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from amqsidecar.broker import (
    Delivery,
    Features,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.brokers.amqp.cycle import AmqpCycle, AmqpMoves
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.senders import SenderPool
from amqsidecar.brokers.amqp.token import AmqpTokenQueue
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp_artemis.chosen import AwaitedIds, choices, holds_chosen, selected
from amqsidecar.brokers.amqp_artemis.intake import AmqpIntake
from amqsidecar.brokers.amqp_artemis.look import (
    AmqpArtemisLook,
    AmqpArtemisOpened,
    AmqpArtemisSettings,
)
from amqsidecar.brokers.amqp_artemis.notifications import Notifications
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages
from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.model.destination import Destination


class Meeting(NamedTuple):
    """What the broker's clock said when it took our connection.

    Attributes:
        broker_ms: what it said.
        began_ms: our clock before.
        began_s: our monotonic clock before.
    """

    broker_ms: int
    began_ms: int
    began_s: float


class _IntakeSession(AmqpArtemisLook):
    """Reads dead-letter queues, and has transactions."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: AmqpArtemisSettings,
        token_queue: str = "",
    ) -> None:
        super().__init__(opened, settings, token_queue)
        connection, parts = opened.connection, opened.parts
        self._stuck = StuckMessages(self._management)
        self._pool = parts.add(SenderPool(connection, self._routes.target))
        self._notifications = parts.add(Notifications(connection))
        self._intake = parts.add(
            AmqpIntake(connection, self._management, self._clock, self._timeout_s)
        )

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        self._routes.set_intake(queues)
        self._intake.attach([selected(one) for one in queues], prefetch)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what stays in the attached queues: not to be converted to AMQP, or stuck."""
        stuck = self._stuck.look(self.queues_read())
        return super().left_behind() + self._intake.left_behind() + stuck

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        self._connection.pump(0)
        return self._intake.receive(limit, self._routes.read_origin)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        connection, intake = self._connection, self._intake
        if not connection.run_until(lambda: intake.has_arrived or connection.was_woken, timeout_s):
            intake.look()
        connection.was_woken = False

    def resend_problem(self, destination: Destination) -> str | None:
        """Return what else a redelivery there does, and what mends it; None = nothing."""
        return self._routes.resend_problem(destination)

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Ask about many at once, so that `route_problem` knows them for some seconds."""
        self._routes.ask_ahead(destinations)

    def queues_changed(self) -> bool:
        """Return whether a look for queues may find others than the last one; forgets it."""
        routes = self._routes
        watch = routes.watch
        for name, address, is_added in self._notifications.take():
            watch.bound(name, address, is_added=is_added)
            routes.binding_changed(address)
        has_lost = self._intake.has_lost_queues
        return watch.has_changed() or has_lost

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return self._intake.queues

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link was open, so that all in it is new."""
        name = destination.name.rpartition("::")[2]
        return self._routes.watch.is_newborn(name)

    def prepare_final(self, destination: Destination) -> str | None:
        """Make sure that a final dead-letter queue exists and will keep what is sent there."""
        if self._management.missing is None:
            return self._routes.prepare_final(destination)
        sender = self._pool.get(destination)
        self._connection.run_until(
            lambda: sender.credit > 0 or sender.refusal is not None, self._timeout_s
        )
        if sender.credit > 0:
            return None
        return f"queue {destination.name} can't be made: {sender.refusal or 'no answer'}"


class AmqpArtemisTake(_IntakeSession):
    """A session of an instance, with its token; see `broker.TakeSession`."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: AmqpArtemisSettings,
        coordinator: Coordinator,
        token_queue: str,
    ) -> None:
        """Begin to wait for the token.

        Args:
            opened: the connection.
            settings: of the link.
            coordinator: of its transactions, which is ready.
            token_queue: its name.

        Raises:
            BrokerRefused: the token queue can't be used.
            LinkLost: the connection is gone.
        """
        self._token = opened.parts.add(
            AmqpTokenQueue(
                opened.connection, opened.management, coordinator, token_queue, settings.clock
            )
        )
        super().__init__(opened, settings, token_queue)
        self._chosen: AwaitedIds | None = None
        self._token.open(self._timeout_s)
        self._cycle = AmqpCycle(
            connection=opened.connection,
            coordinator=coordinator,
            pool=self._pool,
            token=self._token,
            clock=self._clock,
            crash_point=settings.crash_point,
            encode=encode_resend,
        )
        coordinator.declare_ahead()

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(background=self, choosing=self, settings=self._live_settings, delayed=self)

    def choose(self, queues: Mapping[Destination, Collection[str]]) -> None:
        """Read from now on only messages of these redelivery ids; in place of `attach`."""
        self._chosen = AwaitedIds(one for ids in queues.values() for one in ids)
        self._intake.detach()
        self.attach(choices(queues), sum(map(len, queues.values())))

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        """Return whether a queue holds a message of these ids that nobody has in hand."""
        return holds_chosen(self._management, queue, redelivery_ids)

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        deliveries = super().receive(limit)
        if self._chosen is None:
            return deliveries
        wanted, others = self._chosen.sort(deliveries)
        self._intake.leave(others)
        return wanted

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        return self._token.take(timeout_s)

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns."""
        self._token.create(cycle)

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened."""
        self._cycle.begin_sends(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        self._cycle.abandon_sends()

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit."""
        self._cycle.while_committing = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, exchange the token in one transaction; durable when it returns."""
        intake = self._intake
        held = intake.in_hand(accepts)
        self._cycle.commit(held, sends, token)
        intake.settle(held)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait in a dead-letter queue, but no more than `at_most`."""
        if self._management.missing is None:
            return super().count(queue, at_most)
        return self._browse_count(queue, at_most)

    def _browse_count(self, queue: IntakeQueue, at_most: int) -> int:
        self._browse_number += 1
        browser = Receiver(
            self._connection,
            f"amqsidecar-browse-{self._browse_number}",
            queue.destination.name,
            is_browsing=True,
        )
        counted = 0
        try:
            while counted < at_most:
                asked = min(100, at_most - counted)
                browser.drain(asked)
                self._connection.run_until(
                    lambda: browser.is_drained or browser.refusal, self._timeout_s
                )
                seen = browser.take_arrived(asked)
                for in_hand, _ in seen:
                    browser.accept(in_hand)
                counted += len(seen)
                if len(seen) < asked:
                    break
        finally:
            browser.end(self._timeout_s)
        return counted


class AmqpArtemisMove(_IntakeSession):
    """A session without a token: the broker keeps what waits; see `broker.MoveSession`."""

    def __init__(
        self,
        opened: AmqpArtemisOpened,
        settings: AmqpArtemisSettings,
        coordinator: Coordinator,
        met: Meeting,
    ) -> None:
        """Begin.

        Args:
            opened: the connection.
            settings: of the link.
            coordinator: of its transactions, which is ready.
            met: what the broker's clock said.
        """
        super().__init__(opened, settings)
        self._met = met
        self._moves = AmqpMoves(
            connection=opened.connection,
            coordinator=coordinator,
            pool=self._pool,
            clock=self._clock,
            crash_point=settings.crash_point,
            encode=encode_resend,
        )
        coordinator.declare_ahead()

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction; durable when it returns."""
        intake = self._intake
        held = intake.in_hand(accepts)
        self._moves.move(held, sends)
        intake.settle(held)

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        broker_ms, began_ms, began_s = self._met
        now_ms = self._clock.now_ms()
        # Why the longer: our clock may have been set back, or the machine may have slept.
        passed_ms = max(now_ms - began_ms, int((self._clock.monotonic_s() - began_s) * 1000))
        # Why at most: the broker took our connection some time after we began.
        return broker_ms + passed_ms - now_ms
