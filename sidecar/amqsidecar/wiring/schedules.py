"""Opens the schedule that `store.url` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from amqsidecar.clock import Clock, SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import revealed
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.schedule import Schedule
from amqsidecar.stores.moving import MovedStore
from amqsidecar.stores.sqlite.moving import SqliteMove
from amqsidecar.stores.sqlite.store import SqliteStore, path_of_url

if TYPE_CHECKING:
    from amqsidecar.stores.postgres.store import PostgresStore


SCHEMA = "amqsidecar"
"""Of the tables in PostgreSQL."""


def open_schedule(
    config: Config, clock: Clock, *, read_only: bool = False, for_service: bool = False
) -> Schedule:
    """Open the schedule that the options name, and create it where it is missing.

    Args:
        clock: measures how long an operator's action held the write lock.
        read_only: never create and never write.
        for_service: be the only service on a file, or the only holder of an instance, until
            `close`.

    Raises:
        ConfigError: the URL names no store, or the driver of PostgreSQL is not installed.
        StoreUnavailable: it can't be opened, or another service has it.
        SchemaMismatch: an unknown version wrote it.
    """
    return _opened(_store_of(config, clock, read_only=read_only), for_service=for_service)


def open_instance(config: Config, clock: Clock, instance: str) -> Schedule:
    """Open the shared schedule as the only holder of this instance.

    Raises:
        ConfigError, StoreUnavailable, SchemaMismatch: as `open_schedule`.
    """
    return _opened(_store_of(config, clock, instance), for_service=True)


def open_for_move(config: Config) -> MovedStore:
    """Open the store of the options as one end of a move, and create it where it is missing.

    Raises:
        ConfigError, StoreUnavailable, SchemaMismatch: as `open_schedule`.
    """
    options = config.store
    if not options.is_shared:
        return SqliteMove(path_of_url(options.url), options.instance or None)
    check_store(config, SystemClock())
    from amqsidecar.stores.postgres.moving import PostgresMove  # noqa: PLC0415 - an extra

    return PostgresMove(options.url, _password_of(config), SCHEMA)


def check_store(config: Config, clock: Clock) -> None:
    """Check the options of the store without opening it.

    Raises:
        ConfigError: as `open_schedule`.
    """
    _store_of(config, clock, read_only=True)


def store_folder(config: Config) -> Path | None:
    """Return the folder of the store's file; None = the store is no file."""
    url = config.store.url
    return path_of_url(url).parent if url.startswith("sqlite:") else None


def _opened(store: SqliteStore | PostgresStore, *, for_service: bool) -> Schedule:
    try:
        if for_service:
            store.lock_for_service()
        store.open()
    except BaseException:
        store.close()
        raise
    return store


def _store_of(
    config: Config, clock: Clock, instance: str | None = None, *, read_only: bool = False
) -> SqliteStore | PostgresStore:
    """Return the store, not yet open; an instance takes the place of the one in the options."""
    options = config.store
    instance = instance or options.instance or None
    reserve_bytes = options.reserve_mib * 1024 * 1024
    if not options.is_shared:
        return SqliteStore(
            path_of_url(options.url),
            clock=clock,
            instance_name=instance,
            read_only=read_only,
            reserve_bytes=reserve_bytes,
        )
    try:
        from amqsidecar.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f'needs the driver of PostgreSQL: pip install "amqsidecar[postgres]" ({error})'
        raise ConfigError([Problem("store.url", what)]) from error

    return PostgresStore(
        options.url,
        clock=clock,
        instance_name=instance,
        read_only=read_only,
        lease_s=options.lease_s,
        schema=SCHEMA,
        password=_password_of(config),
        reserve_bytes=reserve_bytes // 2,
    )


def _password_of(config: Config) -> Callable[[], str | None]:
    return lambda: revealed(config.store.password())
