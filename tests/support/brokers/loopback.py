"""Connectors on this machine, for tests of connections."""

from typing import Any

from amqsidecar.brokers.connection.endpoint import Endpoint


def at_loopback(port: int, **options: Any) -> Endpoint:
    """Return a connector on 127.0.0.1; its time limits are those of the options' defaults."""
    return Endpoint("127.0.0.1", port, **{"connect_timeout_s": 10, "idle_timeout_s": 30, **options})
