"""What the PostgreSQL store does when the server, or the way to it, fails: nothing acknowledged is
lost, nothing hangs, and the words say what to do."""

import contextlib
import random
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from amqsidecar.errors import ConfigError, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores.postgres import database as postgres_database
from amqsidecar.stores.postgres.database import as_store_fault
from amqsidecar.stores.postgres.store import PostgresStore
from amqsidecar.stores.postgres.transaction import PostgresTransaction
from simulation.rules import DLQ
from simulation.world import StoreWorld
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import taken_row, took
from support.virtual_clock import VirtualClock

ALL = RowFilter()
Loss = Literal["request", "answer"]


class LossyProxy:
    """Passes bytes between clients and a server until a test makes it lose some."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._loss: Loss | None = None
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose(self, loss: Loss) -> None:
        """Lose the next bytes that go this way, and end that connection."""
        self._loss = loss

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._pass, args=(client,)))
                self._threads[-1].start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    try:
                        some = source.recv(1 << 16)
                    except OSError:
                        return
                    way = "request" if source is client else "answer"
                    if self._loss == way:
                        self._loss = None
                        return
                    if not some:
                        return
                    (server if source is client else client).sendall(some)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[LossyProxy]:
    proxy = LossyProxy(postgres.port)
    yield proxy
    proxy.close()


class LossyStore(EmptiedStore):
    """Loses the end of one of its transactions on the way."""

    def __init__(self, url: str, proxy: LossyProxy, loss: Loss, at: int, **options: Any) -> None:
        parts = urlsplit(url)
        super().__init__(url.replace(f":{parts.port}", f":{proxy.port}"), **options)
        self._proxy, self._loss, self._at, self.ended = proxy, loss, at, 0

    @contextlib.contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        with super().transaction() as tx:
            yield tx
            self.ended += 1
            if self.ended == self._at:
                self._proxy.lose(self._loss)


class LossyWorld(StoreWorld[PostgresStore]):
    """A sidecar whose store is in PostgreSQL."""

    make_store: Callable[[], LossyStore]

    def _new_store(self) -> PostgresStore:
        return self.make_store()


@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 7])
def test_a_lost_commit_loses_and_doubles_no_message(
    postgres: PostgresServer, proxy: LossyProxy, tmp_path: Path, loss: Loss, at: int
) -> None:
    """Whether it happened is unknown; what the engine does next is right in both cases."""
    empty(postgres.url())
    world = LossyWorld(tmp_path, max_taken=3, max_sent=2)
    world.make_store = lambda: LossyStore(
        postgres.url(), proxy, loss, at, clock=world.clock, instance_name="own"
    )
    for number in range(8):
        world.die(f"m{number}")
    failed = 0
    try:
        world.start()
    except StoreUnavailable:
        failed += 1
        world.connect()
    for _ in range(60):
        try:
            world.run(1)
        except StoreUnavailable:
            failed += 1
            world.connect()
    assert failed == 1
    assert Counter(world.bodies("orders")) == Counter(f"m{number}" for number in range(8))
    assert world.bodies(DLQ) == []
    assert world.store.list_rows(ALL, 10) == []
    assert world.store.tallies() == []
    world.kill()


def test_what_was_acknowledged_outlives_a_server_that_was_killed() -> None:
    """The server syncs; it is killed with all its processes in the middle of writes."""
    with PostgresServer(fsync=True) as server:
        store = PostgresStore(server.url(), clock=VirtualClock(), instance_name="own")
        store.open()
        acknowledged: set[int] = set()
        finished = begun = 0
        for _ in range(3):
            killer = threading.Timer(0.3, server.kill)
            with pytest.raises(StoreUnavailable):  # noqa: PT012
                while True:
                    row = taken_row(store.allocate_ids(1))
                    with store.transaction() as tx:
                        if begun > finished:
                            tx.finish_cycle(begun)
                        tx.record_cycle(begun + 1, [row], [], [took(row)])
                    finished, begun = begun, begun + 1
                    acknowledged.add(row.id)
                    # Why only now: a cycle that was begun is looked for afterwards.
                    if not killer.ident:
                        killer.start()
            killer.join()
            store.close()
            server.start()
            state = store.open()
            assert state.cycle >= finished
            assert state.unfinished is not None
            assert state.unfinished.cycle >= begun
            finished = begun = state.unfinished.cycle
            with store.transaction() as tx:
                tx.finish_cycle(finished)
            found = {row.id for row in store.list_rows(ALL, 1_000_000)}
            assert found >= acknowledged
            assert len(found) == finished == store.count_rows(ALL)
            assert store.allocate_ids(1) not in found
            assert all(store.history(f"test-{row_id:012d}") for row_id in sorted(found)[-20:])
        store.close()


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[EmptiedStore]:
    """An open store of a service."""
    empty(postgres.url())
    store = EmptiedStore(postgres.url(), clock=VirtualClock())
    store.lock_for_service()
    store.open()
    yield store
    store.close()


def write(store: PostgresStore) -> None:
    with store.transaction() as tx:
        tx.set_token_created()


@pytest.mark.parametrize("use", [PostgresStore.next_due_ms, write])
def test_a_server_that_hangs_is_given_up(
    use: Callable[[PostgresStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel still takes bytes, so no time limit of the server and none of TCP helps."""
    monkeypatch.setattr(postgres_database, "_GRACE_S", 0.2)
    with PostgresServer() as server:
        # Why: on a busy machine, making the tables takes longer than a statement may below.
        made = PostgresStore(server.url(), clock=VirtualClock())
        made.open()
        made.close()
        store = PostgresStore(server.url(), clock=VirtualClock(), statement_timeout_s=3)
        store.open()
        server.pause()
        with pytest.raises(StoreUnavailable, match="no answer for"):
            use(store)
        with pytest.raises(StoreUnavailable, match="the connection was lost"):  # noqa: SIM117
            with store.transaction():
                pytest.fail("must not begin")
        server.resume()
        store.close()
        assert store.open().cycle == 0
        store.close()


