"""What a link to Artemis over STOMP can do that was opened with a token."""

from collections.abc import Sequence

from amqsidecar.broker import Delivery, IntakeQueue, Resend
from amqsidecar.brokers.artemis.session import ReadingSession
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages, StuckToken
from amqsidecar.brokers.artemis.token import Token
from amqsidecar.brokers.stomp_artemis.intake import StompArtemisIntake
from amqsidecar.brokers.stomp_artemis.look import SLICE_S, StompArtemisLook
from amqsidecar.brokers.stomp_artemis.management import StompManagement
from amqsidecar.brokers.stomp_artemis.notifications import StompNotifications
from amqsidecar.brokers.stomp_artemis.settings import StompArtemisSettings
from amqsidecar.brokers.stomp_artemis.token import TokenKeeper
from amqsidecar.brokers.stomp_artemis.transaction import Transactions
from amqsidecar.brokers.token_session import TokenSession
from amqsidecar.engine.crash_points import ACCEPTING
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind


class StompArtemisTake(
    StompArtemisLook, ReadingSession[StompManagement], TokenSession[TokenKeeper, Transactions]
):
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
        try:
            self._token = TokenKeeper(
                settings.connect, self._management, self._clock, token_queue, settings.rules_digest
            )
        except BaseException:
            self._intake.close()
            self._management.close()
            raise
        self._cycle = Transactions(self._token, self._clock, self._crash_point, self._target_of)

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        # Why this order: the token last, so that an heir finds the dead letters in their queues.
        self._intake.close()
        self._token.close()
        self._management.close()
        self._notifications.close()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        self._routes.set_intake(queues)
        # Why first: a queue that is created meanwhile is reported.
        self._notifications.begin()
        self._intake.attach(queues, prefetch)
        self._read = tuple(queue.destination for queue in queues)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what is not taken out of the attached queues, and why.

        Also the token, while the link waits for it and no other connection can have it.
        """
        found = self._intake.left_behind() + self._stuck.look(self._read)
        return found + self._stuck_token.look() if self._token.is_next else found

    def receive(self, limit: int) -> list[Delivery]:
        """Return newly arrived messages in order; never blocks."""
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
        self._token.keep_alive()
        self._management.keep_alive()

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        keeper = self._token
        self._keep_alive()
        had_token = keeper.has_token
        number = keeper.take(timeout_s)
        if number is not None and not had_token:
            self._intake.suspect(keeper.token.accepted)
        return number

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Send and exchange the token in one transaction, then accept; durable when it returns.

        If the process dies inside, either nothing happened, or the token is `token` and names what
        it accepts, which the next link to hold the token settles.
        """
        keeper, intake = self._token, self._intake
        # Why here: without their connection the dead letters are in their queues again.
        self._keep_alive()
        held = intake.in_hand(accepts)
        keeper.take_for_commit()
        following = Token(keeper.token.lineage, token, intake.accepted_with(held))
        keeper.is_settled = False
        self._cycle.commit(sends, following)
        self._crash_point(ACCEPTING)
        keeper.exchanged(token)
        intake.accept(held)
        keeper.is_settled = intake.is_settled

    def queues_changed(self) -> bool:
        """Return whether discovery may find other queues than last time, once."""
        self._routes.bindings_changed(self._notifications.take())
        return self._routes.watch.has_changed()

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return self._read
