"""What strangers make large stays small in memory, and what is large together is refused."""

import asyncio
import csv
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.http import exports, guard
from amqsidecar.http.access import Access, Role, Signing
from amqsidecar.http.answers import show_refusal
from amqsidecar.http.api.views import ROWS_BYTES_MAX
from amqsidecar.http.guard import MAX_BODY_BYTES, Guard
from amqsidecar.model.cause import KEPT_BYTES_MAX, ROW_BYTES_MAX
from amqsidecar.operations import message
from support.waiting import PATIENCE_S
from support.web.console_store import dead, keep, open_store
from support.web.site import Site, running_site

ROWS = 120
CAUSE = "com.acme.Outer: x\n" + "\tat com.acme.Frame\n" * 55_000 + "Caused by: com.acme.Root: y"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With rows as versions wrote them that kept causes whole: a megabyte each."""
    folder = tmp_path_factory.mktemp("site")
    with running_site(folder) as running:
        store = open_store(folder / "schedule.db")
        first = store.allocate_ids(ROWS)
        keep(store, [dead(first + n, "short", 1_000) for n in range(ROWS)])
        store.close()
        with sqlite3.connect(folder / "schedule.db") as database:
            database.execute(
                "UPDATE redelivery SET cause = ?, reason = ?, message_id = ? WHERE id >= ?",
                (CAUSE, "\x01" * 2**20, "m" * 2**20, first),
            )
        database.close()
        yield running


def rows_of(client: httpx2.Client) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the bytes and the rows of each page."""
    after = ""
    while after is not None:
        answer = client.get(f"/api/v1/messages?limit=500{after and f'&after={after}'}")
        assert answer.status_code == 200, answer.text
        yield len(answer.content), answer.json()["rows"]
        after = answer.json()["next"]


def test_a_page_of_rows_is_bounded_by_bytes_and_nothing_is_left_out(site: Site) -> None:
    pages = list(rows_of(site.client("token", Role.VIEWER)))
    rows = [row for _, page in pages for row in page]
    assert len(pages) > 1
    assert max(size for size, _ in pages) < ROWS_BYTES_MAX + 20_000
    assert len({row["id"] for row in rows}) == len(rows) == ROWS + 5
    assert max(len((row["cause"] or "").encode()) for row in rows) <= ROW_BYTES_MAX


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/messages",
        "/groups",
        "/api/v1/overview",
        "/api/v1/groups",
        "/api/v1/messages/{newest}",
    ],
)
def test_no_answer_is_large_because_of_what_is_in_it(site: Site, path: str) -> None:
    client = site.client("token", Role.VIEWER)
    newest = client.get("/api/v1/messages?limit=1").json()["rows"][0]["id"]
    answer = client.get(path.format(newest=newest))
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 2**21


def test_an_export_is_streamed(site: Site) -> None:
    client = site.client("token", Role.VIEWER)
    with client.stream("GET", "/api/v1/messages.csv") as answer:
        pieces = list(answer.iter_raw())
        assert "content-length" not in answer.headers
    assert max(map(len, pieces)) < 4 * 2**20
    rows = list(csv.DictReader(b"".join(pieces).decode().splitlines(keepends=True)))
    assert len(rows) == ROWS + 5
    assert max(len(row["cause"]) for row in rows) <= KEPT_BYTES_MAX


def test_an_export_reads_a_page_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", 7)
    answer = site.client("token").get("/api/v1/messages.csv")
    ids = [int(row["id"]) for row in csv.DictReader(answer.text.splitlines(keepends=True))]
    assert sorted(set(ids), reverse=True) == ids
    assert len(ids) == ROWS + 5


def test_a_message_that_is_too_large_is_not_opened(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "VIEWED_BYTES_MAX", 10)
    page = site.client("token").get("/api/v1/messages/1").json()
    assert "download it" in page["view"]["problems"][0]
    assert page["view"]["body"]["text"] == ""
    assert len(site.client("token").get("/api/v1/messages/1/content").content) > 10


# --- before the body is read -------------------------------------------------------------------


async def raw(site: Site, head: str) -> bytes:
    """Send only the head of a request, and return what comes until the connection ends."""
    host, _, port = site.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /api/v1/operations HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
    await writer.drain()
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    finally:
        writer.close()


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, b"403"), (None, b"401")])
def test_no_body_is_read_without_the_right_to_changes(
    site: Site, role: Role | None, status: bytes
) -> None:
    token = "" if role is None else f"Authorization: Bearer {site.tokens[role]}\r\n"
    head = f"{token}Content-Type: application/json\r\nContent-Length: {MAX_BODY_BYTES}\r\n"
    assert asyncio.run(raw(site, head)).split()[1] == status


def test_a_request_of_two_lengths_ends_the_connection(site: Site) -> None:
    token = f"Authorization: Bearer {site.tokens[Role.OPERATOR]}\r\n"
    head = f"{token}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    answer = asyncio.run(raw(site, head))
    assert answer.split()[1] == b"400"
    assert b"connection: close" in answer.lower()


# --- what all share ----------------------------------------------------------------------------


class Guarded:
    """A guard before an application that holds its answers back until the test frees them."""

    def __init__(self, size: int) -> None:
        self.may_end = asyncio.Event()

        async def large(request: Request) -> Response:
            await request.body()
            await self.may_end.wait()
            return Response(b"x" * size)

        app = Starlette(routes=[Route("/large", large, methods=["GET", "POST"])])
        self.guard = Guard(app, Access([], Signing("k" * 32)), show_refusal)

    async def ask(
        self, method: str, body: bytes = b"", read: asyncio.Event | None = None
    ) -> tuple[int, int]:
        """Return status and size of an answer whose pieces are read when `read` is set."""
        status = size = 0
        given = [{"type": "http.request", "body": body, "more_body": False}]
        csrf = self.guard._access._csrf.dumps("local")

        async def receive() -> Any:
            return given.pop() if given else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif read is not None and status == 200:
                await read.wait()
            assert len(message.get("body", b"")) <= 65_536
            size += len(message.get("body", b""))

        scope = {
            "type": "http",
            "method": method,
            "path": "/large",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"x-csrf-token", csrf.encode()),
            ],
        }
        await self.guard(scope, receive, send)
        return status, size


async def test_bodies_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODIES_BYTES_MAX", 1_000)

    guarded = Guarded(1)
    waiting = asyncio.create_task(guarded.ask("POST", b"b" * 900))
    await asyncio.sleep(0)
    while not guarded.guard._bodies._used:
        await asyncio.sleep(0)
    assert (await guarded.ask("POST", b"b" * 900))[0] == 503
    guarded.may_end.set()
    assert (await waiting)[0] == 200
    assert (await guarded.ask("POST", b"b" * 900))[0] == 200


async def test_unread_answers_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWERS_BYTES_MAX", 300_000)

    guarded = Guarded(200_000)
    guarded.may_end.set()
    read = asyncio.Event()
    unread = asyncio.create_task(guarded.ask("GET", read=read))
    while not guarded.guard.answers._used:
        await asyncio.sleep(0)
    assert (await guarded.ask("GET"))[0] == 503
    read.set()
    assert await unread == (200, 200_000)
    assert await guarded.ask("GET") == (200, 200_000)


def test_json_is_still_json(site: Site) -> None:
    assert json.loads(site.client("token").get("/api/v1/status").content)["total"] == ROWS + 5
