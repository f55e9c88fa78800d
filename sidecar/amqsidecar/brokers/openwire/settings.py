"""The settings of a link to Classic over OpenWire."""

from dataclasses import dataclass, field

from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.room import Rooms


@dataclass(frozen=True, kw_only=True)
class OpenWireSettings(ClassicLinkSettings):
    """Settings of an `OpenWireLink`.

    Attributes:
        rooms: which destinations held up a connection; outlives links.
    """

    rooms: Rooms = field(default_factory=Rooms)
