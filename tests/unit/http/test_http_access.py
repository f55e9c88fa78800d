"""Rights over HTTP: every route, by every authentication method, with every role."""

import re
import time
from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import product
from typing import Self

import httpx2
import pytest
from itsdangerous import TimestampSigner
from starlette.routing import Route

from amqsidecar.http.access import TRIALS, Role
from amqsidecar.http.authentication import cookies as access_cookies
from amqsidecar.http.authentication import session as access_session
from support.audit import audited
from support.web.site import GROUPS_HEADER, PASSWORD, USER_HEADER, Site, running_site

WAYS = ("token", "password", "oidc", "proxy")
HOLDS_MESSAGES = ("/content", "/download", "/messages/edit")
"""Not for viewers, unless `http.bodies` says so."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


def places(site: Site) -> list[tuple[str, str, Route]]:
    """Return each method and path of each route."""
    return [
        (method, re.sub(r"{.*?}", "1", route.path), route)
        for route in site.routes
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


def status_of(client: httpx2.Client, method: str, path: str, **headers: str) -> int:
    with client.stream(method, path, headers=headers) as answer:
        return answer.status_code


def is_public(path: str) -> bool:
    return path in ("/metrics", "/healthz", "/readyz") or path.startswith(("/static/", "/login"))


def test_there_are_routes_of_every_kind(site: Site) -> None:
    """So that the tests below can't pass by finding nothing."""
    found = {(method, path) for method, path, _ in places(site)}
    assert found >= {
        ("GET", "/"),
        ("GET", "/metrics"),
        ("GET", "/api/v1/events"),
        ("POST", "/api/v1/operations"),
        ("POST", "/login"),
        ("POST", "/logout"),
    }


def test_an_anonymous_caller_sees_metrics_health_and_the_log_in_only(site: Site) -> None:
    client = site.client()
    for method, path, _ in places(site):
        assert (status_of(client, method, path) == 401) != is_public(path), (method, path)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
@pytest.mark.parametrize("way", WAYS)
def test_a_viewer_sees_all_and_changes_nothing_and_an_operator_may_all(
    site: Site, way: str, role: Role
) -> None:
    client = site.client(way, role)
    csrf = site.csrf(client)
    for method, path, _ in places(site):
        if is_public(path) or path == "/logout":
            continue
        status = status_of(client, method, path, **csrf)
        is_change = method != "GET" and path not in TRIALS
        is_refused = role is Role.VIEWER and (is_change or path.endswith(HOLDS_MESSAGES))
        assert (status == 403) == is_refused, (method, path, status)
        assert status < 500, (method, path, status)
        assert status != 401, (method, path)


@pytest.mark.parametrize("way", WAYS)
def test_a_change_needs_the_token_of_the_session_but_for_a_bearer(site: Site, way: str) -> None:
    client = site.client(way)
    other = site.csrf(site.client("oidc" if way == "password" else "password"))
    for method, path, _ in places(site):
        if is_public(path) or method == "GET":
            continue
        for headers in ({}, {"X-CSRF-Token": "x"}, other):
            status = status_of(client, method, path, **headers)
            assert (status == 403) == (way != "token"), (method, path, status)


