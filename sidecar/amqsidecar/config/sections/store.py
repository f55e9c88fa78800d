"""Options `store.*`: the persistent schedule."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.config.option import (
    KeyedProblem,
    OptionalPath,
    Section,
    StrictBool,
    StrictInt,
    option,
)
from amqsidecar.config.secrets import Secret, secret_in
from amqsidecar.config.store_url import BROKER_HELD, checked_store_url, is_postgres
from amqsidecar.store import LEASE_S


class StoreOptions(Section):
    """The persistent schedule."""

    url: Annotated[str, BeforeValidator(checked_store_url)] = option(
        "sqlite:///var/lib/amqsidecar/schedule.db",
        "Where waiting messages are kept: `sqlite:///path/of/file.db` (always an absolute path), "
        "or `sqlite:file.db` in the working directory; or `postgresql://user@host:5432/database`, "
        "which several sidecars can share (`schedules.md`), with libpq's parameters such as "
        "`?sslmode=verify-full`; or `broker:`, where Artemis itself keeps waiting messages "
        "(`schedules.md`).",
        why="a file needs no server",
    )
    instance: str = option(
        "",
        "Name of this sidecar's share of the schedule; the private queue in the broker is named "
        "after it. Empty = made once by the store; in PostgreSQL any free one, else a new one, so "
        "that all sidecars can have the same configuration.",
        pattern=r"^[A-Za-z0-9_-]{0,64}$",
    )
    password_file: OptionalPath = option(
        None,
        "PostgreSQL: file with the password of the user in `url`, read at each connect; a "
        "trailing line end is ignored.",
    )
    accept_orphans: StrictBool = option(
        False,
        "Start with a new store although the broker holds an orphaned token of another store. "
        "Messages waiting in that store are not sent until a sidecar runs with it.",
        why="otherwise a lost or wrong store, and the messages waiting in it, would go unnoticed",
    )
    reserve_mib: StrictInt = option(
        64,
        "Space reserved for sending, discarding and housekeeping, at most a quarter of the "
        "volume; half of it lies in a file beside a `sqlite` store, or in a table of "
        "PostgreSQL. If less is left (PostgreSQL: if the server's medium was full), no dead "
        "letters are taken; due messages are still sent. 0 = none: a full volume stops "
        "everything.",
        why="fits the largest cycle of sends and its log; little on any volume",
        unit="MiB",
        ge=0,
        le=65536,
    )
    lease_s: StrictInt = option(
        LEASE_S,
        "PostgreSQL: time without a heartbeat after which other sidecars may take over an "
        "instance.",
        why="longer than a restart of the server, short enough for a failover",
        unit="seconds",
        ge=2,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield options that do not fit the URL."""
        if self.password_file is not None and not self.is_shared:
            yield "password_file", "counts for postgresql:// only; remove it"
        if self.instance and self.url == BROKER_HELD:
            yield "instance", "counts for stores only, the broker keeps one schedule; remove it"

    @property
    def is_shared(self) -> bool:
        """Whether several sidecars may share the store."""
        return is_postgres(self.url)

    def password(self) -> Secret | None:
        """Return the password for PostgreSQL, read from `password_file`; None = libpq's own ways.

        Raises:
            ConfigError: the file can't be read or is empty.
        """
        if self.password_file is None:
            return None
        return secret_in(self.password_file, "store.password_file")
