"""An open store for the time of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqsidecar.config.schema import Config
    from amqsidecar.model.schedule import StoreState
    from amqsidecar.store import Store


@contextmanager
def opened_store(
    config: "Config", *, read_only: bool = True
) -> Iterator[tuple["Store", "StoreState"]]:
    """Open the store of a configuration; a store that isn't there is not created by looking.

    Raises:
        StoreUnavailable: it can't be opened.
        SchemaMismatch: it was written by an unknown version.
    """
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.stores.open import open_store  # noqa: PLC0415 - as above

    store = open_store(config, SystemClock(), read_only=read_only)
    try:
        yield store, store.open()
    finally:
        store.close()
