"""One connection to one PostgreSQL database: making it, its settings, its limits, its faults."""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from zlib import crc32

import psycopg
from psycopg import pq
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict

from amqsidecar.errors import ConfigError, Problem, StoreFull, StoreUnavailable
from amqsidecar.stores.named_queries import read_queries, read_sql
from amqsidecar.stores.packing import storable

# Why of the transaction: its statements agree on it.
_SERVER_MS = "floor(extract(epoch FROM now()) * 1000)::bigint"


def _in_postgres(text: str) -> str:
    """Return queries that are written for SQLite in the words of PostgreSQL."""
    text = re.sub(r"\s+(NOT INDEXED|INDEXED BY \w+)", "", text)
    text = re.sub(r"IN \(SELECT value FROM json_each\((:ids)\)\)", r"= ANY (\1::bigint[])", text)
    text = text.replace("LIMIT -1 OFFSET", "OFFSET").replace(":schedule_ms", _SERVER_MS)
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", text)


QUERIES = read_queries(read_sql("postgres/queries.sql"), _in_postgres(read_sql("queries.sql")))


CONNECT_TIMEOUT_S = 10
_DEAD_PEER_MS = 20_000
_GRACE_S = 5.0  # So much later than the server we give up waiting for its answer.

SqlValues = Mapping[str, Any]
PostgresRows = list[tuple[Any, ...]]


