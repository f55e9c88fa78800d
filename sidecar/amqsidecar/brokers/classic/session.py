"""The parts of sessions on Classic that its wires have in common."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from amqsidecar.broker import Features, IntakeQueue, Resend
from amqsidecar.brokers.classic.consumers import ClassicConsumers, Hear
from amqsidecar.brokers.classic.foreign_tokens import BrowsedToken, find_foreign_tokens
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import MENDS_ADVISORIES, ClassicQueues, is_wildcard
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.classic.wildcards import listed
from amqsidecar.brokers.connection.refusal import RequestRefused, raised_as
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination, DestinationKind, topic
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.send_terms import ROUTES, ResendEffect, SendTerms
from amqsidecar.policy.destination_map import DestinationMap
from amqsidecar.policy.selector import UNKNOWN, PropertyOf

_KEEP_S = 5.0
_TOPICS = "ActiveMQ.Advisory.Consumer.Topic."
_QUEUES = "ActiveMQ.Advisory.Consumer.Queue."
_CURE = f"{MENDS_ADVISORIES.partition(', or name')[0]}, or {ResendEffect.DROP.advice}"


class TopicSubscribers:
    """Whether topics have subscribers, kept for some seconds: without any, Classic drops a message.

    The broker's advisories name the consumers that are connected. A durable subscription whose
    consumer is away is not among them, though the broker keeps messages for it; the broker's
    counters have it.

    Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (a new consumer hears of all consumers),
    VirtualTopicInterceptor.send, Topic.addSubscription (counts durable subscriptions until they
    end).
    """

    def __init__(
        self, settings: ClassicLinkSettings, hear: Hear, counters: ClassicCounters
    ) -> None:
        self._clock = settings.clock
        virtual_topics = settings.virtual_topics
        self._virtual = DestinationMap([(one.destinations, one) for one in virtual_topics])
        self._hear = hear
        self._counters = counters
        self._demands = settings.demands_subscribers
        self._until_s: dict[Destination, float] = {}

    def problem(self, destination: Destination) -> str | None:
        """Return why a message for a topic would get lost, and the cure; None = someone gets it."""
        if not self._demands or destination.kind is not DestinationKind.TOPIC:
            return None
        now_s = self._clock.monotonic_s()
        if now_s < self._until_s.get(destination, 0.0):
            return None
        try:
            has_any = any(self._hear(one, 1) for one in self._advisories(destination.name))
            count = None if has_any else self._counters.consumers(destination)
        except (RequestRefused, BrokerRefused) as cause:
            return f"whether {destination} has subscribers can't be asked: {cause}; {_CURE}"
        if has_any or count:
            self._until_s = {one: at for one, at in self._until_s.items() if at > now_s}
            self._until_s[destination] = now_s + _KEEP_S
            return None
        which = "" if count is not None else " (of durable ones only those connected are known)"
        return (
            f"{destination} has no subscriber{which}, so the broker would drop the message; it "
            f"goes once one is connected, or {ResendEffect.DROP.advice}"
        )

    def _advisories(self, name: str) -> list[Destination]:
        """Return the advisory topics of the consumers that get a topic's messages."""
        virtual = self._virtual.find(topic(name))
        found = [topic(_TOPICS + name)]
        if virtual is not None:
            found.append(topic(f"{_QUEUES}{virtual.prefix}{name}{virtual.postfix}"))
        return found


class ClassicSession(ABC):
    """The part of `broker.LookSession` that is the same over every wire to Classic."""

    features: Features
    _settings: ClassicLinkSettings

    @property
    @abstractmethod
    def _counters(self) -> ClassicCounters:
        """Ask the statistics plugin."""

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        return self._counters.of(destinations)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return none: Classic does not report which queues are dead-letter queues."""
        return ()

    @abstractmethod
    def _send_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one."""

    @abstractmethod
    def _hear(self, advisories: Destination, at_most: int) -> Sequence[Destination | None]:
        """See `classic.consumers.Hear`; raises RequestRefused."""

    @abstractmethod
    def _browse_tokens(self) -> Iterable[BrowsedToken]:
        """Return the tokens that browses of all token queues show; raises RequestRefused."""

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        with raised_as("can't look for other sidecars' tokens: {}"):
            return find_foreign_tokens(self._browse_tokens(), known, self._hear)

    @cached_property
    def _subscribers(self) -> TopicSubscribers:
        return TopicSubscribers(self._settings, self._hear, self._counters)

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        """Return the fate of a send; Classic makes a queue on the first send, and keeps it."""
        del makes
        problem = self._send_problem(destination) or self._subscribers.problem(destination)
        return ROUTES if problem is None else SendTerms(problem)

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:  # noqa: B027 - it is done
        """Do nothing: few answers of `send_terms` need the broker's."""

    def filter_view(self, resend: Resend) -> PropertyOf:
        """Return nothing known: Classic's queues have no filters."""
        del resend
        return lambda _name: UNKNOWN


class ListingSession(ClassicSession):
    """The part of a `broker.LookSession` over a wire on which Classic reports its queues."""

    def __init__(
        self, consumers: ClassicConsumers, queues: ClassicQueues, settings: ClassicLinkSettings
    ) -> None:
        self._consumers: ClassicConsumers = consumers
        self._connection = consumers.connection
        self._queues = queues
        self._settings = settings
        self._clock = settings.clock
        self._rooms = settings.rooms

    @abstractmethod
    def _takes(self, destination: Destination) -> bool:
        """Return whether a destination takes a message now, tried on a connection of its own."""

    def _route(self) -> None:
        """Hand arrived messages to their consumers."""
        self._consumers.route()

    @property
    def _has_arrived(self) -> bool:
        """Whether `receive` would return something."""
        return False

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return none: a browse shows every message."""
        self._connection.poll()
        return ()

    def queue_names(self) -> tuple[str, ...]:
        return listed(lambda: self._queues.list_names(None))

    def is_newborn(self, destination: Destination) -> bool:
        return self._queues.is_newborn(destination.name)

    def final_names(self) -> tuple[str, ...]:
        return listed(self._queues.list_finals)

    def wait(self, timeout_s: float) -> None:
        connection, consumers = self._connection, self._consumers

        def is_done() -> bool:
            self._route()
            # Why again: more messages arrived with the answers to its requests.
            consumers.route()
            return self._has_arrived or connection.is_woken

        if consumers.run_until(is_done, timeout_s):
            connection.is_woken = False

    def wake(self) -> None:
        self._connection.wake()

    def _existing(self, intake: IntakeQueue) -> list[Destination]:
        """Return the queues that a name or wildcard stands for.

        Raises:
            BrokerRefused: the broker does not report a wildcard's queues.
        """
        # Why: perhaps nobody has processed input since a queue was created.
        self._connection.poll()
        self._consumers.route()
        try:
            return self._queues.existing(intake)
        except RequestRefused as cause:
            destination = intake.destination
            if is_wildcard(destination.name):
                raise BrokerRefused(
                    f"can't find out which queues {destination} stands for: {cause}; "
                    f"{MENDS_ADVISORIES}"
                ) from cause
            return [destination]
