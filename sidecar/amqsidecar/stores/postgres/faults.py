"""Translates faults of PostgreSQL and of its connection into errors with a remedy."""

import psycopg

from amqsidecar.errors import StoreFull, StoreUnavailable

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
        what: what could not be done, as in `be read`.
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
