"""A whole site for tests: a real store with messages, all ways in at once, a server on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
from proton import Message
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from amqsidecar.clock import Clock, SystemClock
from amqsidecar.http.access import Role, Signing
from amqsidecar.http.api.api import routes as api_routes
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.authentication import files as access_files
from amqsidecar.http.authentication.cookies import AccessMeans
from amqsidecar.http.authentication.files import new_token, password_proof, token_digest
from amqsidecar.http.authentication.login import CountLogin
from amqsidecar.http.authentication.proxy import Proxies
from amqsidecar.http.authentication.roles import Roles
from amqsidecar.http.authentication.session import COOKIE, SessionOwner, Sessions
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.authentication.setup import set_up
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes as console_routes
from amqsidecar.http.guard import Guard
from amqsidecar.http.masking import Masking
from amqsidecar.http.serving import HttpServer
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.model.cause import cause_group
from amqsidecar.model.schedule import RowState
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.opened import opened
from support.stores.rows import taken_row
from support.web.client import web_client
from support.web.console_store import keep
from support.web.in_process import NOTHING_MASKED, make_queries, policies_of_file

KEY = "a key of thirty-two characters or more"
PASSWORD = "correct horse battery"
RULES = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 5, initial_redelivery_delay_ms: 1000}
"""
FAR_MS = 4_000_000_000_000
USER_HEADER, GROUPS_HEADER = "X-Forwarded-User", "X-Forwarded-Groups"


def fill(path: Path) -> None:
    """Messages 1 and 2 wait, 3 is held, 4 is parked, 5 waits elsewhere and is overdue."""
    body = Message(body="card 4111 1111", properties={"customer": "anna", "tries": 3}).encode()
    rows = [
        taken_row(1, due_at_ms=FAR_MS, cause="<script>alert(1)</script>", message=bytes(body)),
        taken_row(
            2,
            due_at_ms=FAR_MS,
            cause="timeout after 4111 ms",
            cause_group=cause_group("timeout after 4111 ms"),
        ),
        taken_row(3, state=RowState.HELD, rule="backlog"),
        taken_row(4, state=RowState.PARKED, rule="no origin"),
        taken_row(5, due_at_ms=1_000, destination="queue://bills"),
    ]
    store = SqliteStore(path, clock=SystemClock(), instance_name="test")
    keep(store, rows)
    store.close()


@dataclass
class Site:
    """A running site; `client` comes in by one of its ways."""

    folder: Path
    address: str
    queries: StoreQueries
    routes: list[Route]
    tokens: dict[Role, str]
    clients: list[httpx2.Client] = field(default_factory=list)

    def client(self, way: str | None = None, role: Role = Role.OPERATOR) -> httpx2.Client:
        """Return an authenticated client, with the headers that our pages send."""
        client = web_client(f"http://{self.address}")
        self.clients.append(client)
        match way:
            case "token":
                client.headers["Authorization"] = f"Bearer {self.tokens[role]}"
            case "password":
                form = {"name": role.value, "password": PASSWORD}
                assert client.post("/login", data=form).status_code == 303
            case "oidc":
                client.cookies.set(COOKIE, session_cookie("oidc", role))
            case "proxy":
                client.headers.update({USER_HEADER: "carl", GROUPS_HEADER: f"staff, {role}s"})
        return client

    def csrf(self, client: httpx2.Client) -> dict[str, str]:
        """Return the headers that a change needs."""
        return {"X-CSRF-Token": client.get("/api/v1/session").json()["csrf"]}


def session_cookie(way: str, role: Role) -> str:
    """Return a session as the log-in begins it."""
    answer = Response()
    request = HTTPConnection({"type": "http", "headers": []})
    owner = SessionOwner(name="olga", way=way, groups=(f"{role}s",))
    means = AccessMeans(AccessSettings(), Signing(KEY), Proxies([]), Roles([], []))
    Sessions(means).begin(request, answer, owner)
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]


def _routes_of(app: ASGIApp) -> list[Route]:
    assert isinstance(app, Guard)
    assert isinstance(app._app, Starlette)
    found = []
    for one in app._app.routes:
        assert isinstance(one, Route)
        found.append(one)
    return found


@contextmanager
def running_site(
    folder: Path,
    masking: Masking = NOTHING_MASKED,
    port: int = 0,
    clock: Clock | None = None,
    count: CountLogin = lambda _caller, _result: None,
    **settings: Any,
) -> Iterator[Site]:
    """Serve a site while the block runs; `clock` counts the waits after failed log-ins."""
    path = folder / "schedule.db"
    fill(path)
    tokens = {role: new_token() for role in Role}
    (folder / "tokens").write_text(
        "# programs\n"
        + "".join(f"ci-{r} {r} sha256:{token_digest(t)}\n" for r, t in tokens.items())
    )
    # Why: what a password costs is no question of these tests.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_files, "_COST", (4, 8, 1))
        proofs = {role: password_proof(PASSWORD) for role in Role}
    (folder / "users").write_text("".join(f"{r} {r} {proof}\n" for r, proof in proofs.items()))
    given: dict[str, Any] = {
        "tokens_file": folder / "tokens",
        "users_file": folder / "users",
        "session_key": KEY,
        "trusted_proxies": [ip_network("127.0.0.1")],
        "proxy_user_header": USER_HEADER,
        "proxy_groups_header": GROUPS_HEADER,
        "operator_groups": ["operators"],
        "viewer_groups": ["viewers"],
    }
    settings = given | settings
    entrance = set_up(AccessSettings(**settings), clock or SystemClock(), "/static/x.css", count)
    (folder / "rules.yaml").write_text(RULES)
    queries = make_queries(
        open_schedule=lambda: opened(SqliteStore(path, clock=SystemClock())),
        masking=masking,
        policies=policies_of_file(folder / "rules.yaml"),
        reports=folder / "reports",
    )
    console = Console(queries)
    routes = [*entrance.routes, *api_routes(queries), *console_routes(console)]
    app = make_app(probes_of(queries), entrance.access, routes, console.show_refusal)
    server = HttpServer(app)
    host, port = server.start("127.0.0.1", port)
    site = Site(folder, f"{host}:{port}", queries, _routes_of(app), tokens)
    try:
        yield site
    finally:
        for client in site.clients:
            client.close()
        server.stop()
        queries.close()
