"""A link to Artemis over STOMP that holds a token."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from typing_extensions import override

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.left_behind import StuckToken
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ChosenMessages, selected
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.brokers.stomp_artemis.accepted_before import Suspects
from amqsidecar.brokers.stomp_artemis.intake import StompArtemisIntake
from amqsidecar.brokers.stomp_artemis.look import SLICE_S, StompArtemisLook
from amqsidecar.brokers.stomp_artemis.selection import MADE_BY_OTHERS
from amqsidecar.brokers.stomp_artemis.token import StompTokenWire
from amqsidecar.brokers.stomp_artemis.transaction import Transactions
from amqsidecar.brokers.token import Token
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.engine.crash_points import ACCEPTING
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind


class _Token(TokenQueue[bytes]):
    """The token, which names dead letters that its last holder may not have acknowledged."""

    def __init__(
        self,
        wire: StompTokenWire,
        name: str,
        suspects: Suspects,
        keep_alive: Callable[[], None],
    ) -> None:
        super().__init__(wire, name)
        self._suspects = suspects
        self._keep_alive = keep_alive

    @override
    def take(self, timeout_s: float) -> int | None:
        self._keep_alive()
        had_token = self.held is not None
        number = super().take(timeout_s)
        if self.held is not None and not had_token:
            self._suspects.replace(self.held.accepted)
        return number


class StompArtemisTake(StompArtemisLook):
    """A session of an instance, with its token; see `broker.TakeSession`.

    Attributes:
        _is_settled: all that the token names is gone from its queues for certain.
    """

    def __init__(self, settings: ArtemisLinkSettings, token_queue: str) -> None:
        super().__init__(settings, token_queue)
        self._crash_point = settings.crash_point
        self._read: tuple[Destination, ...] = ()
        self._chosen = ChosenMessages(self._management)
        self._stuck_token = StuckToken(self._management, queue(token_queue))
        self._intake = StompArtemisIntake(self._connection, settings, self._management)
        try:
            self._token_wire = StompTokenWire(settings, self._management, token_queue)
            suspects = self._intake.suspects
            self.token = _Token(self._token_wire, token_queue, suspects, self._keep_alive)
        except BaseException:
            self._intake.close()
            self._management.close()
            raise
        self._is_settled = False
        self._cycle = Transactions(self._token_wire, self.token, settings, self._routes)
        self.ahead = self._cycle.ahead

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect.

        Where all is settled the token names nothing any more, so that other wires can take it. If
        the process dies inside, the queue holds the old token, the new token or both; they mean
        the same.
        """
        # Why this order: the token last, so that an heir finds the dead letters in their queues.
        self._intake.close()
        if self._is_settled:
            with suppress(LinkLost):
                token = self.token.take_for_commit().token
                if token.accepted:
                    self.token.renew(token._replace(accepted={}))
        self._token_wire.close()
        self._management.close()

    @property
    def features(self) -> Features:
        return Features(choosing=self, settings=self)

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        """Return whether a queue holds a message of these ids that is not handed out.

        None where other clients made it: those are found only while the whole queue is read.
        """
        if self._chosen.holds(queue, both(of_redelivery_ids(redelivery_ids), MADE_BY_OTHERS)):
            return None
        return self._chosen.holds_chosen(queue, redelivery_ids)

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._routes.set_intake(queues)
        self._intake.attach([selected(one) for one in queues], prefetch)
        self._read = tuple(queue.destination for queue in queues)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that are not taken out of the attached queues, and why.

        Also the token, while the link waits for it and no other connection can have it.
        """
        found = super().left_behind() + self._intake.left_behind()
        is_next = self.token.is_awaited and self._token_wire.has_guard
        return found + self._stuck_token.look() if is_next else found

    def receive(self, limit: int) -> list[Delivery]:
        intake = self._intake
        self._keep_alive()
        deliveries = intake.receive(limit, self._routes.read_origin)
        intake.look()
        return deliveries

    def wait(self, timeout_s: float) -> None:
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
        self._token_wire.keep_alive()
        self._management.keep_alive()

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Send and exchange the token in one transaction, then accept; durable when it returns.

        If the process dies inside, either nothing happened, or the token is `token` and names the
        accepted dead letters, which the next link to hold the token settles.
        """
        intake = self._intake
        # Why here: without their connection the dead letters are in their queues again.
        self._keep_alive()
        held = intake.in_hand(accepts)
        lineage = self.token.take_for_commit().token.lineage
        self._is_settled = False
        self._cycle.commit(sends, Token(lineage, token, intake.suspects.accepted_with(held)))
        self._crash_point(ACCEPTING)
        self.token.exchanged(token)
        intake.accept(held)
        self._is_settled = intake.suspects.are_settled

    def queues_changed(self) -> bool:
        """Return False: STOMP reports no new queues, so the next look finds them."""
        return False

    def queues_read(self) -> tuple[Destination, ...]:
        return self._read
