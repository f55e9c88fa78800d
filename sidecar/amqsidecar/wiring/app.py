"""The composition root: runs the mode that the configuration asks for."""

import os
from collections.abc import Mapping

import structlog

from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.runtime.process import give_large_blocks_back, give_way_soon
from amqsidecar.wiring.broker_held import run_broker_held
from amqsidecar.wiring.crash_points import crash_point_of
from amqsidecar.wiring.observing import run_observing
from amqsidecar.wiring.parts import require_url
from amqsidecar.wiring.stored import run_stored

log = structlog.get_logger("amqsidecar.wiring.app")


def run_service(config: Config, environ: Mapping[str, str] = os.environ) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code.

    Raises:
        ConfigError: the configuration or the policy can't be used.
        BrokerRefused: the broker refuses us for good at the first attempt.
        StoreError: the store can't be opened.
    """
    require_url(config)
    give_large_blocks_back()
    give_way_soon()
    run = run_broker_held if config.store.url == BROKER_HELD else run_stored
    run(config, crash_point_of(environ))
    log.info("stopped")
    return 0


def run_observer(config: Config) -> int:
    """Observe, and log a service's decisions, until SIGTERM or SIGINT; return the exit code.

    Needs no store and opens none.

    Raises:
        ConfigError: the configuration or the policy can't be used.
        BrokerRefused: the broker refuses us for good at the first attempt.
    """
    require_url(config)
    run_observing(config)
    log.info("stopped")
    return 0
