"""A session over AMQP on ActiveMQ Classic that only browses."""

from collections.abc import Collection
from functools import cached_property, partial
from itertools import count
from typing import Final

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.parts import AmqpParts
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_classic.browse import COUNT_MAX, Browser
from amqsidecar.brokers.amqp_classic.foreign_tokens import foreign_tokens
from amqsidecar.brokers.amqp_classic.observed import browse
from amqsidecar.brokers.amqp_classic.probe import find_transformer
from amqsidecar.brokers.amqp_classic.settings import AmqpClassicSettings
from amqsidecar.brokers.amqp_classic.statistics import AmqpStatistics
from amqsidecar.brokers.amqp_classic.trials import AmqpClassicTrials
from amqsidecar.brokers.classic.session import ClassicSession
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.classic.subscribers import HEARD_WITHIN_S, TopicSubscribers
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind

# Why not that of Artemis: each writes other things on a message, and takes other things off.
MAPPED: Final = "amqp/1.0 classic-jms"
NATIVE: Final = "amqp/1.0 classic-native"
# Why: Classic pages 200 messages at a time.
BATCH: Final = 200


class AmqpClassicLook(ClassicSession):
    """A session over one connection to one Classic broker; see `broker.LookSession`."""

    def __init__(
        self, connection: AmqpConnection, parts: AmqpParts, settings: AmqpClassicSettings
    ) -> None:
        """Look over a connection that is open.

        Args:
            connection: of a connector that speaks AMQP.
            parts: its parts, which are closed with the session.
            settings: of the link.
        """
        self._connection = connection
        self._parts = parts
        self._settings = settings
        self._clock = settings.clock
        self._timeout_s = settings.timeout_s
        self._numbers = count(1)
        self._names = settings.names
        self._browser = Browser(connection, settings.timeout_s)
        self.description = self._described(is_native_wire=settings.amqp_producers_only)

    def _described(self, *, is_native_wire: bool) -> BrokerDescription:
        version = self._connection.remote_properties().get("version", "")
        encoding = NATIVE if is_native_wire else MAPPED
        return BrokerDescription(BrokerKind.CLASSIC, version, (encoding,))

    @property
    def features(self) -> Features:
        """The optional features of this wire."""
        return Features(preferred_batch=BATCH)

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        self._parts.close()

    @cached_property
    def _counters(self) -> ClassicCounters:
        ask = self._settings.ask_counters or AmqpStatistics(self._connection).ask
        return ClassicCounters(ask, self._shown)

    def _shown(self, destination: Destination, at_most: int) -> int:
        return self._browser.count(destination.name, at_most)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name."""
        return foreign_tokens(self._connection, self._browser, known, self._timeout_s)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return nothing: a browse shows all that it can."""
        self._connection.check()
        return ()

    def wait(self, timeout_s: float) -> None:
        """Block until `wake` was called, or the time is over."""
        connection = self._connection
        connection.run_until(lambda: connection.was_woken, timeout_s)
        connection.was_woken = False

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        self._connection.wake()

    @cached_property
    def _subscribers(self) -> TopicSubscribers:
        return self._settings.subscribers(self._hears)

    def _hears(self, advisories: Destination) -> bool:
        receiver = Receiver(
            self._connection, f"amqsidecar-subscribers-{next(self._numbers)}", str(advisories)
        )
        try:
            self._connection.run_until(lambda: receiver.is_answered, self._timeout_s)
            if receiver.refusal is not None:
                raise RequestRefused(receiver.refusal)
            receiver.flow(1)
            self._connection.run_until(lambda: bool(receiver.arrived), HEARD_WITHIN_S)
            heard = receiver.take_arrived(1)
            for in_hand, _ in heard:
                receiver.accept(in_hand)
            return bool(heard)
        finally:
            receiver.close()
            if self._connection.run_until(lambda: receiver.is_closed, self._timeout_s):
                receiver.forget()

    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost; Classic creates every lasting destination on demand."""
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over AMQP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        return None

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        return len(self.browse(queue, min(at_most, COUNT_MAX)))

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return the messages of a dead-letter queue in order; they stay there unchanged."""
        self._connection.check()
        now_ms = self._clock.now_ms()
        encoding = self.description.encodings[0]
        return browse(self._browser, self._names, queue, at_most, now_ms, encoding)

    def trials(self) -> AmqpClassicTrials:
        """Return the trials of the user's permissions over this connection."""
        return AmqpClassicTrials(
            AmqpTrials(self._connection, self._timeout_s),
            self._browser,
            self.browse,
            partial(find_transformer, self._connection, self._timeout_s),
            amqp_producers_only=self._settings.amqp_producers_only,
            allowed_losses=self._settings.allowed_losses,
        )
