"""The link to Apache Artemis over STOMP 1.2: exactly once although an ACK knows no transaction.

An ACK in a STOMP transaction acts at once on Artemis and is not undone. So a cycle is:

1. BEGIN, all SENDs, SEND of token k, COMMIT, and its receipt;
2. only then ACK of token k-1 and of every dead letter, and the receipt of the last one.

Token k names the dead letters that cycle k accepts by the numbers that the broker gave them, which
no producer can forge and which stay while they lie in their queue. Whatever ends in between:

- before the commit: the broker undoes the transaction with the connection, and gives token k-1 and
  the dead letters back;
- between the commit and the last ACK (crash point `accepting`): the heir finds tokens k-1 and k,
  removes the first, and acknowledges what k names when it comes again, without handing it over.
  A later token goes on naming what has not come yet, until it is known to be gone;
- a broker that is killed there: commit and ACKs go through one journal in order, and an ACK is
  answered once it is written. What was answered is durable, what was not is named by token k;
- an ACK of cycle k is answered before cycle k+1 is committed, so a token needs no older names.

What remains as a window: a named dead letter that is moved before it comes again (by its expiry, an
operator, or the broker after too many failed deliveries) has a new number, and is a copy there;
and another sidecar that reads the same dead-letter queue doesn't know the names.

Four connections, since the broker ends a connection with each ERROR: the token's, which carries
the transactions, so that the token fences them; that of the dead letters, which therefore stay in
hand when a send is refused; the management's; and one that hears of new queues.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from amqsidecar.broker import (
    FINAL_SUFFIX,
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
    Loss,
    Resend,
)
from amqsidecar.brokers.artemis.counters import queue_counters
from amqsidecar.brokers.artemis.foreign_tokens import foreign_tokens
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages, StuckToken
from amqsidecar.brokers.artemis.token import Token
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis.intake import StompArtemisIntake
from amqsidecar.brokers.stomp_artemis.management import StompManagement
from amqsidecar.brokers.stomp_artemis.notifications import StompNotifications
from amqsidecar.brokers.stomp_artemis.token import TokenKeeper
from amqsidecar.brokers.stomp_artemis.transaction import Transactions
from amqsidecar.brokers.stomp_artemis.trials import StompArtemisTrials
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import ACCEPTING, CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.stomp_frame import ENCODING
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.outcome import Counters
from amqsidecar.model.resend_effect import ResendEffect

# How long one connection is waited for before the others are looked after.
_SLICE_S = 0.5


class StompArtemisLink:
    """Three STOMP connections to one Artemis broker; see `Link` of the broker contract."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_losses: Collection[Loss] = (),
        allowed_effects: Collection[ResendEffect] = (),
        crash_point: CrashPoint = no_crash,
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of an acceptor that speaks STOMP.
            clock: where the time comes from.
            instance: name of this sidecar, part of the address for answers of the management.
            final_suffix: what final dead-letter queues end with; they are not read.
            allowed_losses: what messages may lose that are taken nevertheless.
            allowed_effects: what redeliveries may do besides going to their queue.
            crash_point: told where in a transaction we are.
        """
        self.description = BrokerDescription(BrokerKind.ARTEMIS, "", ENCODING)
        self._endpoint = endpoint
        self._clock = clock
        self._final_suffix = final_suffix
        self._allowed_effects = allowed_effects
        self._allowed = frozenset(allowed_losses)
        self._crash_point = crash_point
        self._management = StompManagement(self._connect, clock, instance)
        self._notifications = StompNotifications(self._connect)
        self._read: tuple[Destination, ...] = ()
        self._connection: StompConnection | None = None
        self._routes: ArtemisRoutes | None = None
        self._intake: StompArtemisIntake | None = None
        self._stuck: StuckMessages | None = None
        self._stuck_token: StuckToken | None = None
        self._keeper: TokenKeeper | None = None
        self._transactions: Transactions | None = None

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(settings=self)

    def _connect(self) -> StompConnection:
        connection = StompConnection(self._endpoint, self._clock)
        connection.open()
        if "artemis" not in connection.server.lower():
            connection.close()
            name = connection.server or "an unknown product"
            raise BrokerRefused(f"{connection.name} is {name}, not Apache Artemis")
        return connection

    def open(self, token_queue: str | None) -> None:
        """Connect, log in, and begin to wait for the token; None = only look."""
        connection = self._connection = self._connect()
        version = connection.server.partition("/")[2].partition(" ")[0]
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, ENCODING)
        self._management.prepare()
        self._routes = ArtemisRoutes(
            self._management,
            self._clock,
            token_queue or "",
            self._final_suffix,
            self._allowed_effects,
        )
        self._stuck = StuckMessages(self._management)
        self._intake = StompArtemisIntake(
            connection, self._connect, self._management, self._clock, self._allowed
        )
        if token_queue is None:
            return
        keeper = TokenKeeper(self._connect, self._management, self._clock, token_queue)
        keeper.open()
        self._keeper = keeper
        self._stuck_token = StuckToken(self._management, queue(token_queue))
        self._transactions = Transactions(
            keeper, self._clock, self._crash_point, self._routes.target
        )

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        # Why this order: the token last, so that an heir finds the dead letters in their queues.
        if self._intake is not None:
            self._intake.close()
        elif self._connection is not None:
            self._connection.close()
        if self._keeper is not None:
            self._keeper.close()
        self._management.close()
        self._notifications.close()

    # Intake

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        _opened(self._keeper)
        _opened(self._routes).set_intake(queues)
        # Why before: a queue that is made meanwhile is told.
        self._notifications.begin()
        _opened(self._intake).attach(queues, prefetch)
        self._read = tuple(queue.destination for queue in queues)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name."""
        return foreign_tokens(self._management, known)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what the link does not take out of the attached queues, and why.

        Also the token, while the link waits for it and no other connection can have it.
        """
        found = _opened(self._intake).left_behind() + _opened(self._stuck).look(self._read)
        if self._stuck_token is None or not _opened(self._keeper).is_next:
            return found
        return found + self._stuck_token.look()

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        intake = _opened(self._intake)
        self._keep_alive()
        deliveries = intake.receive(limit, _opened(self._routes).read_origin)
        intake.look()
        return deliveries

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        connection, intake = _opened(self._connection), _opened(self._intake)
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._keep_alive()
            left_s = deadline_s - self._clock.monotonic_s()
            if connection.is_woken or intake.has_arrived or left_s <= 0:
                break
            connection.wait(min(left_s, _SLICE_S))
            intake.look()
        connection.is_woken = False

    def _keep_alive(self) -> None:
        _opened(self._connection).poll()
        if self._keeper is not None:
            self._keeper.keep_alive()
        self._management.keep_alive()

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        if self._connection is not None:
            self._connection.wake()

    # Token

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        keeper = _opened(self._keeper)
        self._keep_alive()
        had_token = keeper.has_token
        number = keeper.take(timeout_s)
        if number is not None and not had_token:
            _opened(self._intake).suspect(keeper.token.accepted)
        return number

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""
        return _opened(self._keeper).exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns."""
        _opened(self._keeper).create(cycle)

    # Transactions

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened."""
        _opened(self._transactions).begin(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        _opened(self._transactions).abandon()

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Send and exchange the token in one transaction, then accept; durable when it returns.

        If the process dies inside, either nothing happened, or the token is `token` and names what
        it accepts, which the next link to hold the token settles.
        """
        keeper, intake = _opened(self._keeper), _opened(self._intake)
        transactions = _opened(self._transactions)
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

    # Destinations

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send to this destination would get lost, as a sentence; None = it routes."""
        return _opened(self._routes).problem(destination)

    def resend_problem(self, destination: Destination) -> str | None:
        """Return what else a redelivery there does, and what mends it; None = nothing."""
        return _opened(self._routes).resend_problem(destination)

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Ask about many at once, so that `route_problem` knows them for some seconds."""
        _opened(self._routes).ask_ahead(destinations)

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the broker's merged settings of each address, by its names; unset keys are absent.

        Raises:
            BrokerRefused: we may not ask; defaults in place of the answer would be wrong decisions.
        """
        management = self._management
        if management.missing is not None:
            raise BrokerRefused(f"{management.missing}; or name the rules in policy.source")
        questions = [
            ManagementQuestion("broker", "getAddressSettingsAsJSON", (name,)) for name in addresses
        ]
        found: list[Mapping[str, Any]] = []
        for name, answer in zip(addresses, management.ask_all(questions), strict=True):
            if not answer.is_ok or not answer.value:
                raise BrokerRefused(f"the settings of {name} can't be read: {answer.value}")
            found.append(json.loads(answer.value))
        return found

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these destinations, as far as they can be told."""
        return queue_counters(self._management, destinations, self._management.run)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the dead-letter queues that the live broker has.

        Raises:
            DiscoveryRefused: this user may not ask.
        """
        return _opened(self._routes).discover()

    def queues_changed(self) -> bool:
        """Return whether a look for queues may find others than the last one; forgets it."""
        routes = _opened(self._routes)
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
        return _opened(self._routes).watch.is_newborn(name)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages a dead-letter queue holds, counting up to `at_most`.

        Where the broker can't be asked it is `at_most`: so many that they are held as a backlog.
        """
        if self._management.missing is not None:
            return at_most
        name = queue.destination.name.rpartition("::")[2]
        return min(self._management.message_count(name) or 0, at_most)

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Tell that STOMP can't look without taking.

        Raises:
            BrokerRefused: always.
        """
        raise BrokerRefused(
            f"over STOMP Artemis shows no message of {queue.destination.name} without handing it "
            f"out, so {at_most} can't be looked at: use an amqp:// URL for that"
        )

    def trials(self) -> StompArtemisTrials:
        """Return what tries the user's rights, each over a connection of its own."""
        user = self._endpoint.user or "anonymous"
        read_origin = _opened(self._routes).read_origin
        return StompArtemisTrials(self._connect, self._management, user, self._allowed, read_origin)

    def prepare_final(self, destination: Destination) -> str | None:
        """Make sure that a final dead-letter queue exists and will keep what is sent there."""
        if self._management.missing is None:
            return _opened(self._routes).prepare_final(destination)
        # Why not asked: a SEND with a routing type makes the queue, or is refused by name.
        return None


_Part = TypeVar("_Part")


def _opened(part: _Part | None) -> _Part:
    if part is None:
        raise LinkLost("the link is not open")
    return part
