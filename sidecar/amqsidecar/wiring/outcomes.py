"""Wires what looks at destinations after re-sends."""

from contextlib import AbstractContextManager, nullcontext
from typing import cast

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.runtime.open_resends import OpenResends
from amqsidecar.runtime.watching import WatchedStore, Watching, WatchingSettings
from amqsidecar.stores.open import open_store
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.links import LinkMaker


def watching(
    config: Config, clock: Clock, links: LinkMaker, instance: str, metrics: Metrics
) -> AbstractContextManager[None]:
    """Look, while the block runs, at the queues that are re-sent to, where that is wanted.

    Args:
        config: the options.
        clock: the time.
        links: makes links to the broker that the service is at.
        instance: of the store.
        metrics: counts outcomes.
    """
    options = config.outcomes
    if not options.watch:
        return nullcontext()
    window_ms = options.window_s * 1000
    return Watching(
        make_store=lambda: cast("WatchedStore", open_store(config, clock)),
        brokers=links,
        # Why another: whoever opens a link removes what a crashed one of its instance has left.
        instance=f"{instance}-watch",
        clock=clock,
        settings=WatchingSettings(window_ms=window_ms, interval_s=options.interval_s),
        resends=OpenResends(window_ms, metrics.outcomes),
        tell_counted=metrics.set_outcomes_counted,
    ).running()
