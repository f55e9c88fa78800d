"""A real PostgreSQL server as processes, with its data in a temporary folder.

    with PostgresServer() as server, server.database() as url:
        psycopg.connect(url)   # postgresql://postgres@127.0.0.1:PORT/...

Usable without pytest and as any user: PostgreSQL refuses to run as root, so root runs it as
`postgres`, the user that the package makes; where root is one only in a namespace of its own, in
one more, in which it has that user's name. It dies with the process that started it.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import psycopg
from psycopg import sql

from support.machine.ports import free_port
from support.machine.processes import freeze, kill_tether, started
from support.waiting import PATIENCE_S, eventually

USER = "postgres"
"""The superuser, and the system user that the server runs as when root starts it."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_line_prefix": "%m [%p] %u@%d ",
    "log_min_messages": "warning",
}
# Why scram for all others: what has a password in a file is tested, too.
ACCESS = f"""\
host all,replication {USER} 127.0.0.1/32 trust
host all all    127.0.0.1/32 scram-sha-256
"""
# Why: the server is not asked to stop, it is to be gone, with all that it has started.
TETHER = 'read _; kill -CONT "$0" 2>/dev/null; kill -QUIT "$0" 2>/dev/null'


class PostgresStartError(RuntimeError):
    """The server ended or stayed silent; the message holds the tail of its log."""


