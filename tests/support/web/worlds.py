"""Two sidecars whose schedules differ only in `pay.>`, asked in this process by one person."""

import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import httpx2
import msgspec
from proton import Message
from starlette.requests import HTTPConnection
from starlette.routing import Route

from amqsidecar.errors import BrokerRefused
from amqsidecar.http.access import Caller
from amqsidecar.http.api.api import routes as api_routes
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.authentication.files import new_token, token_digest
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.authentication.setup import set_up
from amqsidecar.http.console.console import Console
from amqsidecar.http.console.pages import routes as console_routes
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import MemberOutcome
from amqsidecar.model.cause import cause_group
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import AnyEvent, Redirected, Resent
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.marker import Marker, ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import Action, OperationState, OutcomeKind, Selection, changed_to
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowFilter, RowState, RowView, TakenRow
from amqsidecar.model.signal import Signal
from amqsidecar.operations import operate
from amqsidecar.operations.last_death import log_links
from amqsidecar.operations.lying import LyingMessage
from amqsidecar.operations.operate import Wish
from amqsidecar.operations.status import sidecar_status
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.webhooks.outbox import (
    PREFIX,
    Kind,
    Matter,
    Notice,
    Phase,
    WebhookOutbox,
)
from support.stores.opened import opened
from support.stores.rows import scheduled, taken_row, took
from support.virtual_clock import VirtualClock
from support.web.in_process import make_queries, policies_of_file

NOW_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000
TIMEOUT: Final = "timeout of the bank"
REFUSED: Final = "order refused"
ROLES: Final = """
orders:
  rights: {orders.>: [edit, discard]}
looker:
  rights: {orders.>: [view]}
actor:
  rights: {orders.a: [act, bodies], orders.>: [view]}
"""
RULES: Final = """
plugins:
  - redelivery:
      entries:
        - {queue: pay.>, maximum_redeliveries: 9}
      default_entry: {maximum_redeliveries: 5, initial_redelivery_delay_ms: 1000}
"""
PEOPLE: Final = ("orders", "looker", "actor", "operator", "viewer")


def _body(text: str) -> bytes:
    return bytes(Message(body=text, properties={"customer": "anna", "shop": text[:3]}).encode())


def _row(number: int, place: str, cause: str | None, **fields: Any) -> TakenRow:
    at_ms = NOW_MS - number * 60_000
    given = {
        "destination": f"queue://{place}",
        "cause": cause,
        "cause_group": cause_group(cause) if cause else "",
        "received_at_ms": at_ms,
        "due_at_ms": NOW_MS + (number - 12) * 60_000,
        "message": _body(f"{place} {number}"),
    }
    return taken_row(number, **{**given, **fields})


_FINAL: Final = {"state": RowState.EXHAUSTED, "is_final": True, "final_queue": "queue://DLQ.x"}

ORDERS: Final = [
    _row(1, "orders.a", TIMEOUT),
    _row(3, "orders.a", TIMEOUT, redelivery_count=2),
    _row(5, "orders.a", REFUSED),
    _row(7, "orders.b", TIMEOUT, state=RowState.HELD, rule="backlog"),
    _row(9, "orders.b", REFUSED, state=RowState.PARKED, rule="no route"),
    _row(11, "orders.b", TIMEOUT, state=RowState.EXHAUSTED, final_queue="queue://DLQ.x"),
    _row(13, "orders.a", TIMEOUT, **_FINAL),
    _row(15, "orders.a", None),
    _row(17, "orders.c", "gone for good"),
    _row(19, "orders.a", REFUSED, state=RowState.HELD, gate="orders.1"),
]
PAY: Final = (
    [
        _row(2, "pay.a", TIMEOUT),
        _row(4, "pay.a", TIMEOUT, state=RowState.HELD),
        _row(6, "pay.b", REFUSED, **_FINAL),
        _row(12, "pay.a", REFUSED, state=RowState.HELD, gate="pay.1"),
        _row(20, "orders.b", "from elsewhere"),
    ],
    [
        _row(2, "pay.a", "card stolen", state=RowState.PARKED),
        _row(6, "pay.z", TIMEOUT, due_at_ms=1_000),
        _row(8, "pay.z", TIMEOUT, due_at_ms=NOW_MS + 1_000),
        _row(10, "pay.z", REFUSED, state=RowState.EXHAUSTED, final_queue="queue://DLQ.x"),
        *(_row(number, "pay.many", f"cause {number}") for number in range(30, 60, 2)),
        _row(20, "orders.b", "from elsewhere"),
    ],
)
"""What waits for `pay.>` in each world; 20 was redirected from there to `orders.b`."""


def _keep(store: SqliteStore, rows: Sequence[TakenRow], events: Sequence[AnyEvent]) -> None:
    cycle = store.open().cycle + 1
    with store.transaction() as tx:
        store.allocate_ids(len(rows))
        tx.record_cycle(
            cycle, rows, [], [one for row in rows for one in (took(row), scheduled(row))]
        )
        tx.finish_cycle(cycle)
        tx.record(events)


