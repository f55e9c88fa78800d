"""The harness of the STOMP link to Classic; dead letters come from OpenWire clients, as most do."""

from typing import Any

from amqsidecar.broker import LookSession
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.stomp_classic.link import StompClassicLink
from amqsidecar.brokers.stomp_classic.take import StompClassicTake
from amqsidecar.clock import SystemClock
from amqsidecar.model.left_behind import Loss
from support.brokers.real import Broker
from support.links.harness import Drained
from support.links.openwire import ClassicHarness


class StompClassicHarness(ClassicHarness):
    """Own dead-letter queue per prefix, filled and drained over OpenWire."""

    name = "stomp-classic"

    def __init__(self, broker: Broker, prefix: str) -> None:
        super().__init__(broker, prefix)
        self.unreadable: dict[str, str] = {}

    def make_link(
        self, instance: str, *, allowed: frozenset[Loss] = frozenset(), **options: Any
    ) -> StompClassicLink:
        return StompClassicLink(
            ClassicLinkSettings(
                self.broker.endpoint("STOMP_PORT"),
                clock=SystemClock(),
                instance=f"{self.prefix}-{instance}",
                allowed_losses=allowed,
                unreadable=self.unreadable,
                **options,
            )
        )

    def drain(self, queue_name: str) -> list[Drained]:
        """Consume and return all that a queue holds; numbers are strings over STOMP."""
        return [
            one._replace(
                properties={name: _number(value) for name, value in one.properties.items()}
            )
            for one in super().drain(queue_name)
        ]

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, StompClassicTake)
        link._connection._transport.socket.shutdown(2)


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdigit() else value