class PostgresServer:
    """One server on a loopback port; a context manager that starts it."""

    def __init__(
        self,
        *,
        fsync: bool = False,
        settings: Mapping[str, str] | None = None,
        primary: Self | None = None,
        access: str = ACCESS,
    ) -> None:
        """Prepare a server.

        Args:
            fsync: as in production; without it a test is faster, and what a killed process had
                committed is in the files as well.
            settings: more settings of the server, by name.
            primary: the running server that this one is a standby of.
            access: its pg_hba.conf.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._remove_folder = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.port = free_port()
        self._primary = primary
        self._access = access
        self.log_path = self.folder / "server.log"
        self._settings = {**SETTINGS, "fsync": str(fsync).lower(), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._tether: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    # ------------------------------------------------------------------ its life

    def start(self, *, ready: bool = True) -> Self:
        """Start the server; `ready` waits until it takes connections."""
        if self.is_running:
            return self
        if not self._data.exists():
            self._make_cluster()
        settings = {"port": str(self.port), **self._settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        self._log = self.log_path.open("ab")
        self._process = self._popen([program("postgres"), "-D", str(self._data), *options])
        weakref.finalize(self, _end, self._process)
        self._tether = subprocess.Popen(
            ["/bin/sh", "-c", TETHER, str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, within_s: float = PATIENCE_S) -> None:
        """Wait until it takes connections: after a crash it first repeats what it had done."""
        eventually(self._is_ready, within_s=within_s, what=f"{self} takes connections")

    def stop(self, how: int = signal.SIGINT) -> None:
        """Shut it down: SIGINT ends all sessions, SIGTERM waits for them, SIGQUIT is rough."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reap()

    def kill(self) -> None:
        """End it with SIGKILL, each process of it, as a crash of its machine does."""
        if self._process is None:
            return
        ids = self._pids()
        for pid in ids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Why: a server does not start beside what is left of the last one.
        eventually(lambda: not any(map(_is_alive, ids)), what="all processes of the server end")
        self._reap()

    def pause(self) -> None:
        """Freeze it: connections stay, nothing is answered."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                freeze(pid)

    def resume(self) -> None:
        """Resume a frozen server."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def restart(self) -> Self:
        """Stop it as an operator does (sessions end), and start it on the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it and remove its data."""
        if self.is_running:
            self.resume()
        self.stop(signal.SIGQUIT)
        self._remove_folder()

    @property
    def is_running(self) -> bool:
        """Whether the first process lives."""
        return self._process is not None and self._process.poll() is None

    def wait_for_standby(self) -> None:
        """From now on hold each commit until a standby has it."""
        self.execute(sql.SQL("alter system set synchronous_standby_names = '*'"))
        self.execute(sql.SQL("select pg_reload_conf()"))
        followers = sql.SQL("select 1 from pg_stat_replication where sync_state = 'sync'")
        eventually(lambda: self.execute(followers), what="a standby follows")

    def promote(self) -> None:
        """Make a standby the primary; its own is gone."""
        self.execute(sql.SQL("select pg_promote()"))

    # ------------------------------------------------------------------ databases

    def url(self, database: str = "postgres", user: str = USER) -> str:
        """Return the URL of a database as `store.url` takes it."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def make_database(self, template: str = "template1") -> str:
        """Make an empty database, or a copy of another one without connections."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, and end its connections."""
        self.execute(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
        )

    @contextlib.contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """Make a database, yield its URL, remove it."""
        name = self.make_database(template)
        try:
            yield self.url(name)
        finally:
            self.drop_database(name)

    def execute(
        self, query: sql.SQL | sql.Composed, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run one statement as superuser, by itself; returns its rows."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    # ------------------------------------------------------------------ for a failed test

    def log_tail(self, lines: int = 60) -> str:
        """Return the last lines that it logged."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return started(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"PostgreSQL at {self.folder}"

    # ------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _make_cluster(self) -> None:
        owner = _other_user()
        if owner is not None and _is_known(owner.pw_uid):
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._log = self.log_path.open("ab")
        options = ["-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        command = [program("initdb"), "-D", str(self._data), *options]
        if self._primary is not None:
            where = ["-d", self._primary.url(), "-D", str(self._data)]
            how = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
            command = [program("pg_basebackup"), *where, *how]
        if self._popen(command).wait(60) != 0:
            raise PostgresStartError(f"{command[0]} failed\n{self.log_tail()}")
        self._log.close()
        (self._data / "pg_hba.conf").write_text(self._access, encoding="utf-8")

    def _popen(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        other: dict[str, Any] = {}
        prefix: list[str] = []
        owner = _other_user()
        if owner is not None and _is_known(owner.pw_uid):
            other = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        elif owner is not None:
            ids = (f"--map-user={owner.pw_uid}", f"--map-group={owner.pw_gid}")
            prefix = ["unshare", "--user", *ids]
        return subprocess.Popen(
            [*prefix, *command],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Why: an interrupt at the terminal is for the program that owns the server.
            start_new_session=True,
            **other,
        )

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise PostgresStartError(f"{self} ended by itself\n{self.log_tail()}")
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _pids(self) -> list[int]:
        """Freeze the first process, so that it makes no more; return it and its children."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            freeze(self._process.pid)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [self._process.pid, *map(int, children.read_text().split())]

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._tether is not None:
            kill_tether(self._tether)
            self._tether = None
        if self._log is not None:
            self._log.close()
            self._log = None


def program(name: str) -> str:
    """Return the path of a program of the server: Debian has them in folders by version.

    Raises:
        FileNotFoundError: the server is not installed.
    """
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    found = sorted(versions, key=lambda path: int(path.parts[-3]), reverse=True)
    # Why last: what Debian has in the path chooses among its own clusters.
    found += [Path(path) for path in [shutil.which(name)] if path is not None]
    if not found:
        raise FileNotFoundError(f"{name} of PostgreSQL is not installed: deploy/prepare-machine")
    return str(found[0])


def _other_user() -> pwd.struct_passwd | None:
    """Return the user that the server must run as; None = the current one."""
    return pwd.getpwnam(USER) if os.geteuid() == 0 else None


def _is_known(uid: int) -> bool:
    """Return whether a user exists in our namespace."""
    ranges = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    return any(
        int(first) <= uid < int(first) + int(count)
        for first, _, count in (line.split() for line in ranges)
    )


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGQUIT)
        process.wait()
