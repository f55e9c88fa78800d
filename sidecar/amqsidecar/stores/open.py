"""Finds the store that `store.url` asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from amqsidecar.clock import Clock
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.stores.sqlite.store import SqliteStore, path_of_url

if TYPE_CHECKING:
    from amqsidecar.stores.postgres.store import PostgresStore


SCHEMA = "amqsidecar"
"""Of the tables in PostgreSQL."""


class HasText(Protocol):
    """A text that must not be seen."""

    def reveal(self) -> str:
        """Return it."""
        ...


class StoreSettings(Protocol):
    """What of the options concerns the store."""

    @property
    def url(self) -> str:
        """Checked by the schema of the options."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether several sidecars may share the store."""
        ...

    @property
    def instance(self) -> str:
        """Name of this sidecar's share; "" = made by the store."""
        ...

    @property
    def reserve_mib(self) -> int:
        """Space that dead letters are not taken into; 0 = none."""
        ...

    @property
    def lease_s(self) -> int:
        """Time without a heartbeat after which an instance is free."""
        ...

    def password(self) -> HasText | None:
        """Return the password of the database."""
        ...


class HasStoreOptions(Protocol):
    """The options, as far as they are needed here."""

    @property
    def store(self) -> StoreSettings:
        """The options of the store."""
        ...


def open_store(
    config: HasStoreOptions, clock: Clock, *, read_only: bool = False
) -> SqliteStore | PostgresStore:
    """Return the store, not yet opened.

    Args:
        config: the options.
        clock: measures how long an operator's action held the write lock.
        read_only: never create and never write.

    Raises:
        ConfigError: the URL names no store, or the driver of PostgreSQL is not installed.
    """
    options = config.store
    if options.is_shared:
        return open_shared_store(config, clock, options.instance or None, read_only=read_only)
    return SqliteStore(
        path_of_url(options.url),
        clock=clock,
        instance_name=options.instance or None,
        read_only=read_only,
        reserve_bytes=options.reserve_mib * 1024 * 1024,
    )


def store_folder(config: HasStoreOptions) -> Path | None:
    """Return the folder that the store's file lies in; None = the store is no file."""
    url = config.store.url
    return path_of_url(url).parent if url.startswith("sqlite:") else None


def open_shared_store(
    config: HasStoreOptions, clock: Clock, instance: str | None, *, read_only: bool = False
) -> PostgresStore:
    """Return the store in PostgreSQL, not yet opened.

    Args:
        config: the options.
        clock: tells when a lease is to be renewed.
        instance: which one to be; None = any.
        read_only: never create and never write.

    Raises:
        ConfigError: as `open_store`.
    """
    try:
        from amqsidecar.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f'needs the driver of PostgreSQL: pip install "amqsidecar[postgres]" ({error})'
        raise ConfigError([Problem("store.url", what)]) from error
    options = config.store

    def password() -> str | None:
        secret = options.password()
        return None if secret is None else secret.reveal()

    return PostgresStore(
        options.url,
        clock=clock,
        instance_name=instance,
        read_only=read_only,
        lease_s=options.lease_s,
        schema=SCHEMA,
        password=password,
        reserve_bytes=options.reserve_mib * 1024 * 1024 // 2,
    )
