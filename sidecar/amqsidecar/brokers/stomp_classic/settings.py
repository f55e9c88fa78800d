"""The settings of a link to Classic over STOMP."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.model.left_behind import Loss

_WORDS = ("maximum data length was exceeded", "maximum frame size was exceeded")


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
