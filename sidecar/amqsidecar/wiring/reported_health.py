"""Passes the state of the service to health answers and metrics."""

from collections.abc import Mapping, Sequence

from amqsidecar.clock import ClockStep
from amqsidecar.engine.foreign_tokens import orphans
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.runtime.service import ServiceHealth
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics


def reported_health(health: Health, metrics: Metrics) -> ServiceHealth:
    """Return the receiver of reports of a service with a token."""
    return _ReportedHealth(health, metrics)


def tokenless_health(health: Health, metrics: Metrics) -> ServiceHealth:
    """Return the receiver of reports of an observer, or of a service without a store or token."""
    return _TokenlessHealth(health, metrics)


class _ReportedHealth(ServiceHealth):
    """Passes the service's own status to health answers and metrics."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics

    def link_up(self, broker: str) -> None:
        self._health.link_up(broker)
        self._metrics.set_link_up(True)
        self._metrics.set_token_awaited(False)

    def link_down(self, reason: str) -> None:
        self._health.link_down(reason)
        self._metrics.set_link_up(False)
        self._metrics.set_token_awaited(False)

    def taking(self, problem: str) -> None:
        self._health.taking(problem)
        self._metrics.set_taking_stopped(bool(problem))

    def token_awaited(self, reason: str) -> None:
        self._health.token_awaited(reason)
        self._metrics.set_token_awaited(True)

    def store_ok(self) -> None:
        self._health.store_ok()

    def store_failed(self, reason: str) -> None:
        self._health.store_failed(reason)

    def reconnected(self) -> None:
        self._metrics.reconnected()

    def left_behind(self, items: Sequence[LeftBehind]) -> None:
        self._metrics.set_left_behind(items)

    def foreign_tokens(self, items: Sequence[ForeignToken]) -> None:
        self._health.foreign_tokens(items)
        self._metrics.set_orphaned_tokens(len(orphans(items)))

    def clock(self, step: ClockStep) -> None:
        self._health.clock(step.behind_ms)
        self._metrics.clock(step)

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        self._health.intake(read_count, refused, problem)


class _TokenlessHealth(_ReportedHealth):
    def link_up(self, broker: str) -> None:
        self._health.looking(broker)
        self._metrics.set_link_up(True)
