"""Finds the store that `store.url` asks for."""

from typing import Protocol

from amqsidecar.clock import Clock
from amqsidecar.stores.sqlite_store import SqliteStore, path_of_url


class StoreOptions(Protocol):
    """What of the options concerns the store."""

    @property
    def url(self) -> str:
        """Checked by the schema of the options."""
        ...

    @property
    def instance(self) -> str:
        """Name of this sidecar's share; "" = made by the store."""
        ...


class HasStoreOptions(Protocol):
    """The options, as far as they are needed here."""

    @property
    def store(self) -> StoreOptions:
        """The options of the store."""
        ...


def open_store(config: HasStoreOptions, clock: Clock, *, read_only: bool = False) -> SqliteStore:
    """Return the store, not yet opened.

    Args:
        config: the options.
        clock: measures how long an operator's action held the write lock.
        read_only: never create and never write.

    Raises:
        ConfigError: the URL names no store.
    """
    return SqliteStore(
        path_of_url(config.store.url),
        clock=clock,
        instance_name=config.store.instance or None,
        read_only=read_only,
    )
