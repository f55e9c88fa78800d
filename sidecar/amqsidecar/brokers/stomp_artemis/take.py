"""What a link to Artemis over STOMP can do that was opened with a token."""

from collections.abc import Sequence

from amqsidecar.broker import (
    Delivery,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages, StuckToken
from amqsidecar.brokers.artemis.token import Token
from amqsidecar.brokers.stomp_artemis.intake import StompArtemisIntake
from amqsidecar.brokers.stomp_artemis.look import SLICE_S, StompArtemisLook, StompArtemisSettings
from amqsidecar.brokers.stomp_artemis.notifications import StompNotifications
from amqsidecar.brokers.stomp_artemis.token import TokenKeeper
from amqsidecar.brokers.stomp_artemis.transaction import Transactions
from amqsidecar.engine.crash_points import ACCEPTING
from amqsidecar.model.destination import Destination, queue


class StompArtemisTake(StompArtemisLook):
    """A session of an instance, with its token; see `broker.TakeSession`."""

    def __init__(self, settings: StompArtemisSettings, token_queue: str) -> None:
        """Connect, log in, and begin to wait for the token.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials, permissions or another product.
        """
        super().__init__(settings, token_queue)
        self._crash_point = settings.crash_point
        self._read: tuple[Destination, ...] = ()
        self._notifications = StompNotifications(settings.connect)
        self._stuck = StuckMessages(self._management)
        self._stuck_token = StuckToken(self._management, queue(token_queue))
        self._intake = StompArtemisIntake(
            self._connection,
            settings.connect,
            self._management,
            self._clock,
            settings.allowed_losses,
        )
        self._keeper = TokenKeeper(settings.connect, self._management, self._clock, token_queue)
        self._transactions = Transactions(
            self._keeper, self._clock, self._crash_point, self._routes.target
        )
        try:
            self._keeper.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        # Why this order: the token last, so that an heir finds the dead letters in their queues.
        self._intake.close()
        self._keeper.close()
        self._management.close()
        self._notifications.close()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        self._routes.set_intake(queues)
        # Why before: a queue that is created meanwhile is reported.
        self._notifications.begin()
        self._intake.attach(queues, prefetch)
        self._read = tuple(queue.destination for queue in queues)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what is not taken out of the attached queues, and why.

        Also the token, while the link waits for it and no other connection can have it.
        """
        found = self._intake.left_behind() + self._stuck.look(self._read)
        return found + self._stuck_token.look() if self._keeper.is_next else found

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        intake = self._intake
        self._keep_alive()
        deliveries = intake.receive(limit, self._routes.read_origin)
        intake.look()
        return deliveries

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        connection, intake = self._connection, self._intake
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._keep_alive()
            left_s = deadline_s - self._clock.monotonic_s()
            if connection.is_woken or intake.has_arrived or left_s <= 0:
                break
            connection.wait(min(left_s, SLICE_S))
            intake.look()
        connection.is_woken = False

    def _keep_alive(self) -> None:
        self._connection.poll()
        self._keeper.keep_alive()
        self._management.keep_alive()

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        keeper = self._keeper
        self._keep_alive()
        had_token = keeper.has_token
        number = keeper.take(timeout_s)
        if number is not None and not had_token:
            self._intake.suspect(keeper.token.accepted)
        return number

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""
        return self._keeper.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns."""
        self._keeper.create(cycle)

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened."""
        self._transactions.begin(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        self._transactions.abandon()

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Send and exchange the token in one transaction, then accept; durable when it returns.

        If the process dies inside, either nothing happened, or the token is `token` and names what
        it accepts, which the next link to hold the token settles.
        """
        keeper, intake = self._keeper, self._intake
        transactions = self._transactions
        # Why here: with the dead letters' connection gone they are in their queues again.
        self._keep_alive()
        held = intake.in_hand(accepts)
        keeper.take_for_commit()
        following = Token(keeper.token.lineage, token, intake.accepted_with(held))
        keeper.is_settled = False
        transactions.commit(sends, following)
        self._crash_point(ACCEPTING)
        keeper.exchanged(token)
        intake.accept(held)
        keeper.is_settled = intake.is_settled

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
        return watch.has_changed()

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return self._read

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link was open, so that all in it is new."""
        name = destination.name.rpartition("::")[2]
        return self._routes.watch.is_newborn(name)
