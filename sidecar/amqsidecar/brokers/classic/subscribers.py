"""Whether a topic of Classic has subscribers: without any, it drops what is sent to it.

The broker's advisories name the consumers that are connected. A durable subscription whose consumer
is away is not among them, though the broker keeps messages for it; the broker's counters have it.

Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (a new consumer hears of all consumers),
VirtualTopicInterceptor.send, Topic.addSubscription (counts durable subscriptions until they end).
"""

from collections.abc import Callable

from amqsidecar.brokers.classic.consumers import Hear
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.queues import MENDS_ADVISORIES
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination, DestinationKind, topic
from amqsidecar.model.resend_effect import ResendEffect
from amqsidecar.policy.destination_map import DestinationMap

_KEEP_S = 5.0
_TOPICS = "ActiveMQ.Advisory.Consumer.Topic."
_QUEUES = "ActiveMQ.Advisory.Consumer.Queue."

Counts = Callable[[Destination], int | None]
"""See `ClassicCounters.consumers`."""


class TopicSubscribers:
    """Answers for topics, kept for some seconds."""

    def __init__(
        self,
        settings: ClassicLinkSettings,
        hear: Hear,
        count: Counts,
    ) -> None:
        """Know nothing yet."""
        self._clock = settings.clock
        virtual_topics = settings.virtual_topics
        self._virtual = DestinationMap([(one.destinations, one) for one in virtual_topics])
        self._hear = hear
        self._count = count
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
            count = None if has_any else self._count(destination)
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
        """Return the advisory topics of the consumers that get what is sent to a topic."""
        virtual = self._virtual.find(topic(name))
        found = [topic(_TOPICS + name)]
        if virtual is not None:
            found.append(topic(f"{_QUEUES}{virtual.prefix}{name}{virtual.postfix}"))
        return found


_CURE = f"{MENDS_ADVISORIES.partition(', or name')[0]}, or {ResendEffect.DROP.advice}"
