"""What the PostgreSQL store costs per message and stage, on a server of its own.

Run it in `tests` with `python -m bench.bench_postgres_store`.

Prints the table of `bench_sqlite_store`, and how the server finds what is due among the most that
wait. The server syncs each commit, as in production. Nothing is asserted.
"""

import argparse
import os

from amqsidecar.clock import SystemClock
from amqsidecar.stores.postgres.database import QUERIES
from amqsidecar.stores.postgres.store import PostgresStore
from bench.bench_sqlite_store import FAR_MS, bench_all
from support.stores.postgres_server import PostgresServer

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
EXPLAINED = {"claim_due": {"now_ms": FAR_MS * 3, "limit": 1_000}, "next_due": {}}


def explain(store: PostgresStore) -> None:
    store._database.run("VACUUM ANALYZE")
    for name, values in EXPLAINED.items():
        connection = store._database._connected()
        plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) {QUERIES[name]}", values)
        print(f"\n{name}:", *(line for (line,) in plan), sep="\n  ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--waiting", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--size", type=int, default=1024, help="bytes per message")
    options = parser.parse_args()
    body = os.urandom(options.size)
    with PostgresServer(fsync=True, settings=SETTINGS) as server:

        def make(name: str) -> PostgresStore:
            return PostgresStore(server.url(), clock=SystemClock(), schema=name)

        store = bench_all(make, options.cycles, options.waiting, body)
        assert isinstance(store, PostgresStore)
        explain(store)
        store.close()


if __name__ == "__main__":
    main()
