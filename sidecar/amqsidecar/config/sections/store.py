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


class StoreOptions(Section):
    """The persistent schedule."""

    url: Annotated[str, BeforeValidator(checked_store_url)] = option(
        "sqlite:///var/lib/amqsidecar/schedule.db",
        "Where waiting messages are kept: `sqlite:///path/of/file.db` (always an absolute path), "
        "or `sqlite:file.db` in the working directory; or `postgresql://user@host:5432/database`, "
        "which several sidecars may share (`shared-schedule.md`), with libpq's parameters such as "
        "`?sslmode=verify-full`; or `broker:`, where Artemis itself keeps what waits "
        "(`broker-held-schedule.md`).",
        why="one file on a volume, nothing else to run",
    )
    instance: str = option(
        "",
        "Name of this sidecar's share of the schedule; the private queue in the broker is named "
        "after it. Empty = made once by the store; in PostgreSQL any free one, else a new one, so "
        "that all sidecars can have the same configuration.",
        why="with one file for one sidecar there is nothing to tell apart",
        pattern=r"^[A-Za-z0-9_-]{0,64}$",
    )
    password_file: OptionalPath = option(
        None,
        "`postgresql` only: file that holds the password of the user in `url`, such as a mounted "
        "secret. It is read at each connect; a line end at its end is ignored.",
    )
    accept_orphans: StrictBool = option(
        False,
        "Begin with a new store although the broker holds the token of another one that no "
        "sidecar has in hand. What waits in that store is not sent until a sidecar runs with it.",
        why="otherwise a store that was lost or mixed up goes unnoticed, and all that waits in it",
    )
    reserve_mib: StrictInt = option(
        64,
        "Space that is kept for sending, discarding and housekeeping: where less is left on the "
        "volume of a `sqlite` store, no dead letters are taken, and what is due is sent. Half of "
        "it lies in a file beside the store, which is removed where the volume gets full; at most "
        "a quarter of the volume is used. In PostgreSQL half of it lies in a table, and taking "
        "stops when the server's medium was full. 0 = none: a full volume stops everything.",
        why="room for the largest cycle of sends and its log, little on any volume",
        unit="MiB",
        ge=0,
        le=65536,
    )
    lease_s: StrictInt = option(
        30,
        "`postgresql` only: after so long without a sign of life the share of a sidecar may be "
        "taken over by the others.",
        why="longer than a restart of the server, shorter than anyone's patience",
        unit="seconds",
        ge=2,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield what doesn't fit the URL."""
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
