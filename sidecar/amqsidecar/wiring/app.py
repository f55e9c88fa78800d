"""The composition root: runs the mode that the configuration asks for."""

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import nullcontext

import structlog

from amqsidecar.broker import IntakeQueue
from amqsidecar.clock import SystemClock, never_set
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.engine import crash_points
from amqsidecar.engine.broker_held_queues import WAITING_QUEUE
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.intake import named_queues
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.runtime.broker_held import BrokerHeldMode
from amqsidecar.runtime.process import give_way_soon, tune_heap
from amqsidecar.wiring.parts import ProcessParts, require_url
from amqsidecar.wiring.stored import ReadConfig, run_observing, run_stored

CRASH_POINT_VARIABLE = "AMQSIDECAR_CRASH_POINT"
"""For tests: `name:n` kills the process with SIGKILL when the place is reached the n-th time.

`name:n:SIGSTOP` freezes it there instead, until it gets SIGCONT.
"""


_CRASHES = {"": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}


def crash_point_of(environ: Mapping[str, str]) -> CrashPoint:
    """Return where the environment wants this process to end, for tests; nowhere by default.

    Raises:
        ConfigError: it names no such place.
    """
    wish = environ.get(CRASH_POINT_VARIABLE, "")
    if not wish:
        return crash_points.no_crash
    name, _, when = wish.partition(":")
    count, _, how = when.partition(":")
    crash = _CRASHES.get(how)
    names = (
        *crash_points.ALL_NAMES,
        *crash_points.JOURNAL_NAMES,
        *crash_points.WEBHOOK_NAMES,
        *crash_points.MOVE_NAMES,
    )
    if name not in names or not count.isdigit() or crash is None:
        known = ", ".join(names)
        expected = f"expected one of {known} and a count, such as stored:3 or stored:3:SIGSTOP"
        raise ConfigError([Problem(CRASH_POINT_VARIABLE, expected)])
    left = int(count)

    def hit(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                # Why this thread: another one would get the signal later, and this one run on.
                signal.pthread_kill(threading.get_ident(), crash)

    return hit


def run_broker_held(config: Config, crash_point: CrashPoint) -> None:
    """Run until SIGTERM or SIGINT; raises as `run_service`."""
    # Why the wall clock: the broker delivers at its own time.
    clock = SystemClock()
    parts = ProcessParts(config, clock, clock, crash_point, needs_token=False)
    mode = BrokerHeldMode(
        make_link=parts.links.make,
        make_judge=parts.rules.judges(parts.chance),
        parts=parts.engine_parts(),
    )
    named, own = named_queues(config.intake.queues), IntakeQueue(WAITING_QUEUE)
    service = parts.make_service(
        mode.open,
        (*named, own) if named else (),
        lambda link: (*parts.rules.intake(link), own),
        never_set,
    )
    try:
        parts.run(service, nullcontext())
    finally:
        parts.log_events.flush()


log = structlog.get_logger("amqsidecar.wiring.app")


def run_service(
    config: Config,
    environ: Mapping[str, str] = os.environ,
    read_again: ReadConfig | None = None,
) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code.

    Args:
        config: at the start.
        environ: names a crash point.
        read_again: reads the options once more; None = they never change.

    Raises:
        ConfigError: the configuration or the policy can't be used.
        BrokerRefused: the broker refuses us for good at the first attempt.
        StoreError: the store can't be opened.
    """
    require_url(config)
    tune_heap()
    give_way_soon()
    if config.store.url == BROKER_HELD:
        run_broker_held(config, crash_point_of(environ))
    else:
        run_stored(config, crash_point_of(environ), read_again)
    log.info("stopped")
    return 0


def run_observer(config: Config) -> int:
    """Observe until SIGTERM or SIGINT; return the exit code.

    Raises:
        As `run_service`.
    """
    require_url(config)
    run_observing(config)
    log.info("stopped")
    return 0
