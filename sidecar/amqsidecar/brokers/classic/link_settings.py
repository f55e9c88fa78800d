"""The settings that the links to Classic have in common."""

from dataclasses import dataclass, field

from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.link_settings import LinkSettings
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.policy.classic_rules import VirtualTopic


@dataclass(frozen=True, kw_only=True)
class ClassicLinkSettings(LinkSettings):
    """Settings of a link to Classic.

    Attributes:
        keeps_non_persistent: see `classic_persistence`.
        ask_counters: where counters of queues are read; None = over the connection.
        virtual_topics: of the broker; they copy what is sent to a topic into queues.
        demands_subscribers: nothing is sent to a topic without a subscriber.
        rooms: which destinations held up a connection; outlives links, over OpenWire and STOMP.
    """

    keeps_non_persistent: KeepsNonPersistent = always_keeps
    ask_counters: AskStatistics | None = None
    virtual_topics: tuple[VirtualTopic, ...] = (VirtualTopic(),)
    demands_subscribers: bool = True
    rooms: Rooms = field(default_factory=Rooms)
