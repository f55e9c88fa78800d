"""What proton's links ask of a broker."""

from typing import Any

from proton import symbol
from proton.reactor import LinkOption


class Anycast(LinkOption):
    """Asks for a queue."""

    capability = "queue"

    def apply(self, link: Any) -> None:
        """Name the capability on the broker's end of a link."""
        end = link.source if link.is_receiver else link.target
        end.capabilities.put_object(symbol(self.capability))


class Multicast(Anycast):
    """Asks for a topic."""

    capability = "topic"
