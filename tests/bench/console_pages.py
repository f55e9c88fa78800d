"""How long each page and each list of the API takes with a million waiting.

    PYTHONPATH=tests .venv/bin/python -m bench.console_pages --folder FOLDER [--waiting 1000000]

fills a SQLite store in FOLDER, which a second run finds and uses, serves the real console from it
in a process of its own, and prints wall and processor time, p50 and p99 of 20 calls. *Cold* is the
first call of a new process on a file that the machine has forgotten; *warm* is one of many.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx2
from proton import Message

from amqsidecar.clock import SystemClock
from amqsidecar.http.api.api import routes as api_routes
from amqsidecar.http.app import make_app
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes as console_routes
from amqsidecar.http.serving import HttpServer
from amqsidecar.model.failure import failure_cause
from amqsidecar.model.operation import Action, OperationPace, OperationState, Selection
from amqsidecar.model.schedule import RowFilter, RowState, TakenRow
from amqsidecar.operations.operate import Wish, begin, carry_out
from amqsidecar.stores.sqlite.store import SqliteStore
from bench.ten_million.rows import Model, SqliteScale, load
from support.stores.opened import opened
from support.stores.rows import taken_row
from support.web.client import web_client
from support.web.in_process import OPEN_ACCESS, make_queries, policies_of_file

LIMIT_MS = 200
MANY = 20_000
"""Messages of the operation that is measured."""

PLACE = "queue://bench.1"
GROUP = failure_cause("java.net.ConnectException: backend b is away", expired=False)

_DESTINATIONS = 40
_BACKENDS = "abcdefghijklm"
_STATES = {7: RowState.HELD, 77: RowState.PARKED}
_RULES = """plugins:
  - redelivery:
      entries:
        - {queue: "bench.1>", maximum_redeliveries: 9, initial_redelivery_delay_ms: 60000}
      default_entry: {maximum_redeliveries: 5, initial_redelivery_delay_ms: 3600000}
