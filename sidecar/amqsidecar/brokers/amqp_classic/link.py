"""The link to ActiveMQ Classic over AMQP 1.0.

What keeps messages whole here, each measured on the brokers (`wire-facts.md`, `spec-classic.md` 8):

- Before anything is read, a probe finds out what the connector makes of messages.
- No dead letter shows where it died, so only queues are read whose name, or the operator, tells it.
- One transaction is open at a time: two interleaved ones lose messages.
- The container id is the broker's client id: one connection of an instance keeps every other out.
- Nothing is ever rejected, modified or released on a dead-letter queue.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

from amqsidecar.broker import (
    FINAL_SUFFIX,
    REFUSED,
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
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.cycle import AmqpCycle
from amqsidecar.brokers.amqp.senders import SenderPool
from amqsidecar.brokers.amqp.token import AmqpTokenQueue
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_classic.browse import COUNT_MAX, BrowsedQueues, Browser
from amqsidecar.brokers.amqp_classic.foreign_tokens import foreign_tokens
from amqsidecar.brokers.amqp_classic.intake import MEANINGS, NOT_AMQP_MADE, OTHERS, ClassicIntake
from amqsidecar.brokers.amqp_classic.observed import browse
from amqsidecar.brokers.amqp_classic.probe import Transformer, find_transformer
from amqsidecar.brokers.amqp_classic.statistics import AmqpStatistics
from amqsidecar.brokers.amqp_classic.trials import AmqpClassicTrials
from amqsidecar.brokers.amqp_classic.watch import NO_ORIGIN, ClassicWatch, OriginNames
from amqsidecar.brokers.classic.queues import is_wildcard
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
    QueueRefused,
)
from amqsidecar.formats.amqp_classic_message import encode_resend
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters

# Why not that of Artemis: each writes other things on a message, and takes other things off.
MAPPED: Final = "amqp/1.0 classic-jms"
NATIVE: Final = "amqp/1.0 classic-native"
NATIVE_WIRE: Final = (
    "the AMQP connector at {} has transport.transformer={}, so that messages of OpenWire and STOMP "
    "applications would be given back as BytesMessages and nothing is taken: write the transformer "
    "into its uri in activemq.xml, "
    '<transportConnector name="amqp" uri="amqp://0.0.0.0:5672?transport.transformer=jms"/>, or '
    "set intake.producers=amqp where only AMQP applications' messages are to be read, or attach by "
    "openwire://"
)
# Why: Classic pages 200 messages at a time.
_BATCH = 200
# Bound: a queue takes a few round trips and nothing is sent meanwhile; the rest has its turn later.
_COUNTING_S_MAX = 0.5
_PATTERN_WITHOUT_RULES: Final = (
    "{} can't be read over AMQP: where the messages of its queues died follows from individual "
    "dead-letter strategies, and no such rules are given: name the broker's activemq.xml in "
    "policy.source, or each queue in intake.queues and its origin in intake.origin"
)


class AmqpClassicLink:
    """One AMQP connection to one Classic broker; see `Link` of the broker contract."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        names: OriginNames,
        final_suffix: str = FINAL_SUFFIX,
        amqp_producers_only: bool = False,
        allowed_losses: frozenset[Loss] = frozenset(),
        keeps_non_persistent: KeepsNonPersistent = always_keeps,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of a connector that speaks AMQP.
            clock: where the time comes from.
            instance: name of this sidecar, part of the container id: one connection has it.
            names: where the messages of a dead-letter queue died, unless `IntakeQueue.origin` says.
            final_suffix: what final dead-letter queues end with; they are not read.
            amqp_producers_only: read only what AMQP applications have made, where the connector
                keeps such messages whole and no others.
            allowed_losses: what messages may lose; only `Loss.BODY_TYPE` acts.
            keeps_non_persistent: see `classic_mode`.
            crash_point: told where in a transaction we are.
        """
        self.description = self._described("", is_native_wire=amqp_producers_only)
        self._clock = clock
        self._instance = instance
        self._names = names
        self._timeout_s = endpoint.connect_timeout_s
        self._final_suffix = final_suffix
        self._amqp_producers_only = amqp_producers_only
        self._allowed_losses = allowed_losses
        self._keeps_non_persistent = keeps_non_persistent
        self._crash_point = crash_point
        self._connection = AmqpConnection(endpoint, clock)
        self._is_native_wire = False
        self._only_looks = False
        self._browser: Browser | None = None
        self._coordinator: Coordinator | None = None
        self._pool: SenderPool | None = None
        self._token: AmqpTokenQueue | None = None
        self._cycle: AmqpCycle | None = None
        self._intake: ClassicIntake | None = None
        self._watch: ClassicWatch | None = None
        self._named: dict[Destination, Destination | None] = {}
        self._refused: dict[Destination, str] = {}
        self._others: dict[Destination, int] = {}
        self._prefetch = 0
        self._has_news = False
        self._counters: ClassicCounters | None = None

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(preferred_batch=_BATCH)

    def open(self, token_queue: str | None) -> None:
        """Connect, log in, try the connector, and begin to wait for the token."""
        connection = self._connection
        self._connect(f"amqsidecar-{self._instance}", only_looks=token_queue is None)
        told = connection.remote_properties()
        product = told.get("product") or "an unknown product"
        if "artemis" in product.lower() or "activemq" not in product.lower():
            raise BrokerRefused(
                f"{connection.place} is {product}, not ActiveMQ Classic; set broker.kind=auto"
            )
        version = told.get("version", "")
        self.description = self._described(version, is_native_wire=self._amqp_producers_only)
        browser = self._browser = Browser(connection, self._timeout_s)
        if token_queue is None:
            return
        transformer = find_transformer(connection, self._timeout_s)
        self._is_native_wire = transformer is not Transformer.JMS
        if self._is_native_wire and not self._amqp_producers_only:
            raise BrokerRefused(NATIVE_WIRE.format(connection.place, transformer.value))
        self.description = self._described(version, is_native_wire=self._is_native_wire)
        coordinator = self._coordinator = Coordinator(connection, self._crash_point)
        coordinator.prepare(self._timeout_s)
        self._pool = SenderPool(connection, str)
        self._token = AmqpTokenQueue(
            connection,
            BrowsedQueues(browser),
            coordinator,
            token_queue,
            self._clock,
            # Why: then only the first of several readers is handed tokens, until it is gone.
            f"queue://{token_queue}?consumer.exclusive=true",
        )
        self._token.open(self._timeout_s)
        self._cycle = AmqpCycle(
            connection=connection,
            coordinator=coordinator,
            pool=self._pool,
            token=self._token,
            clock=self._clock,
            crash_point=self._crash_point,
            encode=partial(
                encode_resend,
                is_native_wire=self._is_native_wire,
                keeps_non_persistent=self._keeps_non_persistent,
            ),
        )
        self._intake = ClassicIntake(
            connection,
            self._clock,
            self._timeout_s,
            is_native_wire=self._is_native_wire,
            allowed_losses=self._allowed_losses,
        )
        self._watch = ClassicWatch(
            connection, browser, self._names, self._final_suffix, self._timeout_s
        )
        coordinator.declare_ahead()

    @staticmethod
    def _described(version: str, *, is_native_wire: bool) -> BrokerDescription:
        return BrokerDescription(BrokerKind.CLASSIC, version, NATIVE if is_native_wire else MAPPED)

    def _connect(self, container: str, *, only_looks: bool) -> None:
        self._only_looks = only_looks
        # Why: whoever only looks keeps nobody out.
        container = f"{container}-looks-{uuid4().hex[:12]}" if only_looks else container
        try:
            self._connection.open(container)
        except BrokerRefused as refused:
            if "already connected" in str(refused):
                raise LinkLost(
                    f"another connection of this instance is still open: {refused}"
                ) from refused
            raise

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        parts = [
            part
            for part in (self._intake, self._watch, self._token, self._pool, self._coordinator)
            if part is not None
        ]
        for part in parts:
            part.close()
        self._connection.close(lambda: all(part.is_closed for part in parts))

    # Intake

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again.

        Raises:
            QueueRefused: one can't be read, or where its messages died is not known.
            BrokerRefused: that is so for all of them.
        """
        self._connection.check()
        named: dict[Destination, Destination | None] = {}
        wildcards: list[Destination] = []
        without: list[Destination] = []
        for intake in queues:
            destination = intake.destination
            if is_wildcard(destination.name):
                wildcards.append(destination)
                continue
            origin = intake.origin or self._names.origin_of(destination)
            # Why not of final queues: the schedule knows where the messages died that it put there.
            if origin is None and not intake.is_final:
                without.append(destination)
            else:
                named[destination] = origin
        if wildcards and not self._names.explains_patterns:
            raise BrokerRefused(_PATTERN_WITHOUT_RULES.format(wildcards[0]))
        if without:
            refused = {one.name: NO_ORIGIN.format(one, one.name) for one in without}
            if named or wildcards:
                raise QueueRefused.all_of(refused)
            raise BrokerRefused(next(iter(refused.values())))
        self._named, self._prefetch = named, prefetch
        _opened(self._watch).follow(wildcards)
        self._read()
        refused = {
            one.name: f"{one} can't be read: {words}"
            for one, words in self._refused.items()
            if one in named
        }
        if refused:
            raise QueueRefused.all_of(refused)

    def _read(self) -> None:
        watch = _opened(self._watch)
        watch.has_changed = False
        # Why this order: what is said of one queue stands above what a wildcard finds.
        queues = watch.members | self._named
        self._refused = _opened(self._intake).read_from(queues, self._prefetch)

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these queues; for a link that only looks."""
        if self._counters is None:
            statistics = AmqpStatistics(self._connection)
            self._counters = ClassicCounters(statistics.ask, self._shown)
        return self._counters.of(destinations)

    def _shown(self, destination: Destination, at_most: int) -> int:
        return _opened(self._browser).count(destination.name, at_most)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name."""
        return foreign_tokens(self._connection, _opened(self._browser), known, self._timeout_s)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what is not taken out of the attached queues, and why; asks the broker."""
        if self._intake is None:
            # Why: a link that only looks has no intake, and a browse shows all that it can.
            self._connection.check()
            return ()
        intake = self._intake
        refused = (
            LeftBehind(queue, REFUSED, 0, words, at_least=True)
            for queue, words in self._refused.items()
            if queue not in self._named
        )
        found = (*refused, *intake.left_behind(), *_opened(self._watch).left_behind())
        if not self._is_native_wire:
            return found
        others = []
        counts = self._count_others(intake.queues)
        for queue in intake.queues:
            if count := counts.get(queue, 0):
                # Why 200: the broker may not have looked at more of the queue.
                is_more = count >= _BATCH
                meaning = MEANINGS[NOT_AMQP_MADE]
                others.append(LeftBehind(queue, NOT_AMQP_MADE, count, meaning, is_more))
        return (*found, *others)

    def _count_others(self, queues: Sequence[Destination]) -> dict[Destination, int]:
        """Return what each queue holds that AMQP applications have not made, as counted last."""
        wanted = set(queues)
        counts = {queue: count for queue, count in self._others.items() if queue in wanted}
        until_s = self._clock.monotonic_s() + _COUNTING_S_MAX
        # Why in this order: those that were never counted, then those counted longest ago.
        for queue in (*(one for one in queues if one not in counts), *counts):
            count = self._count(queue.name, COUNT_MAX, OTHERS)
            counts.pop(queue, None)
            counts[queue] = count
            if self._clock.monotonic_s() >= until_s:
                break
        self._others = counts
        return counts

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks."""
        self._connection.pump(0)
        watch = _opened(self._watch)
        watch.hear()
        if watch.has_changed:
            self._has_news = True
            self._read()
        return _opened(self._intake).receive(limit)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over."""
        connection, intake, watch = self._connection, self._intake, self._watch
        if intake is None or watch is None:
            if not self._only_looks:
                raise LinkLost("the link is not open")
            connection.run_until(lambda: connection.was_woken, timeout_s)
        elif not connection.run_until(
            lambda: intake.has_arrived or watch.has_arrived or connection.was_woken, timeout_s
        ):
            intake.nudge()
        connection.was_woken = False

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        self._connection.wake()

    def queues_changed(self) -> bool:
        """Return whether queues were found since the last call, or first call."""
        news, self._has_news = self._has_news, False
        return news

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return () if self._intake is None else self._intake.queues

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue that a wildcard stands for held nothing when we began to look."""
        return self._watch is not None and destination in self._watch.newborn

    # Token

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        return _opened(self._token).take(timeout_s)

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not.

        It is certain: the client id keeps every other connection of the instance out, and whatever
        an earlier one left open was rolled back before the broker let us in.
        """
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

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, exchange the token in one transaction; durable when it returns."""
        intake = _opened(self._intake)
        held = intake.in_hand(accepts)
        _opened(self._cycle).commit(held, sends, token)
        intake.settle(held)

    # Destinations

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost; Classic creates every lasting destination on demand."""
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over AMQP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        if not {"*", ">", ",", "?"}.isdisjoint(destination.name):
            return f"{destination} is no name of one destination to Classic"
        return None

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Do nothing: no answer of `route_problem` needs the broker's."""

    def resend_problem(self, destination: Destination) -> str | None:
        """Return None: what else Classic does follows from its rules."""
        return None

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return nothing: Classic does not tell over AMQP which queues are dead-letter queues."""
        return ()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        if not self._only_looks:
            return self._count(queue.destination.name, min(at_most, COUNT_MAX))
        return len(self.browse(queue, min(at_most, COUNT_MAX)))

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return what lies in a dead-letter queue, in order, without taking or changing it."""
        self._connection.check()
        now_ms = self._clock.now_ms()
        return browse(_opened(self._browser), self._names, queue, at_most, now_ms)

    def trials(self) -> AmqpClassicTrials:
        """Return what tries the user's rights over this connection."""
        return AmqpClassicTrials(
            AmqpTrials(self._connection, self._timeout_s),
            _opened(self._browser),
            self.browse,
            partial(find_transformer, self._connection, self._timeout_s),
            amqp_producers_only=self._amqp_producers_only,
            allowed_losses=self._allowed_losses,
        )

    def _count(self, name: str, at_most: int, selector: str = "") -> int:
        self._connection.check()
        return _opened(self._browser).count(name, at_most, selector)

    def prepare_final(self, destination: Destination) -> str | None:
        """Return None: Classic creates a queue on the first send and keeps what is sent there."""
        del destination
        return None


_Part = TypeVar("_Part")


def _opened(part: _Part | None) -> _Part:
    if part is None:
        raise LinkLost("the link is not open")
    return part