def _note(row: TakenRow, text: str) -> GroupNote:
    return GroupNote(
        destination=row.destination,
        cause_group=row.cause_group,
        at_ms=NOW_MS - 60_000,
        author="ann",
        text=text,
        owner=f"owner {text}",
    )


def _mark(store: SqliteStore, text: str, destination: str) -> None:
    at_ms = NOW_MS - HOUR_MS
    store.add_marker(Marker(at_ms=at_ms, text=text, destination=destination, author="ann"))


def _report(store: SqliteStore, *places: str) -> None:
    """Keep an outbox that has reported each of these and waits to report each again."""
    outbox = WebhookOutbox(stream="s", begun_ms=NOW_MS)
    for place in places:
        matter = Matter(kind=Kind.EXHAUSTED, destination=f"queue://{place}", count=3, text=place)
        notice = Notice(
            id=f"s-{outbox.next_number}",
            phase=Phase.BEGUN,
            matter=matter,
            more=3,
            at_ms=NOW_MS - 9_000,
        )
        outbox.next_number += 1
        outbox.pending.append(notice)
        tried = {"tried_ms": NOW_MS - 8_000, "problem": "refused"}
        outbox.log.append(msgspec.structs.replace(notice, **tried))
    assert store.swap_value(f"{PREFIX}ops", b"", msgspec.json.encode(outbox))


def _act(store: SqliteStore, action: Action, rows: RowFilter, actor: str) -> int:
    wish = Wish(action=action, selection=Selection(rows=rows), actor=actor, expected=1)
    return operate.begin(store, wish, NOW_MS - 30_000).id


def _finish(store: SqliteStore, number: int, actor: str) -> None:
    for _ in range(9):
        operate.carry_out(store, number, actor, ".final", lambda: NOW_MS - 20_000)


def _make_base(path: Path) -> None:
    store = SqliteStore(path, clock=VirtualClock(NOW_MS), instance_name="test")
    resent = [
        Resent(
            at_ms=NOW_MS - HOUR_MS // 2,
            destination="queue://orders.a",
            redelivery_id=row.redelivery_id,
            redelivery_count=1,
            lateness_ms=3,
        )
        for row in ORDERS[:2]
    ]
    _keep(store, ORDERS, resent)
    store.add_note(_note(ORDERS[0], "orders"))
    store.add_service_mark(
        ServiceMark(
            at_ms=NOW_MS - HOUR_MS, instance="test", kind=ServiceMarkKind.START, rules_digest="x"
        )
    )
    for destination in ("queue://orders.>", ""):
        _mark(store, "orders 4.2", destination)
    store.add_observations(
        [Observation(destination="queue://orders.a", at_ms=NOW_MS - 9_000, depth=4)]
    )
    with store.transaction() as tx:
        tx.set_hold("queue://orders.dlq", 3)
        tx.postpone([5], NOW_MS + HOUR_MS, "the gate is closed", "night")
    number = _act(store, Action.RETRY, RowFilter(destination="queue://orders.a", ids=(1,)), "ann")
    _finish(store, number, "ann")
    store.settle_members(
        number, [MemberOutcome(ORDERS[0].redelivery_id, OutcomeKind.CONSUMED, "counters")]
    )
    _act(store, Action.HOLD, RowFilter(destination="queue://orders.b"), "ann")
    gone = _act(store, Action.DISCARD, RowFilter(destination="queue://orders.c"), "ann")
    _finish(store, gone, "ann")
    store.close()


def _add_pay(path: Path, world: int) -> None:
    """Add what belongs to `pay.>`, and operations that touch both, in the same number."""
    store = SqliteStore(path, clock=VirtualClock(NOW_MS), instance_name="test")
    rows = PAY[world]
    came = rows[-1]
    story: list[AnyEvent] = [
        Redirected(
            at_ms=NOW_MS - HOUR_MS,
            destination=f"queue://pay.{'ab'[world]}",
            redelivery_id=came.redelivery_id,
            actor="pat",
        ),
        Redirected(
            at_ms=NOW_MS - HOUR_MS // 2,
            destination="queue://orders.b",
            redelivery_id=came.redelivery_id,
            actor="pat",
        ),
    ]
    sent = [
        Resent(
            at_ms=NOW_MS - HOUR_MS, destination="queue://pay.a", redelivery_count=1, lateness_ms=1
        )
        for _ in range(7 * world)
    ]
    _keep(store, rows, [*story, *sent])
    store.add_note(_note(rows[0], f"pay {world}"))
    store.add_signal(Signal(name=f"pay.{world}", at_ms=NOW_MS, author=f"pat-{world}"))
    for number in range(1 + 120 * world):
        _mark(store, f"pay {world}", f"queue://pay.{number}")
    store.add_observations(
        [
            Observation(destination=f"queue://{name}", at_ms=NOW_MS - 9_000, depth=n, unknown=n)
            for name, n in (("pay.a", 5 + world), ("DLQ.x", 7 + world), ("DLQ", 11 * world))
        ]
    )
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 10 + world)
        tx.postpone([2, 8], NOW_MS + HOUR_MS, "the gate is closed", "night")
    _report(store, *(f"pay.{n}" for n in range(world)), "orders.a")
    _act(store, Action.DISCARD, RowFilter(destination="queue://pay.a"), f"pat-{world}")
    mixed = _act(store, Action.RETRY, RowFilter(cause_group=cause_group(TIMEOUT)), f"root-{world}")
    store.change_operation(
        mixed, lambda one: changed_to(one, OperationState.PAUSED, NOW_MS, "root", "wait")
    )
    store.close()


