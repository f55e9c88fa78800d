"""A session over AMQP on ActiveMQ Classic with a token."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.amqp.browser import Browser
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.cycle import AmqpCycle, AmqpTools
from amqsidecar.brokers.amqp.senders import SenderPool
from amqsidecar.brokers.amqp.token import AmqpTokenWire
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp_classic.intake import MEANINGS, NOT_AMQP_MADE, OTHERS, ClassicIntake
from amqsidecar.brokers.amqp_classic.look import BATCH, AmqpClassicLook
from amqsidecar.brokers.amqp_classic.probe import Transformer, find_transformer
from amqsidecar.brokers.amqp_classic.watch import NO_ORIGIN, ClassicWatch
from amqsidecar.brokers.classic.choice import ClassicChoices, chosen_ids
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import COUNT_MAX, is_wildcard
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import (
    BrokerRefused,
    QueueRefused,
)
from amqsidecar.formats.amqp_classic_message import encode_resend
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import REFUSED, LeftBehind

NATIVE_WIRE: Final = (
    "the AMQP connector at {} has transport.transformer={}, so that messages of OpenWire and STOMP "
    "applications would be given back as BytesMessages and nothing is taken: write the transformer "
    "into its uri in activemq.xml, "
    '<transportConnector name="amqp" uri="amqp://0.0.0.0:5672?transport.transformer=jms"/>, or '
    "set intake.producers=amqp where only AMQP applications' messages are to be read, or attach by "
    "openwire://"
)
# Bound: a queue takes a few round trips and nothing is sent meanwhile; the rest has its turn later.
_COUNTING_S_MAX = 0.5
_PATTERN_WITHOUT_RULES: Final = (
    "{} can't be read over AMQP: where the messages of its queues died follows from individual "
    "dead-letter strategies, and no such rules are given: name the broker's activemq.xml in "
    "policy.source, or each queue in intake.queues and its origin in intake.origin"
)


class BrowsedQueues:
    """Looks into a token queue by browsing, since Classic answers no questions over AMQP."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def make_token_queue(self, name: str) -> None:
        """Do nothing: the broker makes a queue at the first attach."""

    def has_token(self, queue: str) -> bool:
        return self._browser.count(f"queue://{queue}", 1) > 0


class AmqpClassicTake(AmqpClassicLook):
    """A session over the only connection of an instance; see `broker.TakeSession`.

    `token.exists` is certain: the client id keeps every other connection of the instance out, and
    the broker rolled back an earlier connection's transactions before it accepted this connection.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        settings: ClassicLinkSettings,
        token_queue: str,
    ) -> None:
        """Try the connector, and begin to wait for the token.

        Raises:
            BrokerRefused: the connector damages messages, or the token queue can't be used.
        """
        super().__init__(connection, settings)
        self._named: dict[Destination, Destination | None] = {}
        self._refused: dict[Destination, str] = {}
        self._others: dict[Destination, int] = {}
        self._prefetch = 0
        self._has_news = False
        transformer = find_transformer(connection)
        self._is_native_wire = transformer is not Transformer.JMS
        if self._is_native_wire and not settings.amqp_producers_only:
            raise BrokerRefused(NATIVE_WIRE.format(connection.place, transformer.value))
        self.description = self._described(is_native_wire=self._is_native_wire)
        coordinator = Coordinator(connection, settings.crash_point)
        pool = SenderPool(connection, str)
        wire = AmqpTokenWire(
            coordinator,
            BrowsedQueues(self._browser),
            token_queue,
            settings.rules_digest,
            # Why: then only the first of several readers is handed tokens, until it is gone.
            f"queue://{token_queue}?consumer.exclusive=true",
        )
        self.token = TokenQueue(wire, token_queue)
        encode = partial(
            encode_resend,
            is_native_wire=self._is_native_wire,
            keeps_non_persistent=settings.keeps_non_persistent,
        )
        tools = AmqpTools(coordinator, pool, encode)
        self._cycle = AmqpCycle(tools, self.token, wire)
        self.ahead = self._cycle.ahead
        self._watch = ClassicWatch(self._browser, self._names, settings.final_suffix)
        self._intake = ClassicIntake(
            connection,
            self.description.encodings[0],
            is_native_wire=self._is_native_wire,
            allowed_losses=settings.allowed_losses,
        )
        chosen = ClassicChoices(self._intake.reading, self.queue_counters)
        self.features = Features(preferred_batch=BATCH, choosing=chosen)
        coordinator.declare_ahead()

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
        self._intake.chosen = chosen_ids(queues)
        self._watch.follow(wildcards)
        self._read()
        refused = {
            one.name: f"{one} can't be read: {words}"
            for one, words in self._refused.items()
            if one in named
        }
        if refused:
            raise QueueRefused.all_of(refused)

    def _read(self) -> None:
        watch = self._watch
        watch.has_changed = False
        # Why this order: a named queue overrides a queue that a wildcard finds.
        queues = watch.members | self._named
        self._refused = self._intake.read_from(queues, self._prefetch)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages that are left in the attached queues, and why; asks the broker."""
        intake = self._intake
        refused = (
            LeftBehind(queue, REFUSED, 0, words, at_least=True)
            for queue, words in self._refused.items()
            if queue not in self._named
        )
        found = (*refused, *intake.left_behind(), *self._watch.left_behind())
        if not self._is_native_wire:
            return found
        others = []
        counts = self._count_others(intake.queues)
        for queue in intake.queues:
            if count := counts.get(queue, 0):
                # Why 200: the broker may not have looked at more of the queue.
                is_more = count >= BATCH
                meaning = MEANINGS[NOT_AMQP_MADE]
                others.append(LeftBehind(queue, NOT_AMQP_MADE, count, meaning, is_more))
        return (*found, *others)

    def _count_others(self, queues: Sequence[Destination]) -> dict[Destination, int]:
        """Return the last counts by queue of messages that AMQP applications have not made."""
        wanted = set(queues)
        counts = {queue: count for queue, count in self._others.items() if queue in wanted}
        until_s = self._clock.monotonic_s() + _COUNTING_S_MAX
        # Why in this order: first queues never counted, then queues counted longest ago.
        for queue in (*(one for one in queues if one not in counts), *counts):
            count = self._count(queue, COUNT_MAX, OTHERS)
            counts.pop(queue, None)
            counts[queue] = count
            if self._clock.monotonic_s() >= until_s:
                break
        self._others = counts
        return counts

    def receive(self, limit: int) -> list[Delivery]:
        self._connection.pump(0)
        watch = self._watch
        watch.hear()
        if watch.has_changed:
            self._has_news = True
            self._read()
        return self._intake.receive(limit)

    def wait(self, timeout_s: float) -> None:
        connection, intake, watch = self._connection, self._intake, self._watch
        if not connection.run_until(
            lambda: intake.has_arrived or watch.has_arrived or connection.was_woken, timeout_s
        ):
            intake.nudge()
        connection.was_woken = False

    def queues_changed(self) -> bool:
        """Return whether queues were found since the last call, or first call."""
        news, self._has_news = self._has_news, False
        return news

    def queues_read(self) -> tuple[Destination, ...]:
        return self._intake.queues

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue that a wildcard matches was empty at the first look."""
        return destination in self._watch.newborn

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        intake = self._intake
        held = intake.in_hand(accepts)
        self._cycle.commit(held, sends, token)
        intake.settle(held)

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        return self._count(queue.destination, min(at_most, COUNT_MAX))

    def _count(self, queue: Destination, at_most: int, selector: str = "") -> int:
        self._connection.check()
        return self._browser.count(str(queue), at_most, selector)
