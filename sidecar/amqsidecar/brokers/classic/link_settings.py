"""The settings that the links to Classic have in common."""

from dataclasses import dataclass

from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.link_settings import LinkSettings
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps


@dataclass(frozen=True, kw_only=True)
class ClassicLinkSettings(LinkSettings):
    """Settings of a link to Classic.

    Attributes:
        keeps_non_persistent: see `classic_persistence`.
        ask_counters: where counters of queues are read; None = over the connection.
    """

    keeps_non_persistent: KeepsNonPersistent = always_keeps
    ask_counters: AskStatistics | None = None