def test_after_a_restart_of_the_server_each_keeps_its_instance() -> None:
    """All connections are gone then, but their holders live."""
    with PostgresServer() as server:
        first, other = (PostgresStore(server.url(), clock=VirtualClock()) for _ in range(2))
        first.lock_for_service()
        other.lock_for_service()
        name = first.open().instance
        server.restart()
        assert other.open().instance != name
        with pytest.raises(StoreUnavailable):
            first.next_due_ms()
        first.close()
        assert first.open().instance == name
        first.close()
        other.close()


def test_a_statement_that_takes_too_long_is_ended(store: EmptiedStore) -> None:
    store._database.run("SET statement_timeout = 2000")
    with pytest.raises(StoreUnavailable, match="it took too long"):
        store._database.run("SELECT pg_sleep(30)")
    assert store.next_due_ms() is None


def test_opening_again_replaces_an_ended_connection(
    store: EmptiedStore, postgres: PostgresServer
) -> None:
    instance = store.open().instance
    pid = store._database.run("SELECT pg_backend_pid()")[0][0]
    with pytest.raises(StoreUnavailable, match="connection"), store.transaction() as tx:  # noqa: PT012
        postgres.execute(sql.SQL("SELECT pg_terminate_backend({}, 10000)").format(pid))
        tx.claim_due(1, 1)
    store.close()
    assert store.open().instance == instance


def test_a_fault_that_is_swallowed_commits_nothing(store: EmptiedStore) -> None:
    with pytest.raises(StoreUnavailable, match="nothing was changed"), store.transaction() as tx:  # noqa: PT012
        tx.set_token_created()
        with contextlib.suppress(AssertionError):
            store._database.run("SELECT 1 / 0")
    assert not store.open().token_created


def test_commits_are_synced_also_where_the_server_is_configured_not_to(
    postgres: PostgresServer,
) -> None:
    name = postgres.make_database()
    database = sql.Identifier(name)
    postgres.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(database))
    postgres.execute(
        sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'").format(
            database
        )
    )
    store = PostgresStore(postgres.url(name), clock=VirtualClock())
    store.open()
    assert store._database.run("SHOW synchronous_commit") == [("on",)]
    assert store._database.run("SHOW transaction_isolation") == [("read committed",)]
    store.close()


# What people read.


@pytest.fixture(scope="module")
def standby() -> Iterator[PostgresServer]:
    """A server that replays for ever and takes only reads."""
    with PostgresServer() as server:
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        yield server


