"""What strangers and viewers try over HTTP: each of these once worked, or was thought to."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.http.access import HttpRefused, Role
from amqsidecar.http.guard import MAX_LOGIN_BYTES
from amqsidecar.http.live import MAX_LISTENERS, Live
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.opened import opened
from support.waiting import PATIENCE_S
from support.web.in_process import caller_as, make_queries
from support.web.site import PASSWORD, Site, fill, running_site

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("attacked")) as running:
        yield running


def raw_status(site: Site, head: str) -> int:
    """Return the status of a request that is sent as it is written, without its body."""
    host, _, port = site.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(f"{head}\r\nHost: {site.address}\r\n\r\n".encode())
        return int(connection.recv(4096).split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/status/",
        "//api/v1/status",
        "/./messages",
        "/metrics/../messages",
        "/metrics%2f..%2fmessages",
        "/metrics%00",
        "/MESSAGES",
        "/messages%3f",
        "http://elsewhere/messages",
    ],
)
def test_no_way_of_writing_a_path_leads_past_the_guard(site: Site, path: str) -> None:
    assert raw_status(site, f"GET {path} HTTP/1.1") == 401


@pytest.mark.parametrize(
    "path",
    [
        "/static/../messages",
        "/static/..%2fmessages",
        "/static/..%2f..%2fconsole.py",
        "/static/%2e%2e/%2e%2e/console.py",
        "/login/../messages",
        "/login%2f..%2fmessages",
    ],
)
def test_what_is_open_to_all_has_nothing_below_it(site: Site, path: str) -> None:
    assert raw_status(site, f"GET {path} HTTP/1.1") == 404


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "PROPFIND"])
def test_a_viewer_may_no_other_method(site: Site, method: str) -> None:
    client = site.client("token", Role.VIEWER)
    override = {"X-HTTP-Method-Override": "GET"}
    assert client.request(method, "/messages", headers=override).status_code == 403
    assert client.post("/operations/1/pause?_method=GET", headers=override).status_code == 403


def test_no_body_is_read_before_authentication(site: Site) -> None:
    """Or 64 strangers fill half a gigabyte. The answer comes although the body never does."""
    head = f"POST /api/v1/operations HTTP/1.1\r\nContent-Length: 8000000\r\nContent-Type: {FORM}"
    assert raw_status(site, head) == 401


@pytest.mark.parametrize("body", [b"&" * 1_000_000, b"password=" + b"%41" * 300_000])
def test_the_log_in_takes_little(site: Site, body: bytes) -> None:
    answer = site.client().post("/login", content=body, headers=FORM)
    assert answer.status_code == 413
    assert str(MAX_LOGIN_BYTES) in answer.text


@pytest.mark.parametrize("codec", ["punycode", "idna", "unicode_escape", "utf-8"])
def test_no_form_names_a_codec(site: Site, codec: str) -> None:
    """Those of Python raise unexpected errors, or take the time of the square of the length."""
    part = b'--X\r\nContent-Disposition: form-data; name="password"\r\n\r\n\\ud800\r\n--X--\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary=X; charset={codec}"}
    assert site.client().post("/login", content=part, headers=headers).status_code == 415
    operator = site.client("token")
    assert operator.post("/act/retry?id=1", content=part, headers=headers).status_code == 415


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "x"])
def test_a_form_of_another_site_that_looks_like_json_is_no_change(site: Site, kind: str) -> None:
    client = site.client("password")
    wanted = {"action": "discard", "filter": {"id": [1]}, "expected": 1}
    for csrf in ({}, site.csrf(client)):
        headers = {"Content-Type": kind, **csrf}
        answer = client.post("/api/v1/operations", content=json.dumps(wanted), headers=headers)
        assert answer.status_code in (403, 415)


@pytest.mark.parametrize("expected", ["9" * 5000, "²", "-1", "x"])
def test_a_count_that_is_none_is_said_to_be_none(site: Site, expected: str) -> None:
    answer = site.client("token").post("/act/hold?id=1", data={"expected": expected})
    assert answer.status_code == 422
    assert "expected a number" in answer.text


@pytest.mark.parametrize("target", ["a\0b", "a\r\nb", "a\u202eb", "queue://a\x1b[2J"])
def test_a_target_is_what_it_looks_like(site: Site, target: str) -> None:
    wanted = {"action": "redirect", "filter": {"id": [1]}, "expected": 1, "target": target}
    assert site.client("token").post("/api/v1/operations", json=wanted).status_code == 400


async def test_no_more_listen_than_may(tmp_path: Path) -> None:
    """Also where all of them come at once."""
    fill(tmp_path / "schedule.db")

    queries = make_queries(
        open_schedule=lambda: opened(SqliteStore(tmp_path / "schedule.db", clock=SystemClock()))
    )
    live = Live(queries, every_s=0.01)
    try:
        asked = [live.listen(caller_as()) for _ in range(MAX_LISTENERS + 5)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        heard = [one for one in found if not isinstance(one, BaseException)]
        refused = [one for one in found if isinstance(one, HttpRefused)]
        assert len(heard) + len(refused) == len(found)
        assert len(heard) == MAX_LISTENERS
        for one in heard:
            assert (await anext(one)).startswith(b"event: counters")
        # A listener that goes makes room, also if it never read. The loop closes both of its
        # generators in steps of their own, so the room comes some turns later.
        del one, heard, found
        async with asyncio.timeout(60):
            while len(live._listeners) == MAX_LISTENERS:
                await asyncio.sleep(0.01)
        await anext(await live.listen(caller_as()))
    finally:
        queries.close()


def test_a_client_can_not_choose_its_session(site: Site) -> None:
    """Whatever the browser had before, a log-in begins a session of its own."""
    client = site.client("password")
    before = client.cookies["amqsidecar_session"]
    form = {"name": "operator", "password": PASSWORD}
    client.post("/login", data=form)
    assert client.cookies["amqsidecar_session"] != before


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/messages?property=customer=anna",
        "/api/v1/preview?action=retry&property=customer=anna",
        "/messages?property=customer=anna",
        "/act/retry?property=customer=anna",
        "/api/v1/messages?contains=anna",
        "/api/v1/preview?action=retry&contains=anna",
        "/messages?contains=anna",
        "/act/retry?contains=anna",
    ],
)
def test_nobody_finds_by_a_filter_what_they_don_t_see(site: Site, path: str) -> None:
    """A match reveals content."""
    assert site.client("token", Role.VIEWER).get(path).status_code == 403
    assert site.client("token", Role.OPERATOR).get(path).status_code == 200


# --- pages for people who are not let in --------------------------------------------------------


@pytest.mark.parametrize("accept", ["text/html,*/*", "*/*"])
def test_a_person_gets_a_page_and_a_program_a_line(site: Site, accept: str) -> None:
    client = site.client("token", Role.VIEWER)
    client.headers["Accept"] = accept
    kind = "text/html; charset=utf-8" if "html" in accept else "text/plain; charset=utf-8"
    nobody = site.client()
    nobody.headers["Accept"] = accept
    for asker, method, path, status in (
        (client, "GET", "/nowhere<script>", 404),
        (client, "POST", "/act/retry", 403),
        (nobody, "GET", "/login/nowhere", 404),
        (nobody, "POST", "/act/retry", 401),
    ):
        answer = asker.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
        assert "<script>" not in answer.text or "html" not in kind
        assert ("Log out" in answer.text) is False
    problem = client.get("/api/v1/nowhere")
    assert problem.headers["content-type"] == "application/problem+json"


# --- reports ------------------------------------------------------------------------------------


def test_a_report_is_shown_shut_in(site: Site) -> None:
    folder = site.folder / "reports" / "recovery <b>"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<h1>Recovery</h1>")
    viewer = site.client("token", Role.VIEWER)
    assert "recovery &lt;b&gt;" in viewer.get("/reports").text
    answer = viewer.get("/reports/one", params={"name": "recovery <b>"})
    assert answer.text == "<h1>Recovery</h1>"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    assert answer.headers["cross-origin-opener-policy"] == "unsafe-none"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert site.client().get("/reports/one", params={"name": "recovery <b>"}).status_code == 401


@pytest.mark.parametrize("name", ["..", "../users", "../reports/recovery <b>", "/etc", "", "x\0"])
def test_no_other_file_is_a_report(site: Site, name: str) -> None:
    answer = site.client("token").get("/reports/one", params={"name": name})
    assert answer.status_code == 404
    assert "operator" not in answer.text.partition("<main")[2]
