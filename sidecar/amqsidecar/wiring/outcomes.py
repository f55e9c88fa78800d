"""Wires the watcher of outcomes."""

from contextlib import AbstractContextManager, nullcontext

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.engine.intake import named_queues
from amqsidecar.runtime.intake_keeper import FindIntake
from amqsidecar.runtime.open_resends import OpenResends
from amqsidecar.runtime.unread_queues import unread_queues
from amqsidecar.runtime.watching import Watching, WatchingSettings
from amqsidecar.stores.open import open_schedule
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.links import LinkMaker


def watching(
    config: Config,
    clock: Clock,
    links: LinkMaker,
    instance: str,
    metrics: Metrics,
    find_intake: FindIntake,
) -> AbstractContextManager[None]:
    """Look, while the block runs, at queues that are re-sent to or not read, where that is wanted.

    Args:
        config: the options.
        clock: the time.
        links: makes links to the broker that the service is at.
        instance: of the store.
        metrics: counts outcomes.
        find_intake: finds dead-letter queues; called in a thread of its own.
    """
    options = config.outcomes
    if not options.watch:
        return nullcontext()
    window_ms = options.window_s * 1000
    return Watching(
        open_schedule=lambda: open_schedule(config, clock),
        brokers=links,
        # Why another: opening a link removes the remains of a crashed one of its instance.
        instance=f"{instance}-watch",
        clock=clock,
        settings=WatchingSettings(window_ms=window_ms, interval_s=options.interval_s),
        resends=OpenResends(window_ms, metrics.outcomes),
        find_unread=lambda link: unread_queues(
            link, named_queues(config.intake.queues), find_intake, config.redelivery.final_suffix
        ),
        report_counted=metrics.set_outcomes_counted,
    ).running()
