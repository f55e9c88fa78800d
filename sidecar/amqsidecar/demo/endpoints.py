"""Connectors as the demo's own applications use them."""

from amqsidecar.brokers.connection.credentials import NO_PASSWORD, Credentials
from amqsidecar.brokers.connection.endpoint import Endpoint


def endpoint_at(
    host: str, port: int, user: str | None = None, credentials: Credentials = NO_PASSWORD
) -> Endpoint:
    """Return a connector with the patience that a demo has on one machine."""
    return Endpoint(host, port, user, credentials, connect_timeout_s=10.0, idle_timeout_s=30.0)
