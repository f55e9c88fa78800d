"""The link to Apache Artemis over AMQP 1.0.

What keeps messages whole here, each measured on the broker (`wire-facts.md`, `spec-artemis.md`):

- Deliveries are accepted under the transaction but settled only after the commit: after an abort
  they are still in hand, and can be accepted by the next transaction.
- Accepts, that of the token too, are sent only after every send was taken: each transaction that
  fails with accepts in it counts as a failed delivery of them, and ten destroy the origin.
- The discharge is sent only after that, for it overtakes sends that wait for credit.
- Links are closed before the connection: what is in hand then goes back uncounted.
- Nothing is ever rejected, modified or released on a dead-letter queue.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar
from uuid import uuid4

from amqsidecar.broker import (
    FINAL_SUFFIX,
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.cycle import AmqpCycle
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.senders import SenderPool
from amqsidecar.brokers.amqp.token import AmqpTokenQueue
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_artemis.browse import browse_convertible
from amqsidecar.brokers.amqp_artemis.chosen import AwaitedIds, choices, holds_chosen, selected
from amqsidecar.brokers.amqp_artemis.intake import AmqpIntake
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.amqp_artemis.notifications import Notifications
from amqsidecar.brokers.amqp_artemis.trials import ArtemisTrials
from amqsidecar.brokers.artemis.counters import queue_counters
from amqsidecar.brokers.artemis.foreign_tokens import foreign_tokens
from amqsidecar.brokers.artemis.listing import list_messages
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.brokers.artemis.schedule import ArtemisSchedule
from amqsidecar.brokers.artemis.stuck_messages import StuckMessages
from amqsidecar.brokers.artemis.trials import ArtemisAnswers
from amqsidecar.brokers.artemis.waiting_places import WaitingPlaces
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters
from amqsidecar.model.resend_effect import ResendEffect

ENCODING: Final = "amqp/1.0"


class AmqpArtemisLink:
    """One AMQP connection to one Artemis broker; see `Link` of the broker contract."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_effects: Collection[ResendEffect] = (),
        crash_point: CrashPoint = no_crash,
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of an acceptor that speaks AMQP.
            clock: where the time comes from.
            instance: name of this sidecar, part of the unique container id.
            final_suffix: what final dead-letter queues end with; they are not read.
            allowed_effects: what redeliveries may do besides going to their queue.
            crash_point: told where in a transaction we are.
        """
        self.description = BrokerDescription(BrokerKind.ARTEMIS, "", ENCODING)
        self._clock = clock
        self._instance = instance
        self._client_id = f"amqsidecar-{instance}-{uuid4().hex[:12]}"
        self._timeout_s = endpoint.connect_timeout_s
        self._final_suffix = final_suffix
        self._allowed_effects = allowed_effects
        self._crash_point = crash_point
        self._connection = AmqpConnection(endpoint, clock)
        self._management: ArtemisManagement | None = None
        self._routes: ArtemisRoutes | None = None
        self._coordinator: Coordinator | None = None
        self._pool: SenderPool | None = None
        self._token: AmqpTokenQueue | None = None
        self._intake: AmqpIntake | None = None
        self._stuck: StuckMessages | None = None
        self._notifications: Notifications | None = None
        self._browse_number = 0
        self._seen_in_part: dict[IntakeQueue, str] = {}
        self._cycle: AmqpCycle | None = None
        self._waiting_places: WaitingPlaces | None = None
        self._met: tuple[int, int, float] | None = None
        self._chosen: AwaitedIds | None = None

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(background=self, choosing=self, settings=self, delayed=self)

    def open(self, token_queue: str | None) -> None:
        """Connect, log in, prepare transactions and begin to wait for the token; None = look."""
        self._open(token_queue, has_transactions=token_queue is not None)

    def open_to_move(self) -> None:
        """Connect, log in and prepare transactions, without a token; in place of `open`."""
        began_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
        self._open(None, has_transactions=True)
        management = _opened(self._management)
        broker_ms = ArtemisAnswers(management).connected_ms(self._client_id)
        if broker_ms is None:
            reason = management.missing or "it does not report its time"
            raise BrokerRefused(
                "with store.url broker: the broker must report its time, and settings of queues "
                f"with waiting messages: {reason}"
            )
        self._met = (broker_ms, began_ms, began_s)

    def _open(self, token_queue: str | None, *, has_transactions: bool) -> None:
        connection = self._connection
        connection.open(self._client_id)
        told = connection.remote_properties()
        if "artemis" not in told.get("product", "").lower():
            product = told.get("product") or "an unknown product"
            raise BrokerRefused(
                f"{connection.place} is {product}, not Apache Artemis; for ActiveMQ Classic use an "
                "openwire:// URL"
            )
        self.description = BrokerDescription(BrokerKind.ARTEMIS, told.get("version", ""), ENCODING)
        if has_transactions:
            self._coordinator = Coordinator(connection, self._crash_point)
        self._management = ArtemisManagement(connection)
        if self._coordinator is not None:
            self._coordinator.prepare(self._timeout_s)
        self._management.prepare(self._timeout_s)
        self._routes = ArtemisRoutes(
            self._management,
            self._clock,
            token_queue or "",
            self._final_suffix,
            self._allowed_effects,
        )
        self._waiting_places = WaitingPlaces(self._management, self._clock)
        self._stuck = StuckMessages(self._management)
        self._intake = AmqpIntake(connection, self._management, self._clock, self._timeout_s)
        if self._coordinator is None:
            return
        self._notifications = Notifications(connection)
        self._pool = SenderPool(connection, self._routes.target)
        if token_queue is not None:
            self._token = AmqpTokenQueue(
                connection, self._management, self._coordinator, token_queue, self._clock
            )
            self._token.open(self._timeout_s)
        self._cycle = AmqpCycle(
            connection=connection,
            coordinator=self._coordinator,
            pool=self._pool,
            token=self._token,
            clock=self._clock,
            crash_point=self._crash_point,
            encode=encode_resend,
        )
        self._coordinator.declare_ahead()

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        parts = [
            part
            for part in (
                self._intake,
                self._notifications,
                self._token,
                self._pool,
                self._management,
                self._coordinator,
            )
            if part is not None
        ]
        for part in parts:
            part.close()
        self._connection.close(lambda: all(part.is_closed for part in parts))

    # Intake

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again."""
        _opened(self._cycle)
        _opened(self._routes).set_intake(queues)
        _opened(self._intake).attach([selected(one) for one in queues], prefetch)

    def choose(self, queues: Mapping[Destination, Collection[str]]) -> None:
        """Read from now on only messages of these redelivery ids; in place of `attach`."""
        self._chosen = AwaitedIds(one for ids in queues.values() for one in ids)
        _opened(self._intake).detach()
        self.attach(choices(queues), sum(map(len, queues.values())))

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        """Return whether a queue holds a message of these ids that nobody has in hand."""
        return holds_chosen(_opened(self._management), queue, redelivery_ids)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name."""
        return foreign_tokens(_opened(self._management), known)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what stays in the attached queues: not to be converted to AMQP, or stuck."""
        not_seen = tuple(
            LeftBehind(
                queue.destination,
                "not_listed",
                0,
                f"what Core and OpenWire clients have made is not looked at: {reason}",
                at_least=True,
            )
            for queue, reason in self._seen_in_part.items()
        )
        stuck = _opened(self._stuck).look(self.queues_read())
        return not_seen + _opened(self._intake).left_behind() + stuck

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        self._connection.pump(0)
        deliveries = _opened(self._intake).receive(limit, _opened(self._routes).read_origin)
        if self._chosen is None:
            return deliveries
        wanted, others = self._chosen.sort(deliveries)
        _opened(self._intake).leave(others)
        return wanted

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        connection, intake = self._connection, _opened(self._intake)
        if not connection.run_until(lambda: intake.has_arrived or connection.was_woken, timeout_s):
            intake.look()
        connection.was_woken = False

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        self._connection.wake()

    # Token

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        return _opened(self._token).take(timeout_s)

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""
        return _opened(self._token).exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns."""
        _opened(self._token).create(cycle)

    # Transactions

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened."""
        _opened(self._cycle).begin_sends(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        if self._cycle is not None:
            self._cycle.abandon_sends()

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit."""
        _opened(self._cycle).while_committing = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, exchange the token in one transaction; durable when it returns."""
        intake = _opened(self._intake)
        held = intake.in_hand(accepts)
        _opened(self._cycle).commit(held, sends, token)
        intake.settle(held)

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction; durable when it returns."""
        intake = _opened(self._intake)
        held = intake.in_hand(accepts)
        _opened(self._cycle).move(held, sends)
        intake.settle(held)

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

    def waiting_problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        return _opened(self._waiting_places).problem(destination)

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        broker_ms, began_ms, began_s = _opened(self._met)
        now_ms = self._clock.now_ms()
        # Why the longer: our clock may have been set back, or the machine may have slept.
        passed_ms = max(now_ms - began_ms, int((self._clock.monotonic_s() - began_s) * 1000))
        # Why at most: the broker took our connection some time after we began.
        return broker_ms + passed_ms - now_ms

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the broker's merged settings of each address, by its names; unset keys are absent.

        Raises:
            BrokerRefused: we may not ask; defaults in place of the answer would be wrong decisions.
        """
        management = _opened(self._management)
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
        return queue_counters(_opened(self._management), destinations, self._client_id)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the dead-letter queues that the live broker has; empty where it can't tell."""
        return _opened(self._routes).discover()

    def queues_changed(self) -> bool:
        """Return whether a look for queues may find others than the last one; forgets it."""
        routes = _opened(self._routes)
        watch = routes.watch
        for name, address, is_added in _opened(self._notifications).take():
            watch.bound(name, address, is_added=is_added)
            routes.binding_changed(address)
        has_lost = _opened(self._intake).has_lost_queues
        return watch.has_changed() or has_lost

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return _opened(self._intake).queues

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link was open, so that all in it is new."""
        name = destination.name.rpartition("::")[2]
        return _opened(self._routes).watch.is_newborn(name)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait in a dead-letter queue, but no more than `at_most`."""
        management = _opened(self._management)
        name = queue.destination.name
        if management.missing is None:
            return min(management.message_count(name.split("::")[-1]) or 0, at_most)
        if self._token is None:
            # Why: a link that only looks must not make copies (`amqp_browse`).
            return len(self.browse(queue, at_most))
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

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return what lies in a dead-letter queue: told without bodies, or browsed in part.

        What the broker would have to convert is not browsed, see `amqp_browse`; `left_behind`
        tells of it.

        Raises:
            BrokerRefused: the user may not browse it.
            LinkLost: the connection is gone.
        """
        routes, management = _opened(self._routes), _opened(self._management)
        routes.note_intake(queue)
        listed = list_messages(management, queue, at_most, routes.read_origin)
        if listed is not None:
            self._seen_in_part.pop(queue, None)
            return listed
        self._seen_in_part[queue] = management.missing or f"it holds more than {at_most} messages"
        self._browse_number += 1
        name = f"amqsidecar-browse-{self._browse_number}"
        return browse_convertible(
            self._connection, name, queue, at_most, routes.read_origin, self._timeout_s
        )

    def schedule(self) -> ArtemisSchedule:
        """Return what waits in the broker, for the time of this connection."""
        return ArtemisSchedule(_opened(self._management), self._instance)

    def trials(self) -> ArtemisTrials:
        """Return what tries the user's rights over this connection."""
        tried = AmqpTrials(self._connection, self._timeout_s)
        return ArtemisTrials(tried, _opened(self._management))

    def prepare_final(self, destination: Destination) -> str | None:
        """Make sure that a final dead-letter queue exists and will keep what is sent there."""
        if _opened(self._management).missing is None:
            return _opened(self._routes).prepare_final(destination)
        sender = _opened(self._pool).get(destination)
        self._connection.run_until(
            lambda: sender.credit > 0 or sender.refusal is not None, self._timeout_s
        )
        if sender.credit > 0:
            return None
        return f"queue {destination.name} can't be made: {sender.refusal or 'no answer'}"


_Part = TypeVar("_Part")


def _opened(part: _Part | None) -> _Part:
    if part is None:
        raise LinkLost("the link is not open")
    return part