def refusal(url: str, **options: Any) -> str:
    """Return the words of the refusal to open this store."""
    store = PostgresStore(url, clock=VirtualClock(), **options)
    with pytest.raises(StoreUnavailable) as refused:
        store.open()
    return str(refused.value)


def test_a_refusal_says_what_to_do(postgres: PostgresServer) -> None:
    words = refusal("postgresql://ann@127.0.0.1:1/schedule")
    assert words.startswith("the store postgresql://ann@127.0.0.1:")
    assert "check that the server runs" in words
    assert "the database does not exist; create it" in refusal(postgres.url("nowhere"))
    assert "the host name is unknown" in refusal("postgresql://ann@no.such.host.invalid/x")
    assert "is empty; the service creates the tables" in refusal(
        postgres.url("template1"), read_only=True
    )


def test_a_server_that_comes_back_is_not_taken_for_a_missing_database() -> None:
    said = psycopg.OperationalError("connection failed: FATAL: the database system is starting up")
    words = str(as_store_fault(said, "the store", "be opened"))
    assert words.endswith("the server is starting up or shutting down")


def test_a_read_only_standby_is_named(standby: PostgresServer) -> None:
    assert "add target_session_attrs=read-write" in refusal(standby.url())
    words = refusal(standby.url() + "?target_session_attrs=read-write")
    assert "add target_session_attrs=read-write" in words


@pytest.fixture
def ann(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a user with a password, in a database of her own where she may do nothing."""
    name = postgres.make_database()
    user = sql.Identifier(f"ann_{name}")
    postgres.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'open sesame'").format(user))
    yield postgres.url(name, user=f"ann_{name}")
    postgres.drop_database(name)
    postgres.execute(sql.SQL("DROP ROLE {}").format(user))


def test_a_wrong_password_is_reported_and_never_shown(ann: str) -> None:
    for password in ("open barley", None):
        words = refusal(ann, password=lambda password=password: password)
        assert "store.password_file" in words
        assert "barley" not in words


def test_a_missing_right_is_reported(ann: str, postgres: PostgresServer) -> None:
    words = refusal(ann, password=lambda: "open sesame")
    assert "permission denied for database" in words
    assert "an administrator must grant it, or create the schema" in words
    parts = urlsplit(ann)
    postgres.execute(
        sql.SQL("CREATE SCHEMA amqsidecar AUTHORIZATION {}").format(
            sql.Identifier(parts.username or "")
        ),
        parts.path[1:],
    )
    store = PostgresStore(ann, clock=VirtualClock(), password=lambda: "open sesame")
    store.open()
    store.close()


def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    postgres.execute(
        sql.SQL("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    )
    assert "create the database with ENCODING 'UTF8'" in refusal(postgres.url("latin"))
    postgres.drop_database("latin")


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://ann:open sesame@h:port/x", "postgresql://ann@h/x?password", "sesame sesame"],
)
def test_a_url_that_libpq_cant_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PostgresStore(dsn, clock=VirtualClock())
    assert "sesame" not in str(refused.value)


def test_no_text_of_a_message_stops_a_cycle(store: EmptiedStore) -> None:
    """What a message brings along may be of any length and hold any character."""
    chance = random.Random(1)
    hostile = "".join(chr(chance.randrange(1, 0x10FFFF)) for _ in range(9_000)) + "\0"
    texts = dict.fromkeys(
        ("destination", "source", "redelivery_id", "rule", "cause", "message_id"), hostile
    )
    row = taken_row(1, **{**texts, "destination": f"queue://{hostile}"})
    with store.transaction() as tx:
        tx.record_cycle(1, [row], [], [took(row)])
        tx.finish_cycle(1)
        assert [due.id for due in tx.claim_due(10_000, 1)] == [1]
    for row_filter in (
        RowFilter(destination=row.destination),
        RowFilter(redelivery_id=hostile),
        RowFilter(cause_contains=hostile[5_000:]),
    ):
        assert store.count_rows(row_filter) == len(store.list_rows(row_filter, 9)) == 1
    assert store.change(ALL, row_changes.cancel(5, "ann", ".final")) == 1
    assert len(store.history(hostile)) == 2
    assert [tally.count for tally in store.tallies()] == [1]
