"""Wires the execution of operations in the service."""

import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.messages.kept_message import chosen_properties
from amqsidecar.operations.operate import Means
from amqsidecar.runtime.operating import Operating
from amqsidecar.stores.open import open_schedule
from amqsidecar.telemetry.metrics import Metrics


def operating(
    config: Config, clock: Clock, wake: Callable[[], None], metrics: Metrics
) -> AbstractContextManager[None]:
    """Carry out operations while the block runs.

    Args:
        config: the options.
        clock: the time.
        wake: ends a wait of the service.
        metrics: counts operations' changes.
    """
    return Operating(
        open_schedule=lambda: open_schedule(config, clock),
        clock=clock,
        means=Means(suffix=config.redelivery.final_suffix, properties_of=chosen_properties),
        runner=f"service:{os.getpid()}:{secrets.token_hex(8)}",
        wake=wake,
        gauges=metrics,
    ).running()