class _SilentServerError(psycopg.OperationalError):
    """The server does not answer, though the connection stands."""


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that never waits for ever, also where the server hangs and TCP does not."""

    limit_s = 60.0

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: PQGen[RV]) -> PQGen[RV]:
        """Pass events between psycopg and its waiting loop; 0 means that it timed out."""
        until_s = time.monotonic() + self.limit_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until_s:
                    # Why: the answer may come later, and would be taken for that of the next
                    # statement; and a pipeline's end would fail for it, and hide the reason.
                    self.close()
                    raise _SilentServerError
                wanted = gen.send(ready)
        except StopIteration as end:
            value: RV = end.value
            return value


class PostgresDatabase:
    """One connection, used by one thread; runs named queries.

    Args:
        dsn: a URL or text of libpq; its parameters win over ours.
        schema: where our tables are.
        password: returns it at each connect; None = libpq's own ways.
        read_only: never create and never write.
        lock_timeout_ms: how long a write waits for another process.
        statement_timeout_s: how long a statement may take.
        idle_timeout_s: how long a transaction may do nothing.

    Attributes:
        place: the store, as in `the store postgresql://host/database`.
        give_way: called outside of transactions where the server's medium is full.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        password: Callable[[], str | None],
        read_only: bool,
        lock_timeout_ms: int,
        statement_timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._password = password
        self._settings = {
            # Why: the proof of PostgresTransaction.claim_due needs a new snapshot per statement.
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "on" if read_only else "off",
            "lock_timeout": f"{lock_timeout_ms}ms",
            "statement_timeout": f"{round(statement_timeout_s * 1000)}ms",
            "idle_in_transaction_session_timeout": f"{round(idle_timeout_s * 1000)}ms",
            "search_path": f'"{schema}"',
        }
        self._limit_s = statement_timeout_s + _GRACE_S
        self._connection: _Connection | None = None
        self._queued: list[tuple[str, SqlValues]] = []
        self.give_way: Callable[[], None] = lambda: None
        self.place = f"the store {shown(dsn)}"

    @cached_property
    def group_key(self) -> bytes:
        """The key of the numbers of groups; see `ScheduleView.group_key`."""
        return bytes(self.rows("read_group_key")[0][0])

    # Opening and closing.

    @property
    def is_open(self) -> bool:
        """Whether there is a usable connection."""
        return self._connection is not None and not self._connection.closed

    def open(self) -> None:
        """Connect.

        Raises:
            StoreUnavailable: there is no server, or it refuses the login.
        """
        parameters: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": _DEAD_PEER_MS,
            "application_name": "amqsidecar",
        } | conninfo_to_dict(self._dsn)
        parameters |= {"client_encoding": "utf8"}
        password = self._password()
        if password is not None:
            parameters["password"] = password
        with self.mapped("be opened"):
            self._connection = _Connection.connect(autocommit=True, **parameters)
            self._connection.limit_s = self._limit_s
            try:
                self._prepare(self._connection)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, connection: _Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"{self.place} has the encoding {encoding}; create the database with "
                "ENCODING 'UTF8' TEMPLATE template0"
            )
        settings = dict(self._settings)
        (row,) = connection.execute("SELECT current_setting('synchronous_commit')").fetchall()
        if row[0] == "off":
            settings["synchronous_commit"] = "on"
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) "
            "AS setting (name, value)",
            (list(settings), list(settings.values())),
        )

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        connection, self._connection = self._connection, None
        self._queued.clear()
        if connection is not None:
            connection.close()

    # Transactions.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write; durable when the block is left without an exception.

        Raises:
            StoreFull: the server's medium has no space left; `give_way` was called.
            StoreUnavailable: it can't be written. If the connection is lost during the commit, the
                transaction may have been committed; this is known once the store is opened again.
        """
        with self.mapped():
            if self._connected().closed:
                raise psycopg.OperationalError("the connection was lost")
        self.expect(not self._is_in_transaction, "transactions don't nest")
        self._queued = [("BEGIN", {})]
        try:
            yield
            with self.mapped():
                self._run([*self._queued, ("COMMIT", {})])
        except BaseException as error:
            self._roll_back()
            if isinstance(error, StoreFull) and self.is_open:
                self.give_way()
            raise
        finally:
            self._queued = []

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read several times from one snapshot; in a transaction, from one of each statement."""
        if self._is_in_transaction:
            yield
            return
        self._queued = [("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {})]
        try:
            yield
        finally:
            self._roll_back()

    @property
    def _is_in_transaction(self) -> bool:
        return bool(self._queued) or (
            self._connected().pgconn.transaction_status != pq.TransactionStatus.IDLE
        )

    def _roll_back(self) -> None:
        if self._connection is None or self._connection.closed:
            return
        self._queued = []
        if self._is_in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:
                self._connection.close()

    @contextmanager
    def mapped(self, what: str | None = None) -> Iterator[None]:
        """Translate psycopg's errors into store errors.

        Args:
            what: the failed act; None = be read, or be written in a transaction.
        """
        what = what or ("be written" if self._is_in_transaction else "be read")
        try:
            yield
        except _SilentServerError as error:
            raise StoreUnavailable(
                f"{self.place} could not {what}: no answer for {self._limit_s:.0f} s; check "
                "whether the server hangs"
            ) from error
        except psycopg.Error as error:
            raise as_store_fault(error, self.place, what) from error

    def expect(self, condition: bool, rule: str) -> None:
        """Raise an AssertionError when a rule that callers must keep is broken."""
        if not condition:
            raise AssertionError(f"{self.place}: {rule}")

    # Queries.

    def queue(self, name: str, /, **values: Any) -> None:
        """Run a named query together with the next one that returns rows, or with the commit."""
        self._queued.append((QUERIES[name], values))

    def rows(self, name: str, /, **values: Any) -> PostgresRows:
        """Run a named query, after queued queries, and return its rows."""
        return self.query_all((name, values))[0]

    def query_all(self, *queries: tuple[str, SqlValues]) -> list[PostgresRows]:
        """Run named queries in one round trip, after queued queries; return the rows of each."""
        with self.mapped():
            queued, self._queued = self._queued, []
            cursors = self._run([*queued, *((QUERIES[name], values) for name, values in queries)])
            return [
                cursor.fetchall() if cursor.description else [] for cursor in cursors[len(queued) :]
            ]

    def change(self, name: str, /, **values: Any) -> int:
        """Run a named query, after queued queries, and return the number of changed rows."""
        with self.mapped():
            queued, self._queued = self._queued, []
            return self._run([*queued, (QUERIES[name], values)])[-1].rowcount

    def text(self, text: str, indexed_characters: int | None = None) -> str:
        """Return a text as `pg_text` makes it; cut where an index takes only so many."""
        return pg_text(text)[:indexed_characters]

    def copy(self, name: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Run a named COPY with rows of these types, after queued queries."""
        self.copy_in(QUERIES[name], rows, types)

    def copy_in(self, text: str, rows: Iterable[Sequence[Any]], types: Sequence[str] = ()) -> None:
        """Run a COPY that has no name, after queued queries; without types it takes texts."""
        with self.mapped():
            queued, self._queued = self._queued, []
            if queued:
                self._run(queued)
            with self._connected().cursor() as cursor, cursor.copy(text) as copy:
                if types:
                    copy.set_types(types)
                for row in rows:
                    copy.write_row(row)

    def stream(self, text: str, rows_at_once: int) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query that has no name, in a transaction, a few at a time."""
        with self.mapped(), self._connected().cursor("stream") as cursor:
            cursor.itersize = rows_at_once
            yield from cursor.execute(text, binary=True)

    def run(self, text: str, *values: object) -> PostgresRows:
        """Run SQL that has no name; several statements only without values and answers."""
        with self.mapped():
            cursor = self._connected().execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Wait for answers without a limit."""
        connection = self._connected()
        connection.limit_s = math.inf
        try:
            yield
        finally:
            connection.limit_s = self._limit_s

    @contextmanager
    def at_leisure(self, purpose: str) -> Iterator[bool]:
        """Do slow work outside of transactions; False = another sidecar does it already."""
        lock, limits = self.advisory_lock(purpose), ("statement_timeout", "lock_timeout")
        ((is_free,),) = self.run("SELECT pg_try_advisory_lock(%s)", lock)
        if not is_free:
            yield False
            return
        try:
            for name in limits:
                self.run(f"SET {name} = 0")
            with self.patience():
                yield True
        finally:
            if self.is_open:
                for name in limits:
                    self.run(f"SET {name} = '{self._settings[name]}'")
                self.run("SELECT pg_advisory_unlock(%s)", lock)

    def advisory_lock(self, purpose: str) -> int:
        """Return the number of an advisory lock, the same for all sidecars of our schema."""
        return crc32(f"{self._schema} {purpose}".encode())

    def _run(
        self, statements: Sequence[tuple[str, SqlValues]]
    ) -> list[psycopg.Cursor[tuple[Any, ...]]]:
        connection = self._connected()
        if len(statements) == 1:
            return [connection.execute(*statements[0], binary=True)]
        with connection.pipeline():
            return [connection.execute(*statement, binary=True) for statement in statements]

    def _connected(self) -> _Connection:
        if self._connection is None:
            raise AssertionError(f"{self.place}: not open")
        return self._connection


def pg_text(text: str) -> str:
    r"""Return a text that PostgreSQL can store; other characters are escaped.

    Example:
        >>> pg_text("a\0b")
        'a\\x00b'
    """
    text = storable(text)
    return text.replace("\0", "\\x00") if "\0" in text else text


def checked_dsn(dsn: str) -> str:
    """Return a DSN that libpq can read.

    Raises:
        ConfigError: it can't; the message does not hold the text, which may have a password in it.
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error as error:
        what = "libpq can't read it; write postgresql://user@host:5432/database"
        raise ConfigError([Problem("store.url", what)]) from error
    return dsn


def shown(dsn: str) -> str:
    """Return a DSN as people may see it.

    Example:
        >>> shown("postgresql://ann:secret@db:5433/schedule?sslmode=require")
        'postgresql://ann@db:5433/schedule'
    """
    parts = conninfo_to_dict(dsn)
    hosts = str(parts.get("host", "")).split(",")
    ports = str(parts.get("port", "")).split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    places = (f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
    login = f"{parts['user']}@" if "user" in parts else ""
    return f"postgresql://{login}{','.join(places)}/{parts.get('dbname', '')}"


_HINTS_BY_STATE = {
    "55P03": "another process is writing for too long; find it in pg_stat_activity",
    "57014": "it took too long; check the load of the server",
    "53100": "the disk of the server is full; make room, nothing was changed",
    "53200": "the server is out of memory",
    "53300": "the server accepts no more connections; raise max_connections or close some",
    "54000": "a message exceeds PostgreSQL's size limit",
    "25006": "this server is a read-only standby; name all servers in store.url and add "
    "target_session_attrs=read-write",
    "25P02": "a statement before it failed; nothing was changed",
    "25P03": "a transaction was idle for a whole lease; it is repeated",
    "42501": "this user lacks a permission; an administrator must grant it, or create the schema "
    "and make this user its owner",
    "3D000": "the database does not exist; create it, or change store.url",
    "3F000": "the schema does not exist; the service creates it when it starts",
    "42P01": "a table is missing; restore the schema from a backup, or drop the rest of it",
    "28P01": "the password is wrong; see store.password_file, PGPASSWORD or the passfile",
    "28000": "the server refuses this user; see its pg_hba.conf",
    "57P01": "the server is shutting down or an administrator ended the connection",
    "57P02": "the server crashed; it restarts by itself",
    "57P03": "the server is starting up or shutting down",
    "40P01": "a deadlock was resolved; the transaction is repeated",
    "40001": "another transaction changed the same rows; the transaction is repeated",
}

# Why by words: libpq gives no SQLSTATE for a connection that failed.
_HINTS_BY_WORDS = {
    "password authentication failed": _HINTS_BY_STATE["28P01"],
    "no password supplied": "a password is needed; see store.password_file, PGPASSWORD or the "
    "passfile",
    "no pg_hba.conf entry": _HINTS_BY_STATE["28000"],
    'role "': "the user does not exist; create it, or change store.url",
    'database "': _HINTS_BY_STATE["3D000"],
    "too many": _HINTS_BY_STATE["53300"],
    "remaining connection slots": _HINTS_BY_STATE["53300"],
    "starting up": _HINTS_BY_STATE["57P03"],
    "shutting down": _HINTS_BY_STATE["57P03"],
    "read-only": _HINTS_BY_STATE["25006"],
    "refused": "check that the server runs, and check host and port",
    "could not translate host name": "the host name is unknown; change store.url",
    "failed to resolve host": "the host name is unknown; change store.url",
    "timeout expired": "the server does not answer; see host, port and firewalls",
    "certificate": "the server's certificate is not trusted; see sslrootcert in store.url",
    "SSL": "the two sides don't agree on TLS; see sslmode in store.url",
}

_BUGS = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.NotSupportedError,
    psycopg.ProgrammingError,
)
"""Without a hint these can only come from a defect of amqsidecar."""


def as_store_fault(error: psycopg.Error, place: str, what: str) -> Exception:
    """Return the error of the store contract for a fault of psycopg.

    Args:
        error: the fault; its words hold no password.
        place: the store, as in `the store postgresql://host/database`.
        what: the failed act, as in `be read`.
    """
    words = " ".join(str(error).split())
    hint = _HINTS_BY_STATE.get(error.sqlstate or "")
    if hint is None and isinstance(error, _BUGS):
        return AssertionError(f"{place}: {words}")
    if hint is None and error.sqlstate is None:
        hint = next((hint for part, hint in _HINTS_BY_WORDS.items() if part in words), None)
    if hint is None and (error.sqlstate or "")[:2] == "58":
        hint = "the server reports a fault of its system; see its log"
    hint = hint or "the next start shows whether the last change was written"
    fault = StoreFull if error.sqlstate == "53100" else StoreUnavailable
    return fault(f"{place} could not {what}: {words}; {hint}")
