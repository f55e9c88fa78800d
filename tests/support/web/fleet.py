"""`amqsidecar fleet` for tests, and sidecars: prepared ones, one that hangs, an older one."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Self

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amqsidecar.clock import SystemClock
from amqsidecar.http.api.api import routes as api_routes
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.authentication.setup import set_up
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes as console_routes
from amqsidecar.http.serving import HttpServer
from amqsidecar.stores.sqlite.store import SqliteStore
from support.sidecar import forked
from support.sidecar.forked import ForkedProcess
from support.stores.opened import opened
from support.waiting import eventually
from support.web.client import web_client
from support.web.console_store import open_store
from support.web.in_process import make_queries, policies_of_file
from support.web.incident import keep_incident
from support.web.screenshots import well_status
from support.web.site import GROUPS_HEADER, KEY, RULES, USER_HEADER

OLDER: Final = "0.0.9"


@contextmanager
def prepared_sidecar(
    folder: Path, port: int = 0, rules: str = RULES, **tools: Any
) -> Iterator[str]:
    """Serve a schedule during an incident with all of its API; gives the URL.

    A proxy on loopback names people, a file in the folder tokens, and sessions have `KEY`.
    """
    folder.mkdir(exist_ok=True)
    path = folder / "schedule.db"
    if not path.exists():
        store = open_store(path)
        keep_incident(store)
        store.close()
    (folder / "rules.yaml").write_text(rules)
    tokens = folder / "tokens"
    tokens.touch()
    queries = make_queries(
        open_schedule=lambda: opened(SqliteStore(path, clock=SystemClock())),
        policies=policies_of_file(folder / "rules.yaml"),
        sidecar_status=well_status,
        **tools,
    )
    console = Console(queries)
    settings = AccessSettings(
        tokens_file=tokens,
        users_file=tokens,
        session_key=KEY,
        trusted_proxies=[ip_network("127.0.0.1")],
        proxy_user_header=USER_HEADER,
        proxy_groups_header=GROUPS_HEADER,
        operator_groups=["operators"],
        viewer_groups=["viewers"],
    )
    entrance = set_up(settings, SystemClock())
    routes = [*entrance.routes, *api_routes(queries), *console_routes(console)]
    server = HttpServer(
        make_app(probes_of(queries), entrance.access, routes, console.show_refusal),
        is_shared=lambda _address: True,
    )
    host, port = server.start("127.0.0.1", port)
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        queries.close()


@contextmanager
def hung_sidecar(port: int = 0) -> Iterator[str]:
    """Take connections and never answer; gives the URL."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        # The system takes the connections by itself.
        listening.listen(1_000)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def older_sidecar() -> Iterator[str]:
    """Answer as a sidecar that knows less: fewer fields, no rules; gives the URL."""

    async def answer(request: Request) -> Response:
        group = {"number": 7, "destination": "queue://old", "cause_group": "old", "trend": "odd"}
        known = {
            "/healthz": {"status": "ok", "version": OLDER},
            "/api/v1/overview": {"groups": [group], "exhausted": []},
            "/api/v1/groups": [group],
            "/api/v1/messages": {"rows": [], "next": None},
            "/api/v1/status": {"instance": "old"},
            "/api/v1/session": {"actor": "api:carl", "csrf": ""},
        }
        found = known.get(request.url.path)
        problem = {"status": 404, "title": "Not Found", "detail": "nothing is served here"}
        return JSONResponse(problem, 404) if found is None else JSONResponse(found)

    server = HttpServer(Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])]))
    host, port = server.start("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class FleetProcess:
    """`amqsidecar fleet` behind a proxy on loopback; `program` runs it where memory counts."""

    def __init__(
        self,
        folder: Path,
        sidecars: Mapping[str, str],
        sets: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> None:
        self.log_path = folder / "fleet.log"
        self.address = ""
        key = folder / "fleet.key"
        key.write_text(KEY)
        (folder / "fleet.tokens").touch()
        self._program = program
        self._sets = [
            f"fleet.sidecars={json.dumps(dict(sidecars))}",
            "http.listen=127.0.0.1:0",
            "http.trusted_proxies=127.0.0.1",
            f"http.proxy_user_header={USER_HEADER}",
            f"http.proxy_groups_header={GROUPS_HEADER}",
            "http.operator_groups=operators",
            "http.viewer_groups=viewers",
            f"http.session_key_file={key}",
            f"http.tokens_file={folder / 'fleet.tokens'}",
            f"http.users_file={folder / 'fleet.tokens'}",
            *sets,
        ]
        self.process: ForkedProcess | subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        arguments = ["fleet", *(part for one in self._sets for part in ("--set", one))]
        with self.log_path.open("ab") as log:
            if self._program:
                command = [*self._program, *arguments]
                self.process = subprocess.Popen(command, stdout=log, stderr=log)
            else:
                self.process = forked.start(arguments, stdout=log, stderr=log, env=dict(os.environ))

        def started() -> str | None:
            assert self.process is not None
            assert self.process.poll() is None, self.log_path.read_text()
            lines = [line for line in self.log_path.read_text().splitlines() if '"started"' in line]
            return json.loads(lines[0])["http"] if lines else None

        self.address = f"http://{eventually(started, what='the fleet listens')}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(30) == 0, self.log_path.read_text()

    @contextmanager
    def client(self, **headers: str) -> Iterator[httpx2.Client]:
        """Give a client with these headers, `_` for `-`."""
        with web_client(self.address) as client:
            client.headers.update({name.replace("_", "-"): text for name, text in headers.items()})
            yield client

    def memory_mib(self) -> float:
        """Return the most memory that it has had."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        [peak] = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM")]
        return int(peak) / 1024


def as_person(name: str = "carl", groups: str = "operators") -> dict[str, str]:
    """Return the headers of a person that the proxy on loopback has logged in."""
    return {USER_HEADER: name, GROUPS_HEADER: groups}


@contextmanager
def prepared_sidecars(folder: Path, count: int) -> Iterator[list[str]]:
    """Serve several in a process of their own; gives their URLs."""
    command = [sys.executable, "-m", "support.web.fleet", str(folder), str(count)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def main(folder: Path, count: int) -> None:
    """Serve until the input ends."""
    other = RULES.replace("5", "7")
    with ExitStack() as stack:
        urls = [
            stack.enter_context(
                prepared_sidecar(folder / f"prepared-{n}", rules=RULES if n % 5 else other)
            )
            for n in range(count)
        ]
        sys.stdout.write(f"{json.dumps(urls)}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
