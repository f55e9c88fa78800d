"""Connectors on this machine, for tests of connections."""

from typing import Any, Final

from amqsidecar.brokers.connection.endpoint import Endpoint
from support.waiting import PATIENCE_S

_PATIENT: Final = {"connect_timeout_s": PATIENCE_S, "idle_timeout_s": PATIENCE_S}


def at_loopback(port: int, **options: Any) -> Endpoint:
    """Return a connector on 127.0.0.1 that waits as long as the tests do."""
    return Endpoint("127.0.0.1", port, **{**_PATIENT, **options})
