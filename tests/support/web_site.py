"""A whole site for tests: a real store with messages, all ways in at once, a server on loopback."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
from proton import Message
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.clock import SystemClock
from amqsidecar.http.access import Role, Signing
from amqsidecar.http.api.api import routes as api_routes
from amqsidecar.http.app import make_app
from amqsidecar.http.authentication import files as access_files
from amqsidecar.http.authentication.files import new_token, password_proof, token_digest
from amqsidecar.http.authentication.session import COOKIE, Sessions
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.authentication.setup import set_up
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes as console_routes
from amqsidecar.http.masking import Masking
from amqsidecar.http.serving import HttpServer
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.model.cause import cause_group
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.active_rules import policies_of
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import load_policy
from amqsidecar.stores.sqlite.store import SqliteStore
from support.schedule_rows import scheduled, taken_row, took
from support.web import NOTHING_MASKED, make_desk

KEY = "a key of thirty-two characters or more"
PASSWORD = "correct horse battery"
RULES = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 5, initial_redelivery_delay_ms: 1000}
"""
FAR_MS = 4_000_000_000_000
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Why: to read the authorities of the system takes longer than a test."""
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
    store.open()
    store.allocate_ids(len(rows))
    with store.transaction() as tx:
        events = [event for row in rows for event in (took(row), scheduled(row))]
        tx.record_cycle(1, rows, [], events)
    with store.transaction() as tx:
        tx.finish_cycle(1)
    store.close()


@dataclass
class Site:
    """A running site; `client` comes in by one of its ways."""

    folder: Path
    address: str
    desk: StoreQueries
    routes: list[Route]
    tokens: dict[Role, str]
    clients: list[httpx2.Client] = field(default_factory=list)

    def client(self, way: str | None = None, role: Role = Role.OPERATOR) -> httpx2.Client:
        """Return a client that has shown who it is, with what a page of ours would send along."""
        client = httpx2.Client(base_url=f"http://{self.address}", timeout=30, verify=NO_TLS)
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
    Sessions(Signing(KEY), 3600, lambda _request: False, None).begin(
        None, answer, "olga", way, role
    )
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]


@contextmanager
def running_site(
    folder: Path, masking: Masking = NOTHING_MASKED, port: int = 0, **settings: Any
) -> Iterator[Site]:
    """Serve a site while the block runs."""
    access_files._COST = (4, 8, 1)  # What a password costs is no question of these tests.
    path = folder / "schedule.db"
    fill(path)
    tokens = {role: new_token() for role in Role}
    (folder / "tokens").write_text(
        "# programs\n"
        + "".join(f"ci-{r} {r} sha256:{token_digest(t)}\n" for r, t in tokens.items())
    )
    (folder / "users").write_text(
        "".join(f"{role} {role} {password_proof(PASSWORD)}\n" for role in Role)
    )
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
    entrance = set_up(AccessSettings(**(given | settings)), SystemClock(), "/static/x.css")
    (folder / "rules.yaml").write_text(RULES)
    plugins = load_plugins()
    rules = load_policy(folder / "rules.yaml", plugins)
    policies = policies_of(
        lambda: rules,
        plugins,
        intake_queues=(),
        final_suffix=".final",
        parks_topics=True,
    )
    desk = make_desk(
        make_store=lambda: SqliteStore(path, clock=SystemClock()),
        masking=masking,
        policies=policies,
        reports=folder / "reports",
    )
    console = Console(desk)
    routes = [*entrance.routes, *api_routes(desk), *console_routes(console)]
    app = make_app(desk, entrance.access, routes, console.show_refusal)
    server = HttpServer(app)
    host, port = server.start("127.0.0.1", port)
    site = Site(folder, f"{host}:{port}", desk, list(app._app.routes), tokens)
    try:
        yield site
    finally:
        for client in site.clients:
            client.close()
        server.stop()
        desk.close()