@pytest.mark.parametrize("way", ["password", "oidc", "proxy"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_another_site_sends_is_refused(site: Site, way: str, headers: dict[str, str]) -> None:
    client = site.client(way)
    csrf = site.csrf(client)
    path = "/api/v1/operations/1/pause"
    assert status_of(client, "POST", path, **csrf, **headers) == 403
    ours = {"Origin": f"http://{site.address}", "Sec-Fetch-Site": "same-origin"}
    assert status_of(client, "POST", path, **csrf, **ours) == 404


def test_another_site_can_t_log_anybody_in(site: Site) -> None:
    form = {"name": "operator", "password": PASSWORD}
    headers = {"Origin": "http://evil.example"}
    assert site.client().post("/login", data=form, headers=headers).status_code == 403


def test_a_form_may_carry_the_token(site: Site) -> None:
    client = site.client("password")
    token = site.csrf(client)["X-CSRF-Token"]
    assert client.post("/logout", data={"csrf": "x" + token}).status_code == 403
    assert client.post("/logout", data={"csrf": token}).status_code == 303


def test_every_answer_is_safe_to_show(site: Site) -> None:
    client = site.client("token")
    for method, path, _ in places(site):
        with client.stream(method, path) as answer:
            headers = answer.headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        if not path.startswith("/static/"):
            assert headers["cache-control"] == "no-store", path


# --- ways in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["x", "amqs_", "x y"])
def test_an_unknown_token_is_refused(site: Site, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    answer = site.client().get("/api/v1/status", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_session_ends_with_the_log_out_also_for_a_kept_cookie(site: Site) -> None:
    client = site.client("password")
    kept = dict(client.cookies)
    assert client.get("/api/v1/status").status_code == 200
    assert client.post("/logout", headers=site.csrf(client)).status_code == 303
    assert "amqsidecar_session" not in client.cookies
    again = site.client()
    again.cookies.update(kept)
    assert again.get("/api/v1/status").status_code == 401


def test_a_cookie_is_for_our_pages_only(site: Site) -> None:
    form = {"name": "viewer", "password": PASSWORD}
    cookie = site.client().post("/login", data=form).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    headers = {"X-Forwarded-Proto": "https"}
    cookie = site.client().post("/login", data=form, headers=headers).headers["set-cookie"]
    assert "secure" in cookie.lower()


def test_a_forged_session_counts_nothing(site: Site) -> None:
    client = site.client("oidc")
    name, value = next(iter(client.cookies.items()))
    for forged in (value[:-2], "x" + value, value.swapcase(), "", "a.b.c"):
        client.cookies.set(name, forged)
        assert client.get("/api/v1/status").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        [(USER_HEADER, "carl")],
        [(USER_HEADER, "carl"), (GROUPS_HEADER, "staff")],
        [(USER_HEADER, ""), (GROUPS_HEADER, "operators")],
        [(GROUPS_HEADER, "operators")],
        [(USER_HEADER, "carl"), (USER_HEADER, "eve"), (GROUPS_HEADER, "operators")],
        [(USER_HEADER, "carl"), (GROUPS_HEADER, "operators"), (GROUPS_HEADER, "staff")],
    ],
)
def test_a_proxy_has_to_name_one_person_with_a_role(
    site: Site, headers: list[tuple[str, str]]
) -> None:
    assert site.client().get("/api/v1/status", headers=headers).status_code == 401


def test_a_stranger_can_t_say_what_a_proxy_says(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("distrust")
    with running_site(folder, trusted_proxies=()) as site:
        assert site.client("proxy").get("/api/v1/status").status_code == 401


def test_a_page_leads_to_the_log_in_and_back(site: Site) -> None:
    """By a page that goes on, not by a redirect, so that the session comes along."""
    client = site.client()
    answer = client.get("/groups?destination=queue%3A%2F%2Forders")
    assert answer.status_code == 401
    to = re.search(r'url=([^"]*)', answer.text)
    assert to is not None
    assert to[1] == "/login?next=%2Fgroups%3Fdestination%3Dqueue%253A%252F%252Forders"
    form = {"name": "viewer", "password": PASSWORD, "next": "/groups?destination=x"}
    assert client.post("/login", data=form).headers["location"] == "/groups?destination=x"
    assert client.get(to[1]).status_code == 303


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil", "x", "/\n"])
def test_the_log_in_leads_nowhere_else(site: Site, to: str) -> None:
    form = {"name": "viewer", "password": PASSWORD, "next": to}
    assert site.client().post("/login", data=form).headers["location"] == "/"


def test_files_are_read_again_when_they_change(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_site(tmp_path_factory.mktemp("changing")) as site:
        by_token, by_password = site.client("token"), site.client("password")
        assert by_token.get("/api/v1/status").status_code == 200
        assert by_password.get("/api/v1/session").json()["role"] == "operator"
        users = site.folder / "users"
        users.write_text(users.read_text().replace("operator operator", "operator viewer"))
        assert by_password.get("/api/v1/session").json()["role"] == "viewer"
        for name, client in (("tokens", by_token), ("users", by_password)):
            whole = (site.folder / name).read_text()
            (site.folder / name).write_text("what is this\n")
            assert client.get("/api/v1/status").status_code == 401
            (site.folder / name).write_text(whole)
            assert client.get("/api/v1/status").status_code == 200
            (site.folder / name).unlink()
            assert client.get("/api/v1/status").status_code == 401


def test_actors_are_named_in_events(site: Site) -> None:
    for way, role in product(WAYS, Role):
        answer = site.client(way, role).get("/api/v1/session").json()
        assert answer["actor"].startswith("api:")
        assert (answer["way"], answer["role"]) == (way, role)
        assert bool(answer["csrf"]) == (way != "token")


# --- the audit --------------------------------------------------------------------------------


def test_refused_changes_and_log_ins_are_audited_with_their_actor(site: Site) -> None:
    with audited() as lines:
        client = site.client("password")
        path = "/api/v1/operations/7/pause"
        client.post(path, headers=site.csrf(client))
        client.post(path)
        client.get("/api/v1/status")
        viewer = site.client("token", Role.VIEWER)
        viewer.post(path, headers={"X-Forwarded-For": "203.0.113.7"})
        site.client().post(path)
        site.client().get("/api/v1/status", headers={"Authorization": "Bearer nobody's"})
        site.client().post("/login", data={"name": "eve", "password": "x"})
        client.post("/logout", headers=site.csrf(client))
        client.get("/healthz")  # A line is written after the answer.

    def find(action: str) -> list[tuple[object, ...]]:
        names = ("user.name", "amqsidecar.way", "event.outcome", "http.response.status_code")
        return [tuple(x.get(name) for name in names) for x in lines if x["event.action"] == action]

    assert find("log-in") == [
        ("operator", "password", "success", None),
        (None, "token", "failure", None),
        ("eve", "password", "failure", None),
    ]
    assert find("log-out") == [("operator", "password", "success", None)]
    assert find("request") == [
        ("operator", "password", "failure", 404),
        ("operator", "password", "failure", 403),
        ("ci-viewer", "token", "failure", 403),
    ]
    assert {x["source.ip"] for x in lines} == {"127.0.0.1", "203.0.113.7"}
    assert PASSWORD not in str(lines)
    assert site.tokens[Role.VIEWER] not in str(lines)


def test_a_line_of_the_audit_is_one_line_of_plain_characters(site: Site) -> None:
    headers = {
        USER_HEADER.encode(): "cli:root\x85\u202e".encode(),
        GROUPS_HEADER.encode(): b"operators",
    }
    with audited() as lines:
        client = site.client()
        client.headers = httpx2.Headers(headers)
        csrf = site.csrf(client)
        client.post("/x%0aevent=login%1b[2J", headers=csrf)
        client.get("/healthz")
    (line,) = lines
    assert line["url.path"] == "/x%0Aevent%3Dlogin%1B%5B2J"
    assert line["user.name"].startswith("cli:root")
    assert (line["amqsidecar.way"], line.get("user.id")) == ("proxy", None)


# --- TLS --------------------------------------------------------------------------------------


def test_with_a_public_url_by_tls_cookies_are_bound_to_the_host(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tls")
    with running_site(folder, public_url="https://sidecar.example") as site:
        form = {"name": "operator", "password": PASSWORD}
        answer = site.client().post("/login", data=form)
        cookies = answer.headers.get_list("set-cookie")
        assert {cookie.partition("=")[0] for cookie in cookies} == {
            "__Host-amqsidecar_session",
            "__Host-amqsidecar_known",
        }
        assert all("; Secure" in one and "; Path=/;" in one for one in cookies)
        assert not any("omain" in one for one in cookies)
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        session = next(one for one in cookies if "session" in one).partition(";")[0]
        again = site.client()
        assert again.get("/api/v1/status", headers={"Cookie": session}).status_code == 200
        unbound = session.removeprefix("__Host-")
        assert again.get("/api/v1/status", headers={"Cookie": unbound}).status_code == 401


def test_metrics_need_a_log_in_by_the_public_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What comes by it came through the ingress; a scraper inside names the pod."""
    folder = tmp_path_factory.mktemp("outside")
    with running_site(folder, public_url="https://sidecar.example") as site:
        client = site.client()
        for path in ("/metrics", "/healthz", "/readyz"):
            assert client.get(path).status_code != 401
        names = ("sidecar.example", "SIDECAR.example", "sidecar.example.")
        for host in (name + port for name in names for port in ("", ":", ":443", ":8443")):
            assert client.get("/metrics", headers={"Host": host}).status_code == 401
            assert client.get("/healthz", headers={"Host": host}).status_code != 401
        passed_on = {"Host": "other.example", "X-Forwarded-For": "203.0.113.7"}
        assert client.get("/metrics", headers=passed_on).status_code == 401
        viewer = site.client("token", Role.VIEWER)
        assert viewer.get("/metrics", headers={"Host": "sidecar.example"}).status_code == 200


def test_without_tls_no_answer_demands_it(site: Site) -> None:
    assert "strict-transport-security" not in site.client().get("/login").headers


# --- the end of a session -----------------------------------------------------------------------


def test_a_session_that_nobody_uses_ends_before_its_time(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages renew it; what a page asks by itself does not. Its longest time stays."""
    began_s, passed_s = time.time(), 0.0

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(began_s + passed_s, tz)

    def sign(_self: object) -> int:
        return int(began_s + passed_s)

    folder = tmp_path_factory.mktemp("idle")
    page, script = {"Sec-Fetch-Mode": "navigate"}, {"Sec-Fetch-Mode": "cors"}
    with running_site(folder, session_s=2_000, idle_s=600) as site:
        client = site.client("password")
        monkeypatch.setattr(access_session, "datetime", Later)
        monkeypatch.setattr(access_cookies, "datetime", Later)
        monkeypatch.setattr(TimestampSigner, "get_timestamp", sign)
        passed_s = 500.0
        assert "set-cookie" in client.get("/groups", headers=page).headers
        passed_s = 1_000.0
        assert client.get("/groups", headers=page).status_code == 200
        passed_s = 1_500.0
        assert client.get("/groups", headers=page).status_code == 200
        passed_s = 1_900.0
        answer = client.get("/api/v1/status", headers=script)
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
        passed_s = 2_100.0
        assert client.get("/groups", headers=page).status_code == 401
        passed_s = 0.0
        client = site.client("password")
        passed_s = 550.0
        assert client.get("/api/v1/status", headers=script).status_code == 200
        passed_s = 700.0
        assert client.get("/groups", headers=page).status_code == 401


def test_a_stream_ends_with_the_token_of_its_caller(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running_site(tmp_path_factory.mktemp("stream")) as site:
        client = site.client("token", Role.VIEWER)
        with client.stream("GET", "/api/v1/events") as answer:
            parts = answer.iter_raw()
            assert next(parts).startswith(b"event: counters")
            (site.folder / "tokens").write_text("")
            with pytest.raises(httpx2.RemoteProtocolError):
                for _ in parts:
                    pass