@dataclass
class World:
    """One of the two; `get` and `post` answer what a person gets, without nonces."""

    path: Path
    routes: list[Route]
    queries: StoreQueries
    clients: dict[str, httpx2.AsyncClient]
    callers: dict[str, Caller]

    async def ask(self, who: str, method: str, path: str, **given: Any) -> tuple[Any, ...]:
        """Return status, headers and body, without what is new in each answer."""
        answer = await self.clients[who].request(method, path, **given)
        headers = {name: value for name, value in answer.headers.items() if name != "date"}
        headers.pop("content-length", None)
        return answer.status_code, headers, _plain(answer.text)


def _plain(text: str) -> str:
    """Return a text without marks of events, which are veiled anew each time."""
    text = re.sub(r'("since":)\d+', r"\1N", text)
    return re.sub(r'(name="since" value=")\d+', r"\1N", text)


@asynccontextmanager
async def two_worlds(folder: Path, **tools: Any) -> AsyncIterator[tuple[World, World]]:
    """Serve both while the block runs; they have one clock and one history of `orders.>`."""
    _make_base(folder / "base.db")
    (folder / "roles.yaml").write_text(ROLES)
    tokens = {who: new_token() for who in PEOPLE}
    lines = [f"{who} {who} sha256:{token_digest(token)}\n" for who, token in tokens.items()]
    (folder / "tokens").write_text("".join(lines))
    worlds = []
    for number in (0, 1):
        path = folder / f"world{number}.db"
        shutil.copy(folder / "base.db", path)
        _add_pay(path, number)
        worlds.append(_served(path, folder, tokens, number, tools))
    try:
        yield worlds[0], worlds[1]
    finally:
        for world in worlds:
            for client in world.clients.values():
                await client.aclose()
            world.queries.close()


def _read_lying(number: int, row: RowView) -> LyingMessage:
    hidden = f" card stolen {number}" if row.destination.startswith("queue://pay.") else ""
    return LyingMessage("amqp/1.0", _body(f"lies in its queue{hidden}"))


def _ask_broker(number: int, destination: Destination) -> NoReturn:
    is_hidden = destination.name.startswith("pay.")
    raise BrokerRefused(f"broker{number} is full" if is_hidden else "the broker is full")


def _served(
    path: Path, folder: Path, tokens: dict[str, str], number: int, tools: Mapping[str, Any]
) -> World:
    clock, health, metrics = VirtualClock(NOW_MS), Health(), Metrics()
    health.link_up(f"Apache Artemis at core://broker{number}:61616")
    health.intake(number, {"queue://pay.dlq": "no right"} if number else {}, "")
    audit = folder / f"audit{number}.jsonl"
    line = '{{"event.action": "{}", "user.name": "pat-{}", "@timestamp": "{}"}}\n'
    audit.write_text("".join(line.format(one, number, one) for one in ("retry", "discard")))
    reports = folder / f"reports{number}"
    (reports / "pay").mkdir(parents=True)
    (reports / "pay" / "report.html").write_text(f"card stolen {number}")
    # Why one path: what is decided for others names it, too. It is read here only.
    rules = folder / "rules.yaml"
    rules.write_text(RULES.replace("redeliveries: 9", f"redeliveries: {number}"))
    queries = make_queries(
        health,
        open_schedule=lambda: opened(SqliteStore(path, clock=clock)),
        clock=clock,
        policies=policies_of_file(rules),
        reports=reports,
        audit=audit,
        sidecar_status=lambda: sidecar_status(health, metrics),
        lateness=lambda: [(1.0, number), (None, 0)],
        gate=lambda: nullcontext(partial(_ask_broker, number)),
        lying=partial(_read_lying, number),
        links=partial(log_links, {"trace": "https://traces.example/{attempts_trace_id}"}, 1.0),
        webhooks={"ops": f"root-{number}"},
        **tools,
    )
    settings = AccessSettings(
        tokens_file=folder / "tokens", roles_file=folder / "roles.yaml", session_key="k" * 32
    )
    entrance, console = set_up(settings, clock), Console(queries)
    routes = [*entrance.routes, *api_routes(queries), *console_routes(console)]
    app = make_app(
        probes_of(queries, is_brief=entrance.access.has_roles),
        entrance.access,
        routes,
        console.show_refusal,
    )
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    clients = {
        who: httpx2.AsyncClient(
            transport=transport,
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {token}", "Accept": "text/html"},
        )
        for who, token in tokens.items()
    }
    callers = {}
    for who, token in tokens.items():
        scope = {"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}
        caller = entrance.access.caller(HTTPConnection(scope))
        assert caller is not None
        callers[who] = caller
    return World(path, [one for one in routes if isinstance(one, Route)], queries, clients, callers)
