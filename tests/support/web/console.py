"""The console for tests: a real store behind a real server on loopback, without a log-in."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from amqsidecar.clock import SystemClock
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes
from amqsidecar.http.serving import HttpServer
from amqsidecar.schedule import Schedule
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.opened import opened
from support.web.client import web_client
from support.web.in_process import OPEN_ACCESS, make_queries


@contextmanager
def running_console(path: Path | None, **tools: Any) -> Iterator[str]:
    """Serve while the block runs; gives the address.

    Args:
        path: of the store's file; None = the broker keeps what waits.
        tools: see `Tools`.
    """

    def open_schedule() -> Schedule:
        assert path is not None
        return opened(SqliteStore(path, clock=SystemClock()))

    queries = make_queries(open_schedule=None if path is None else open_schedule, **tools)
    console = Console(queries)
    server = HttpServer(
        make_app(probes_of(queries), OPEN_ACCESS, routes(console), console.show_refusal)
    )
    host, port = server.start("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        queries.close()


@contextmanager
def console_client(path: Path | None, **tools: Any) -> Iterator[httpx2.Client]:
    """Serve as `running_console` does; gives a client."""
    with running_console(path, **tools) as address, web_client(address) as client:
        yield client
