"""An open schedule for the time of a command."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from amqsidecar.cli.options import CONFIG_FILE
from amqsidecar.cli.user import enter_as_user
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.errors import ConfigError, Problem, StoreUnavailable
from amqsidecar.operations.clock_gap import read_clock_gap
from amqsidecar.schedule import BrokerSchedule, Schedule, ScheduleView
from amqsidecar.wiring.schedules import open_schedule


@contextmanager
def opened_view(config: Config) -> Iterator[ScheduleView]:
    """Open the schedule of a configuration to look at it, also where the broker keeps it.

    Raises:
        StoreUnavailable, SchemaMismatch: as `opened_schedule`.
        LinkLost, BrokerRefused: the broker keeps waiting messages and can't be queried.
    """
    opened = opened_broker if config.store.url == BROKER_HELD else opened_schedule
    with opened(config) as view:
        yield view


@contextmanager
def opened_schedule(config: Config, *, read_only: bool = True) -> Iterator[Schedule]:
    """Open the schedule of a configuration; looking creates none.

    Raises:
        StoreUnavailable: it can't be opened, or the broker keeps waiting messages.
        SchemaMismatch: it was written by an unknown version.
        ConfigError: it is opened for a change, which can't be audited.
    """
    if config.store.url == BROKER_HELD:
        raise StoreUnavailable(
            "the broker keeps waiting messages (store.url broker:), so there are no operations"
        )
    enter_as_user(config, is_needed=not read_only)
    try:
        opened = open_schedule(config, SystemClock(), read_only=read_only)
    except StoreUnavailable as error:
        if config != Config():
            raise
        what = f"no option is set: there is no {CONFIG_FILE} in this folder; --config FILE names it"
        raise StoreUnavailable(f"{error}\n{what}") from error
    with closing(opened) as schedule:
        yield schedule


def service_time_of(schedule: Schedule) -> Callable[[], int]:
    """Return the clock by which a service on a schedule finds out what is due."""
    behind_ms, clock = read_clock_gap(schedule), SystemClock()
    return lambda: clock.now_ms() - behind_ms


@contextmanager
def opened_broker(config: Config, *, read_only: bool = True) -> Iterator[BrokerSchedule]:
    """Query the broker that keeps waiting messages.

    Raises:
        LinkLost, BrokerRefused: it can't be asked.
        ConfigError: no broker is named, or a change can't be audited.
    """
    if not config.broker.url:
        raise ConfigError(
            [Problem("broker.url", "is not set, and the broker keeps waiting messages")]
        )
    enter_as_user(config, is_needed=not read_only)
    from amqsidecar.engine.broker_held_queues import INSTANCE  # noqa: PLC0415 - as the next
    from amqsidecar.wiring.links import LinkMaker  # noqa: PLC0415 - only where a broker is asked

    links = LinkMaker(config, SystemClock())
    links.find_answering(INSTANCE)
    with closing(links.make_delaying().look()) as session:
        yield session.schedule()
