"""The metrics of `amqsidecar listen`; called by one thread, rendered by others."""

import platform
from collections.abc import Callable
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from amqsidecar import __version__
from amqsidecar.telemetry.metrics_table import LISTENER_METRICS, MetricSpec

_HOW = ("nack", "rejected", "modified")
_OUTCOMES = ("intercepted", "noted", "passed", "refused")


class ListenerMetrics:
    """The values of `LISTENER_METRICS`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        specs = {spec.name: spec for spec in LISTENER_METRICS}
        self._connections = self._gauge(specs["amqsidecar_listener_connections"])
        self._without_login = self._gauge(specs["amqsidecar_listener_connections_without_login"])
        self._connections_max = self._gauge(specs["amqsidecar_listener_connections_max"])
        self._without_login_max = self._gauge(
            specs["amqsidecar_listener_connections_without_login_max"]
        )
        self._memory = self._gauge(specs["amqsidecar_listener_memory_bytes"])
        self._spooled = self._gauge(specs["amqsidecar_listener_spooled_bytes"])
        self._unkept = self._counter(specs["amqsidecar_listener_unkept_messages_total"])
        self._refused = self._counter(specs["amqsidecar_listener_connections_refused_total"])
        self._unreached = self._counter(specs["amqsidecar_listener_broker_unreachable_total"])
        received = self._counter(specs["amqsidecar_listener_bytes_total"])
        self._from_client, self._from_broker = received.labels("client"), received.labels("broker")
        self._given_up = self._counter(specs["amqsidecar_listener_given_up_total"])
        for how, outcome in product(_HOW, _OUTCOMES):
            self._given_up.labels(how, outcome)
        relay = specs["amqsidecar_listener_relay_seconds"]
        self._relay = Histogram(
            relay.name, relay.help, buckets=relay.bounds, registry=self._registry
        )
        build = self._gauge(specs["amqsidecar_listener_build_info"])
        build.labels(__version__, platform.python_version()).set(1)

    def _gauge(self, spec: MetricSpec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self._registry)

    def _counter(self, spec: MetricSpec) -> Counter:
        return Counter(spec.name, spec.help, spec.labels, registry=self._registry)

    def limit(self, connections_max: int, without_login_max: int) -> None:
        """Note how many connections there may be, and how many of them without a log-in."""
        self._connections_max.set(connections_max)
        self._without_login_max.set(without_login_max)

    def connections(self, count: int, without_login: int) -> None:
        """Note how many connections are open, and how many of them have not logged in."""
        self._connections.set(count)
        self._without_login.set(without_login)

    def refused(self) -> None:
        """Count a client that got no place."""
        self._refused.inc()

    def unreached(self) -> None:
        """Count a client for which the broker could not be reached."""
        self._unreached.inc()

    def relayed(self, from_client: int, from_broker: int, duration_s: float) -> None:
        """Count bytes, and the seconds they took."""
        if from_client:
            self._from_client.inc(from_client)
        else:
            self._from_broker.inc(from_broker)
        self._relay.observe(duration_s)

    def settled(self, how: str, outcome: str, messages: int) -> None:
        """Count outcomes of messages that were given up."""
        self._given_up.labels(how, outcome).inc(messages)

    def unkept(self) -> None:
        """Count a message for which there was no room."""
        self._unkept.inc()

    def watch(self, memory_bytes: Callable[[], int], spooled_bytes: Callable[[], int]) -> None:
        """Ask at each scrape for the size of the messages in hand."""
        self._memory.set_function(memory_bytes)
        self._spooled.set_function(spooled_bytes)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all values and their content type, as a scraper accepts it."""
        encoder, kind = choose_encoder(accept)
        return encoder(self._registry), kind
