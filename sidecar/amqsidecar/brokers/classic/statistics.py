"""Counters of Classic's queues: from its statistics plugin, or only the length of a browse.

The stock configuration does not have the plugin (`<statisticsBrokerPlugin/>` among `<plugins>`).
Without it a question would stay at its destination, so the first goes to a topic, which drops it.
Measured on 6.3.1 and 5.18.3: `dequeueCount` counts messages that leave a queue (acknowledged, dead,
expired or purged), `expiredCount` expired messages, `dispatchCount` every hand-out, also ahead and
repeated; `size` includes messages handed out. All restart with the broker, whose `brokerId` then
changes.

So a message that left without a hand-out was not acknowledged: it was purged, or removed by a
person. This also holds for all messages that left where no consumer existed, neither before nor
afterwards: a browse counts as a hand-out and leaves no other trace, and people browse a queue
before they purge it.

Quirk (Classic): dead letters count like all other messages that left. Beside a consumer, a message
that a person removes while it is handed out, or after another message was handed out without an
acknowledgement, counts as acknowledged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from amqsidecar.brokers.classic.queues import is_wildcard
from amqsidecar.model.destination import Destination, DestinationKind, topic
from amqsidecar.model.outcome import Counters

BROKER_QUESTION: Final = topic("ActiveMQ.Statistics.Broker")
"""Answered by the plugin; without it there is no answer."""
END_PROPERTY: Final = "ActiveMQ.Statistics.Destination.List.End.With.Null"
"""Property of a question: an empty answer follows the last one."""
ANSWER_S: Final = 2.0
"""Maximum wait for an answer."""
QUESTION_MS: Final = 60_000
"""Expiration of a request."""
BROWSED_MAX: Final = 20
"""Without the plugin: the exact length of longer queues is not counted."""

_NAME, _BROKER = "destinationName", "brokerId"
COUNTS: Final = (
    *("size", "dequeueCount", "dispatchCount", "inflightCount", "expiredCount"),
    "consumerCount",
)
FIELDS: Final = (_NAME, _BROKER, *COUNTS)
"""The fields of an answer that are read."""

StatisticsReply = Mapping[str, object]
AskStatistics = Callable[[Sequence[Destination]], Sequence[StatisticsReply] | None]
"""Sends these requests; returns the answers that are not empty; None = no plugin."""


def about(destination: Destination) -> Destination:
    """Return where a question about a queue or a topic is sent."""
    return Destination(destination.kind, f"ActiveMQ.Statistics.Destination.{destination.name}")


def ask_nothing(_questions: Sequence[Destination]) -> None:
    """Return None: over AMQP and STOMP the plugin is not asked; `broker.jolokia_url` counts."""
    return


class _Seen(NamedTuple):
    broker: str
    size: int
    dequeued: int
    dispatched: int
    in_flight: int
    expired: int
    consumers: int


class ClassicCounters:
    """Counters of queues, as long as one connection lasts.

    Args:
        ask: over this connection.
        count: returns how many messages a queue holds, up to a maximum.
    """

    def __init__(self, ask: AskStatistics, count: Callable[[Destination, int], int]) -> None:
        self._ask = ask
        self._count = count
        self._has_plugin = True
        # Why: this connection does not know how many messages vanished before it.
        self._run = uuid4().hex
        self._seen: dict[str, _Seen] = {}
        self._vanished: dict[str, int] = {}

    def of(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of the destinations that are existing single queues.

        Raises:
            BrokerRefused: the user may not browse.
        """
        queues = [
            one
            for one in destinations
            if one.kind is DestinationKind.QUEUE
            and not is_wildcard(one.name)
            and "," not in one.name
        ]
        told = self._ask([about(one) for one in queues]) if self._has_plugin and queues else None
        if told is None:
            self._has_plugin = False
            return {one: self._browsed(one) for one in queues}
        seen = dict(filter(None, map(_read, told)))
        found = {one: self._counters(one.name, seen.get(str(one))) for one in queues}
        return {one: counters for one, counters in found.items() if counters is not None}

    def consumers(self, destination: Destination) -> int | None:
        """Return how many consumers and durable subscriptions a destination has; None = unknown.

        A durable subscription counts also while its consumer is away.

        Raises:
            BrokerRefused: the user may not ask.
        """
        told = self._ask([about(destination)]) if self._has_plugin else None
        if told is None:
            self._has_plugin = False
            return None
        return next((one.consumers for _, one in filter(None, map(_read, told))), 0)

    def _browsed(self, destination: Destination) -> Counters:
        count = self._count(destination, BROWSED_MAX)
        is_all = count < BROWSED_MAX
        return Counters(depth=count if is_all else None, at_least=count)

    def _counters(self, name: str, seen: _Seen | None) -> Counters | None:
        if seen is None:
            return None
        last = self._seen.get(name)
        self._seen[name] = seen
        if last is not None and last.broker == seen.broker:
            left = (seen.dequeued - seen.expired) - (last.dequeued - last.expired)
            handed_out = seen.dispatched - last.dispatched + last.in_flight - seen.in_flight
            has_consumers = last.consumers > 0 or seen.consumers > 0
            vanished = max(0, left - handed_out) if has_consumers else left
            self._vanished[name] = self._vanished.get(name, 0) + vanished
        vanished = self._vanished.get(name, 0)
        return Counters(
            depth=seen.size,
            acknowledged=seen.dequeued - seen.expired - vanished,
            removed=seen.expired + vanished,
            run=f"{self._run} {seen.broker}",
            counts_deaths_late=True,
        )


def _read(told: StatisticsReply) -> tuple[str, _Seen] | None:
    name, broker = told.get(_NAME), told.get(_BROKER)
    counts = [told.get(field) for field in COUNTS]
    if not isinstance(name, str) or not isinstance(broker, str):
        return None
    numbers = [one for one in counts if isinstance(one, int)]
    return (name, _Seen(broker, *numbers)) if len(numbers) == len(COUNTS) else None