"""

PAGES: Final = (
    "/",
    "/groups",
    "/groups?destination=bench.1",
    "/groups/one?destination=bench.1&group={group}",
    "/messages",
    "/messages?order=due",
    "/messages?state=held",
    "/messages?destination=bench.1",
    "/messages?cause=nowhere",
    "/messages?destination=bench.1&cause=nowhere&older=1m",
    "/messages?property=customer%3Dnobody",
    "/messages/one?id={middle}",
    "/messages/edit?id={middle}",
    "/act/retry",
    "/act/retry?destination=bench.1",
    "/act/hold?cause=nowhere",
    "/act/retry?property=customer%3Dnobody",
    "/operations",
    "/operations/1",
    "/policies",
    "/plots",
)
API: Final = (
    "/api/v1/status",
    "/api/v1/overview",
    "/api/v1/groups?limit=500",
    "/api/v1/messages?limit=500",
    "/api/v1/messages?state=held&limit=500",
    "/api/v1/messages?destination=bench.1&limit=500",
    "/api/v1/messages?cause=nowhere",
    "/api/v1/messages/{middle}",
    "/api/v1/preview?action=retry",
    "/api/v1/preview?action=retry&destination=bench.1",
    "/api/v1/preview?action=retry&cause=nowhere",
    "/api/v1/operations",
    "/api/v1/operations/1",
    "/api/v1/operations/1/members?limit=500",
    "/api/v1/notes?destination=bench.1&cause_group={group}",
    "/api/v1/policies",
    "/api/v1/openapi.json",
)
FILES: Final = ("/groups.csv", "/messages.csv?destination=bench.1", "/operations/1/members.csv")


class Various(Model):
    """Messages of many destinations and causes, some held and parked, due in a month."""

    def rows(self, first: int, count: int, now_ms: int) -> list[TakenRow]:
        return [self._row(number, now_ms) for number in range(first, first + count)]

    def _row(self, number: int, now_ms: int) -> TakenRow:
        cause = f"java.net.ConnectException: backend {_BACKENDS[number % 13]} is away"
        return TakenRow(
            id=number,
            state=_STATES.get(number % 100, RowState.WAITING),
            due_at_ms=now_ms + number * 1_000_003 % (30 * 24 * 3_600_000),
            destination=f"queue://bench.{number % _DESTINATIONS}",
            is_final=False,
            source="queue://ActiveMQ.DLQ",
            redelivery_id=f"{self.uid}-{number:012d}",
            redelivery_count=1 + number % 4,
            delay_ms=60_000,
            expiration_ms=0,
            rule="policy.yaml:3",
            cause=cause,
            cause_group=failure_cause(cause, expired=False),
            message_id=f"ID:bench-{number}",
            received_at_ms=now_ms - number * 7_919 % (24 * 3_600_000),
            encoding=self.row.encoding,
            message=self.row.message,
        )


class Took(NamedTuple):
    """Wall and processor time of one call, in milliseconds."""

    wall_ms: float
    cpu_ms: float


def fill(folder: Path, waiting: int) -> None:
    """Fill the store with waiting messages, and one finished operation that was followed."""
    scale, now_ms = SqliteScale(folder), SystemClock().now_ms()
    body = Message(body="x" * 500, properties={"customer": "anna", "tries": 3}).encode()
    store = scale.store()
    model = Various(taken_row(0, message=bytes(body)), store.reopen().uid)
    store.close()
    load(scale, model, waiting, now_ms)
    with scale.loading() as loading:
        assert isinstance(loading, SqliteStore)
        loading.open()
        selection = Selection(rows=RowFilter(destination=PLACE))
        wish = Wish(
            action=Action.RETRY, selection=selection, actor="cli:anna", pace=OperationPace()
        )
        operation = begin(loading, wish, now_ms, "bench")
        while operation.state is OperationState.RUNNING and operation.changed < MANY:
            operation = carry_out(
                loading, operation.id, "bench", ".x", SystemClock().now_ms
            ).operation


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve console and API from a new process while the block runs; gives address and process."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            with _running(folder) as address:
                os.write(writer, address.encode())
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    address = os.read(reader, 100).decode()
    os.close(reader)
    try:
        yield address, process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    path = folder / "schedule.db"
    (folder / "policy.yaml").write_text(_RULES)
    queries = make_queries(
        open_schedule=lambda: opened(SqliteStore(path, clock=SystemClock())),
        policies=policies_of_file(folder / "policy.yaml"),
    )
    console = Console(queries)
    routes = [*api_routes(queries), *console_routes(console)]
    server = HttpServer(make_app(queries, OPEN_ACCESS, routes, console.show_refusal))
    host, port = server.start("127.0.0.1", 0)
    yield f"http://{host}:{port}"


def cold_calls(folder: Path, path: str, calls: int) -> list[Took]:
    """Call a page first of all, in as many new processes."""
    found = []
    for _ in range(calls):
        for file in folder.glob("schedule.db*"):
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with served(folder) as (address, process), web_client(address) as client:
            client.get("/healthz")
            found.append(_call(client, path, process))
    return found


def warm_calls(client: httpx2.Client, path: str, process: int, calls: int) -> list[Took]:
    """Call a page again and again."""
    _call(client, path, process)
    return [_call(client, path, process) for _ in range(calls)]


def _call(client: httpx2.Client, path: str, process: int) -> Took:
    began_s, began_cpu_ms = time.perf_counter(), _cpu_ms(process)
    answer = client.get(path, timeout=120)
    took = Took((time.perf_counter() - began_s) * 1000, _cpu_ms(process) - began_cpu_ms)
    assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
    return took


def _cpu_ms(process: int) -> float:
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def _row(path: str, took: list[Took]) -> str:
    figures = [_at(sorted(one), share) for one in zip(*took, strict=True) for share in (0.5, 0.99)]
    over = " <- over" if figures[2] > LIMIT_MS else ""
    return f"{path:<64}" + "".join(f"{figure:>9.1f}" for figure in figures) + over


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    """Fill, call, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of the addresses that are called")
    asked = parser.parse_args()
    if not (asked.folder / "schedule.db").exists():
        asked.folder.mkdir(parents=True, exist_ok=True)
        fill(asked.folder, asked.waiting)
    names = {"group": quote(GROUP), "middle": asked.waiting // 2}
    paths = [path.format(**names) for path in (*PAGES, *API, *FILES) if asked.only in path]
    print(f"{'milliseconds':<64}{'wall p50':>9}{'p99':>9}{'cpu p50':>9}{'p99':>9}")
    print("cold", flush=True)
    for path in paths:
        print(_row(path, cold_calls(asked.folder, path, asked.calls)), flush=True)
    print("warm", flush=True)
    with served(asked.folder) as (address, process), web_client(address) as client:
        for path in paths:
            print(_row(path, warm_calls(client, path, process, asked.calls)), flush=True)


if __name__ == "__main__":
    main()
