"""The console for tests: a real store behind a real server on loopback, open to whoever asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amqsidecar.clock import SystemClock
from amqsidecar.http.app import make_app
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes
from amqsidecar.http.serving import HttpServer
from amqsidecar.http.store_queries import OpenStore
from amqsidecar.stores.sqlite.store import SqliteStore
from support.web import OPEN_ACCESS, make_desk


@contextmanager
def running_console(path: Path | None, **tools: Any) -> Iterator[str]:
    """Serve while the block runs; gives the address.

    Args:
        path: of the store's file; None = the broker keeps what waits.
        tools: see `Tools`.
    """

    def make_store() -> OpenStore:
        assert path is not None
        return SqliteStore(path, clock=SystemClock())

    desk = make_desk(make_store=None if path is None else make_store, **tools)
    console = Console(desk)
    server = HttpServer(make_app(desk, OPEN_ACCESS, routes(console), console.show_refusal))
    host, port = server.start("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        desk.close()
