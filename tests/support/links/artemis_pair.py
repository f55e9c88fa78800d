"""The harnesses of the link over Core and AMQP at once, by the messages' producer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from amqsidecar.broker import LookSession
from amqsidecar.brokers.amqp.knock import AmqpKnock
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis_pair.link import ArtemisPairLink, PairTake
from amqsidecar.brokers.artemis_pair.second_wire import SecondWire, SecondWireMemory
from amqsidecar.brokers.core_artemis.link import CoreArtemisLink
from amqsidecar.clock import SystemClock
from amqsidecar.model.send_terms import ResendEffect
from support.brokers.real import Broker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.core_artemis import CoreArtemisHarness


def pair_link(
    broker: Broker,
    instance: str,
    *,
    port: str = "PORT",
    memory: SecondWireMemory | None = None,
    allowed_effects: Collection[ResendEffect] = (),
    **options: Any,
) -> ArtemisPairLink:
    """Return a link that is not opened.

    Args:
        broker: to connect to.
        instance: its name.
        port: the mark of the acceptor's port.
        memory: of the second wire; None = nothing is known.
        allowed_effects: what redeliveries may do besides.
        options: those of the endpoint.
    """
    clock, endpoint = SystemClock(), broker.endpoint(port, **options)
    wire = SecondWire(
        lambda: AmqpKnock(endpoint), endpoint.place, clock, memory or SecondWireMemory()
    )
    both: dict[str, Any] = {
        "clock": clock,
        "instance": instance,
        "allowed_effects": allowed_effects,
    }
    return ArtemisPairLink(
        CoreArtemisLink(ArtemisLinkSettings(endpoint, why_amqp_left=wire.why_left, **both)),
        AmqpArtemisLink(ArtemisLinkSettings(endpoint, is_own_only=True, **both)),
        second_wire=wire,
        clock=clock,
    )


def drop_pair(link: LookSession) -> None:
    """Cut the connections without a word; there is one where the release lacks AMQP."""
    for wire in link.wires if isinstance(link, PairTake) else (link,):
        connected = wire._connection._socket  # type: ignore[attr-defined]
        connected.shutdown(2)


class PairOfCoreHarness(CoreArtemisHarness):
    """The dead letters are those of Core clients."""

    name = "artemis-pair-core"

    def make_link(self, instance: str) -> ArtemisPairLink:  # type: ignore[override]
        return pair_link(self.broker, instance)

    def drop(self, link: LookSession) -> None:
        """Cut the link's connections without a word, as a crash does."""
        drop_pair(link)


class PairOfAmqpHarness(AmqpArtemisHarness):
    """The dead letters are those of AMQP clients."""

    name = "artemis-pair-amqp"

    def make_link(self, instance: str) -> ArtemisPairLink:  # type: ignore[override]
        return pair_link(self.broker, instance)

    def drop(self, link: LookSession) -> None:
        """Cut the link's connections without a word, as a crash does."""
        drop_pair(link)
