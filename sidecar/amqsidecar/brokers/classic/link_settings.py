"""The settings of links to Classic."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.link_settings import LinkSettings
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.formats.classic_death import KeepsNonPersistent, always_keeps
from amqsidecar.model.left_behind import Loss
from amqsidecar.policy.classic_rules import VirtualTopic

_WORDS = ("maximum data length was exceeded", "maximum frame size was exceeded")
NO_NAMES: Final = DeadLetterNames(None)


class FrameLimit:
    """Remembers the smallest frame that ended a connection; outlives links, of one thread.

    Classic announces no limit. At a body larger than `maxDataLength`, or a frame larger than
    `maxFrameSize`, it sends an ERROR without a receipt and closes the connection (measured on
    6.3.1). Dead letters of that size come from clients of other connectors.
    """

    def __init__(self) -> None:
        self._refused_bytes: float = inf

    def problem(self, frame_bytes: int) -> str | None:
        """Return why a frame of this size is not sent; None = it may be taken."""
        if frame_bytes < self._refused_bytes:
            return None
        return (
            f"a frame of {frame_bytes} bytes is more than the broker takes "
            "(wireFormat.maxDataLength or wireFormat.maxFrameSize of its STOMP connector)"
        )

    def learn(self, errors: Iterable[str], largest_bytes: int) -> bool:
        """Return whether a connection ended by a frame that was too large, and remember its size.

        Args:
            errors: words of the ERROR frames that answered nothing.
            largest_bytes: of the frames that were not answered; if one is too large, this is.
        """
        is_too_large = any(words in error for error in errors for words in _WORDS)
        if is_too_large and largest_bytes:
            self._refused_bytes = min(self._refused_bytes, largest_bytes)
        return is_too_large


@dataclass(frozen=True, kw_only=True)
class ClassicLinkSettings(LinkSettings):
    """Settings of a link to Classic.

    Attributes:
        keeps_non_persistent: see `classic_death`.
        ask_counters: where counters of queues are read; None = over the connection of OpenWire.
        virtual_topics: of the broker; they copy a topic's messages into queues.
        demands_subscribers: nothing is sent to a topic without a subscriber.
        rooms: which destinations held up a connection; outlives links, over OpenWire and STOMP.
        allowed_losses: permitted losses of taken messages; over AMQP only `Loss.BODY_TYPE` acts.
        names: over AMQP: where the messages of a dead-letter queue died, unless
            `IntakeQueue.origin` says.
        amqp_producers_only: over AMQP: read only messages of AMQP applications, where the
            connector keeps such messages whole and no others.
        unreadable: over STOMP: ids of messages that broke a connection, with their queues; a queue
            stands for its message without a known id. It and `frame_limit` outlive links, which
            add to them.
        frame_limit: over STOMP: learnt from frames that ended a connection.
    """

    keeps_non_persistent: KeepsNonPersistent = always_keeps
    ask_counters: AskStatistics | None = None
    virtual_topics: tuple[VirtualTopic, ...] = (VirtualTopic(),)
    demands_subscribers: bool = True
    rooms: Rooms = field(default_factory=Rooms)
    allowed_losses: frozenset[Loss] = frozenset()
    names: DeadLetterNames = NO_NAMES
    amqp_producers_only: bool = False
    unreadable: dict[str, str] = field(default_factory=dict)
    frame_limit: FrameLimit = field(default_factory=FrameLimit)
