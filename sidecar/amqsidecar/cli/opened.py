"""An open store for the time of a command."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, cast

from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.errors import StoreUnavailable

if TYPE_CHECKING:
    from amqsidecar.brokers.artemis.schedule import ArtemisSchedule
    from amqsidecar.config.schema import Config
    from amqsidecar.model.schedule import StoreState
    from amqsidecar.operations.operate import LedgerStore
    from amqsidecar.store import Store


@contextmanager
def opened_store(
    config: "Config", *, read_only: bool = True
) -> Iterator[tuple["Store", "StoreState"]]:
    """Open the store of a configuration; a store that isn't there is not created by looking.

    Raises:
        StoreUnavailable: it can't be opened.
        SchemaMismatch: it was written by an unknown version.
        LinkLost, BrokerRefused: the broker keeps what waits, and can't be asked.
    """
    if config.store.url == BROKER_HELD:
        with opened_broker(config) as schedule:
            # Why a cast: commands ask for nothing of a store that it hasn't.
            yield cast("Store", schedule), schedule.open()
        return
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.stores.open import open_store  # noqa: PLC0415 - as above

    store = open_store(config, SystemClock(), read_only=read_only)
    try:
        yield store, store.open()
    finally:
        store.close()


@contextmanager
def opened_ledger(config: "Config", *, read_only: bool = True) -> Iterator["LedgerStore"]:
    """Open the store of a configuration, where it knows of operations.

    Raises:
        StoreUnavailable, SchemaMismatch: as `opened_store`; or the broker keeps what waits.
    """
    if config.store.url == BROKER_HELD:
        raise StoreUnavailable(
            "the broker keeps waiting messages (store.url broker:), and has no operations"
        )
    with opened_store(config, read_only=read_only) as (store, _):
        # Why a cast: every store of our own is a ledger.
        yield cast("LedgerStore", store)


@contextmanager
def opened_broker(config: "Config") -> Iterator["ArtemisSchedule"]:
    """Ask the broker that keeps what waits.

    Raises:
        LinkLost, BrokerRefused: it can't be asked.
        ConfigError: no broker is named.
    """
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.engine.broker_held_queues import NOT_KEPT  # noqa: PLC0415 - as above
    from amqsidecar.errors import BrokerRefused, ConfigError, Problem  # noqa: PLC0415 - as above
    from amqsidecar.runtime.broker_held import INSTANCE  # noqa: PLC0415 - as above
    from amqsidecar.wiring.links import LinkMaker  # noqa: PLC0415 - as above

    if not config.broker.url:
        raise ConfigError(
            [Problem("broker.url", "is not set, and the broker keeps waiting messages")]
        )
    links = LinkMaker(config, SystemClock())
    # Why after it: it says what is missing where the library of AMQP is not installed.
    from amqsidecar.brokers.amqp_artemis.look import AmqpArtemisLook  # noqa: PLC0415 - as above

    with closing(links.make(INSTANCE).look()) as session:
        if not isinstance(session, AmqpArtemisLook):
            raise BrokerRefused(NOT_KEPT[session.description.kind])
        yield session.schedule()
