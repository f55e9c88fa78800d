"""The lease of an instance: on one row, by the server's clock."""

import secrets

from amqsidecar.clock import Clock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.schema import Schema


class Lease:
    """Makes one process the holder of one instance.

    An instance is free when it has no holder, when the holder's backend is gone, or when it was not
    renewed for as long as its holder said (`lease_s`). Each holder is a number of its own, and each
    write of a cycle asks for it, so one that was stalled and overtaken can't write any more. Who
    owns the messages is decided by the token in the broker all the same.
    """

    def __init__(
        self, database: PostgresDatabase, clock: Clock, name: str | None, lease_s: float
    ) -> None:
        self._database = database
        self._clock = clock
        self._wanted = name
        self._lease_s = lease_s
        self._renewed_s = 0.0
        self.holder: str | None = None
        self.name = name or ""

    def acquire(self, schema: Schema) -> None:
        """Become the holder of the wanted instance, or of any free instance, else of a new one.

        Raises:
            StoreUnavailable: another process holds the wanted instance; the message names it.
            SchemaMismatch: newer programs removed parts of the schema that this one needs.
        """
        database = self._database
        values = {
            # Why a new one: statements in flight on an old connection must not count.
            "holder": secrets.token_hex(8),
            "last": self.holder,
            "last_name": self.name,
            "program": schema.version,
            "lease_s": self._lease_s,
        }
        with database.transaction():
            schema.guard()
            name = self._wanted
            if name is None:
                held = database.rows("hold_same", **values) or database.rows("hold_any", **values)
                name = held[0][0] if held else secrets.token_hex(4)
            else:
                held = []
            if not held:
                add_instance(database, name)
                if not database.change("hold_named", name=name, **values):
                    raise self._refusal(name)
        self.name, self.holder = name, str(values["holder"])
        self.renewed()

    def find(self, *, read_only: bool) -> None:
        """Find the wanted instance, else the oldest, without holding it; create a missing one."""
        database = self._database
        found = database.rows("first_instance")
        if self._wanted is not None:
            found = [(self._wanted,)] if database.rows("holder_of", name=self._wanted) else []
        if not found and read_only:
            raise StoreUnavailable(
                f"{database.place} has no instance {self._wanted or ''}".rstrip()
                + " yet; the service makes it when it starts"
            )
        if not found:
            name = self._wanted or secrets.token_hex(4)
            with database.transaction():
                database.rows("lock", lock=database.advisory_lock("instance"))
                found = database.rows("first_instance") if self._wanted is None else []
                if not found:
                    add_instance(database, name)
                    found = [(name,)]
        self.name = found[0][0]

    def keep(self) -> None:
        """Renew the lease when a third of it is over.

        Raises:
            StoreUnavailable: another process took the instance over.
        """
        if self.holder is None or self._clock.monotonic_s() - self._renewed_s < self._lease_s / 3:
            return
        self.renew()

    def renew(self) -> None:
        """Renew the lease, or find out that another process took the instance over."""
        if not self._database.change("renew", name=self.name, holder=self.holder):
            raise self.lost()
        self.renewed()

    def renewed(self) -> None:
        """The lease was renewed just now."""
        self._renewed_s = self._clock.monotonic_s()

    def lost(self) -> StoreUnavailable:
        """Return the error for a lost instance; `acquire` takes another."""
        if self.holder is None:
            return self._refusal(self.name)
        self.holder = None
        return StoreUnavailable(
            f"{self._database.place}: another process took over the instance {self.name!r} "
            f"because this one sent no heartbeat for {self._lease_s:.0f} s"
        )

    def release(self) -> None:
        """Release the instance for others at once; a lost connection is not reported."""
        if self.holder is None:
            return
        try:
            self._database.change("release", holder=self.holder)
        except StoreUnavailable:
            return
        self.holder = None

    def _refusal(self, name: str) -> StoreUnavailable:
        pid, address, program, age_s = self._database.rows("holder_of", name=name)[0]
        return StoreUnavailable(
            f"{self._database.place}: the instance {name!r} is in use by another process "
            f"(backend {pid} for {program or 'a program'} at {address or 'an unknown address'}, "
            f"last sign of life {age_s} s ago); stop that one, or give this one another "
            "store.instance"
        )


def add_instance(database: PostgresDatabase, name: str) -> None:
    """Create an instance; an existing one of that name stays."""
    database.rows("add_instance", name=name, uid=secrets.token_hex(4))
