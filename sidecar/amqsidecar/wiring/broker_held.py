"""Assembles the service whose schedule the broker keeps (`store.url: broker:`)."""

from contextlib import nullcontext

from amqsidecar.clock import SystemClock, never_set
from amqsidecar.config.schema import Config
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.intake import named_queues
from amqsidecar.runtime.broker_held import (
    BrokerHeldMode,
    found_with_waiting,
    named_with_waiting,
)
from amqsidecar.runtime.left_behind import LeftBehindNews
from amqsidecar.wiring.parts import ProcessParts
from amqsidecar.wiring.properties import journaled_properties
from amqsidecar.wiring.reported_health import tokenless_health


def run_broker_held(config: Config, crash_point: CrashPoint) -> None:
    """Run until SIGTERM or SIGINT; raises as `run_service`."""
    # Why the wall clock: the broker delivers at its own time.
    clock = SystemClock()
    parts = ProcessParts(config, clock, clock, crash_point)
    health = tokenless_health(parts.health, parts.metrics)
    mode = BrokerHeldMode(
        make_link=parts.links.make,
        make_judge=parts.rules.judges(parts.chance, journaled_properties(config)),
        parts=parts.engine_parts(),
    )
    service = parts.make_service(
        mode.open,
        named_with_waiting(named_queues(config.intake.queues)),
        found_with_waiting(parts.rules.intake),
        never_set,
        health,
        LeftBehindNews(health.left_behind),
    )
    try:
        parts.run(service, None, nullcontext())
    finally:
        parts.log_events.flush()
