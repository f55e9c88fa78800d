"""The benchmark of ten million waiting messages on PostgreSQL: `measure`, with another store.

Run it in `tests` with `python -m bench.ten_million.postgres`. The server is one of its own, syncs
each commit, and has the memory that a small machine would give it.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from amqsidecar.clock import SystemClock
from amqsidecar.store import Store
from amqsidecar.stores.postgres.store import PostgresStore
from bench.dead_letters import dead_letters
from bench.ten_million.measure import (
    STEPS,
    Sizes,
    Step,
    measure_meanwhile,
    measure_steps,
    table_of_meanwhile,
    table_of_steps,
)
from bench.ten_million.rows import Model
from bench.ten_million.service import take_model
from support.brokers.real import FULL_SPEED, ArtemisBroker
from support.jms.process import LONG_RUN, shared_process
from support.machine.processes import machine_words
from support.stores.postgres_server import PostgresServer

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "maintenance_work_mem": "1GB"}

COPY_ROWS = """
INSERT INTO redelivery
SELECT id, 0, %(due_at_ms)s
    + CASE id %% 2 WHEN 0 THEN id * 250 ELSE id * 1000003337 %% 2592000000 END,
    'queue://bench.scale.' || id / 2 %% 10, false, %(source)s,
    %(uid)s || '-' || lpad(id::text, 12, '0'), 1, %(delay_ms)s, 0, %(rule)s, %(encoding)s,
    %(received_at_ms)s, length(%(message)s), %(cause)s, %(message_id)s || '-' || id
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS id
"""
COPY_MESSAGES = """
INSERT INTO message
SELECT id, %(message)s FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS id
"""
COUNT = """
INSERT INTO tally AS t SELECT 0, destination, 0, count(*) FROM redelivery
WHERE id BETWEEN %(first)s AND %(last)s GROUP BY destination
ON CONFLICT (instance, destination, state) DO UPDATE SET count = t.count + excluded.count
"""


class PostgresScale:
    """A database."""

    def __init__(self, server: PostgresServer) -> None:
        self.name = "PostgreSQL"
        self.url = server.url(server.make_database())

    def store(self) -> PostgresStore:
        return PostgresStore(self.url, clock=SystemClock())

    @contextmanager
    def loading(self) -> Iterator[Store]:
        """Without syncs."""
        store = self.store()
        store.open()
        store._database.run("SET synchronous_commit = off")
        yield store
        store.close()

    def load(self, model: Model, count: int) -> None:
        """Add this many waiting messages, made by the server itself."""
        with self.loading() as store:
            assert isinstance(store, PostgresStore)
            connection = store._database._connected()
            connection.limit_s = 3600
            run = connection.execute
            run("SET statement_timeout = 0")
            first = store.allocate_ids(count)
            values = msgspec.structs.asdict(model.row)
            values |= {"first": first, "last": first + count - 1, "uid": model.uid}
            for statement in (COPY_ROWS, COPY_MESSAGES, COUNT):
                run(statement, values)
            run("VACUUM ANALYZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    options = parser.parse_args()
    shared_process(LONG_RUN)
    sizes = Sizes(cycles=40, moves=20_000, per_second=500, seconds=20, rest_s=5)
    print(f"--rows {options.rows}, {machine_words()}", flush=True)
    with (
        TemporaryDirectory(prefix="scale-", dir=options.folder) as name,
        PostgresServer(fsync=True, settings=SETTINGS) as server,
        ArtemisBroker(jvm_flags=FULL_SPEED) as broker,
        dead_letters(broker, "bench.scaled") as dead,
    ):
        folder, scale = Path(name), PostgresScale(server)
        model = take_model(scale, folder, dead)
        found: list[Step] = []
        waiting = 1
        for count in (STEPS[0], options.rows):
            began_s = time.monotonic()
            scale.load(model, count - waiting)
            waiting = count
            print(f"{waiting:,} loaded in {time.monotonic() - began_s:.0f} s", flush=True)
            (step,) = measure_steps(scale, model, folder, dead, [1], sizes)
            found.append(step._replace(waiting=waiting, bytes_each=step.bytes_each / waiting))
            print(table_of_steps(found), flush=True)
        beside = []
        for one in measure_meanwhile(scale, model, folder, dead, options.rows, sizes):
            beside.append(one)
            print(table_of_meanwhile(beside), flush=True)


if __name__ == "__main__":
    main()
