"""Assembles the observer (`run --observe`)."""

from collections.abc import Sequence

import structlog

from amqsidecar import __version__
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.intake import Backlog
from amqsidecar.engine.crash_points import no_crash
from amqsidecar.engine.intake import named_queues
from amqsidecar.engine.observation import ObservationTally, Observed, ObservedDeaths
from amqsidecar.runtime.observer import Observer, ObserverLog, ObserverSettings
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.telemetry.observed_log import LogObserved
from amqsidecar.wiring.gates import gates_at
from amqsidecar.wiring.parts import ProcessParts, stopping
from amqsidecar.wiring.reported_health import tokenless_health

log = structlog.get_logger("amqsidecar.wiring.app")


class _ObserverLog(ObserverLog):
    """Sends observations to log and metrics."""

    def __init__(self, metrics: Metrics, log_observed: LogObserved) -> None:
        self._metrics = metrics
        self._log = log_observed

    def observe(self, items: Sequence[Observed]) -> None:
        self._metrics.observed(items)
        self._log.observe(items)

    def summary(self, tally: ObservationTally) -> None:
        self._log.summary(tally)


def run_observing(config: Config) -> None:
    """Observe until SIGTERM or SIGINT; raises as `run_observer`."""
    clock = SystemClock()
    parts = ProcessParts(config, clock, clock, no_crash)
    observed = LogObserved(clock, config.observe.max_log_lines, gates_at=gates_at(config))
    observer = Observer(
        make_link=parts.links.make,
        make_judge=parts.rules.judges(parts.chance),
        find_intake=parts.rules.intake,
        dead_letter_queue_of=parts.rules.dead_letter_queue_of(),
        observation=ObservedDeaths(
            holds_backlog=config.intake.backlog is Backlog.HOLD,
            backlog_threshold=config.intake.backlog_threshold,
        ),
        clock=clock,
        attempts=parts.attempts,
        settings=ObserverSettings(
            intake_queues=named_queues(config.intake.queues),
            discovery_interval_s=config.discovery.interval_s,
            interval_s=config.observe.interval_s,
            max_messages=config.observe.max_messages,
        ),
        health=tokenless_health(parts.health, parts.metrics),
        observer_log=_ObserverLog(parts.metrics, observed),
    )
    with parts.serving(None) as address, stopping(observer.stop):
        log.info("started", version=__version__, http=address, mode="observe")
        observer.run()
