"""An Artemis with an acceptor for Core alone beside the one for all protocols."""

from __future__ import annotations

from typing import Any

from support.brokers.broker_xml import ARTEMIS_ACCEPTORS
from support.brokers.real import ArtemisBroker
from support.machine.ports import free_port

CORE_PORT = "CORE_PORT"


class CoreAcceptorArtemis(ArtemisBroker):
    """The sidecar's URL is that of the acceptor for Core; applications use the other one."""

    def __init__(self, **options: Any) -> None:
        stock = ARTEMIS_ACCEPTORS["artemis"]
        core = stock.replace("CORE,AMQP,STOMP,OPENWIRE", "CORE").replace("@PORT@", "@CORE_PORT@")
        super().__init__(acceptors={"artemis": stock, "core": core}, **options)
        self._ports[CORE_PORT] = free_port()

    @property
    def pair_url(self) -> str:
        """The sidecar's URL for Core and AMQP at once, of the acceptor for Core."""
        return self._url("artemis", CORE_PORT)
