"""The settings of a link to Classic over STOMP."""

from dataclasses import dataclass, field

from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.stomp_classic.frame_limit import FrameLimit
from amqsidecar.model.left_behind import Loss


@dataclass(frozen=True, kw_only=True)
class StompClassicSettings(ClassicLinkSettings):
    """Settings of a `StompClassicLink`.

    Attributes:
        allowed_losses: what may get lost by taking a message.
        unreadable: ids of messages whose frames broke a connection, with their queues; it and
            what follows outlive links and are added to.
        frame_limit: what size of a frame ended a connection.
    """

    allowed_losses: frozenset[Loss] = frozenset()
    unreadable: dict[str, str] = field(default_factory=dict)
    frame_limit: FrameLimit = field(default_factory=FrameLimit)
