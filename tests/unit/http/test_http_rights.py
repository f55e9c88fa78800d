"""Rights by destination: what a role can't see does not exist for it.

The walk takes its endpoints from the OpenAPI document and from the routes, and asks each in two
worlds that differ only in `pay.>`. A new endpoint is asked by itself; a new parameter or body has
to be given values here.
"""

import itertools
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from amqsidecar.assistant.caller import ApiCaller, CallerApi
from amqsidecar.assistant.inputs import AssistantAction
from amqsidecar.assistant.previews import Previews
from amqsidecar.assistant.tools import AssistantTools, Tool
from amqsidecar.errors import SidecarError
from amqsidecar.http.answers import JSON
from amqsidecar.http.console.query import FILTER_NAMES
from amqsidecar.http.live import Live
from amqsidecar.model import row_changes
from amqsidecar.model.cause import cause_group
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import InstanceView, RowFilter, RowState
from amqsidecar.operations import operate
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.web_client import Client, RawAnswer
from support.virtual_clock import VirtualClock
from support.web.worlds import NOW_MS, ORDERS, RULES, TIMEOUT, World, two_worlds

GROUP: Final = cause_group(TIMEOUT)
SECRETS: Final = re.compile(r"pat-|root-|card stolen|pay [01]|broker[01]|pay\.(many|z)|cause 3")

VALUES: Final[Mapping[str, Sequence[object]]] = {
    "action": [one.value for one in Action],
    "after": ["", "0.9", "test-000000000001"],
    "attempt": [1, 2],
    "before": [3, 99],
    "cause": ["timeout"],
    "cause_group": [GROUP, "#4711"],
    "contains": ["orders", "pay"],
    "count_at_least": [2],
    "destination": ["orders.a", "pay.a", "pay.nothing"],
    "event": ["orders.1", "pay.1"],
    "expired": ["false"],
    "id": [1, 2, 6],
    "limit": [1, 3],
    "max_bytes": [100],
    "newer_than": ["1h"],
    "older_than": ["1m"],
    "one_per_message_id": ["true"],
    "order": ["due", "newest"],
    "outcome": ["consumed", "unknown"],
    "persistent": ["true"],
    "property": ["customer=anna"],
    "redelivery_count": [3],
    "since": [0],
    "source": ["DLQ"],
    "state": ["waiting", "held", "parked", "exhausted"],
    "target": ["orders.z", "pay.a"],
}
"""Values of the parameters of the API."""

REQUIRED: Final = {"action": "retry", "destination": "orders.a", "cause_group": GROUP}

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "reference": ["1", "2", "6", "20", "99", *(f"test-{n:012d}" for n in (1, 6, 17, 20))],
    "number": ["0", "1", "2", "3", "4", "5", "9"],
    "action": [*Action, "nothing"],
    "change": ["pause", "resume", "cancel", "undo"],
    "format": ["csv"],
    "name": ["console.css", "ops", "nobody", "invoice-1", "orders.1", "pay.1"],
}
"""Parts of paths."""

_EDIT: Final = {"change": {"set_properties": [{"name": "customer", "value": "berta"}]}}
BODIES: Final[Mapping[str, Sequence[object]]] = {
    "Because": [{}, {"reason": "why"}],
    "Edit": [_EDIT],
    "MessageRules": [{"message": one, "rules": RULES} for one in ("1", "2", "6", "20")],
    "OtherRules": [{"rules": RULES}],
    "NewGroupNote": [
        {"destination": place, "cause_group": GROUP, "text": "on it"}
        for place in ("orders.a", "pay.a", "pay.nothing")
    ],
    "NewMarker": [
        {"text": "4.2", "destination": place}
        for place in ("orders.a", "orders.>", "pay.>", "pay.nothing", "*.a", ">", "")
    ],
    "NewOperation": [
        {"action": action, "filter": chosen, "expected": n, "everything": True, **more}
        for action, more in (
            ("retry", {}),
            ("discard", {}),
            ("redirect", {"target": "orders.z"}),
            ("redirect", {"target": "pay.a"}),
            ("hold", {}),
            ("hold", {"until": "pay.1"}),
            ("hold", {"until": "orders.1"}),
        )
        for chosen, n in (
            ({"id": [3, 2]}, 1),
            ({"destination": "pay.a"}, 0),
            ({"cause_group": GROUP}, 2),
            ({}, 5),
        )
    ],
}
"""Bodies of the API by their schema."""

PAGE_QUERIES: Final[Sequence[Mapping[str, str]]] = [
    {},
    *({"id": one} for one in PARTS["reference"]),
    {"id": "1", "original": "0"},
    *({"destination": one} for one in ("orders.a", "pay.a", "pay.nothing")),
    *({"destination": f"queue://{one}", "group": GROUP} for one in ("orders.a", "pay.a")),
    *({"state": one} for one in ("held", "exhausted", "waiting")),
    {"order": "due"},
    {"group": GROUP, "limit": "1"},
    {"contains": "pay"},
    {"after": "0.9"},
    {"before": "3"},
    {"span": "1h"},
    {"outcome": "consumed"},
    {"show": "customer"},
    {"name": "pay"},
]
FORM_QUERIES: Final = (
    {"id": "3"},
    {"id": "2"},
    {"destination": "queue://orders.a", "group": GROUP},
)
FORM: Final = {
    "reason": "why",
    "sure": "yes",
    "expected": "1",
    "how": "once",
    "rules": RULES,
    "note": "on it",
    "step": "send",
    "target": "orders.z",
    "value-0": "berta",
}
FORMS: Final = (FORM, {**FORM, "target": "pay.a"}, {**FORM, "step": "fetch"})


def filled(path: str) -> Iterator[str]:
    """Yield a path with each combination of values of its parts."""
    names = re.findall(r"\{(\w+)", path)
    for values in itertools.product(*(PARTS[name] for name in names)):
        found = path
        for name, value in zip(names, values, strict=True):
            found = re.sub(r"\{" + name + r"(:\w+)?\}", value, found)
        yield found


def api_calls(document: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, described in item.items():
            if path.endswith("/events"):
                continue
            named = [one["name"] for one in described.get("parameters", []) if one["in"] == "query"]
            needed = {name: REQUIRED[name] for name in named if name in REQUIRED}
            is_needed = [
                one["name"] for one in described.get("parameters", []) if one.get("required")
            ]
            base = {name: value for name, value in needed.items() if name in is_needed}
            queries = [base, *({**base, name: one} for name in named for one in VALUES[name])]
            content = described.get("requestBody", {}).get("content", {})
            bodies: Sequence[object] = [None]
            if content:
                schema = content["application/json"]["schema"]
                bodies = BODIES[schema["$ref"].rpartition("/")[2]]
            for address, query, body in itertools.product(filled(path), queries, bodies):
                yield method.upper(), address, {"params": query, "json": body}


def page_calls(world: World) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for route in world.routes:
        if route.path.startswith(("/api/", "/static", "/login", "/logout")):
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            for address in filled(route.path):
                if method == "GET":
                    # Why few: a page of one thing asks for it in its path.
                    queries = PAGE_QUERIES if "{" not in route.path else PAGE_QUERIES[::6]
                    yield from ((method, address, {"params": query}) for query in queries)
                    continue
                for query, form in itertools.product(FORM_QUERIES, FORMS):
                    yield method, address, {"params": query, "data": form}


async def walk(worlds: tuple[World, World], who: str) -> Mapping[tuple[str, str], bool]:
    """Return which endpoints told the worlds apart; a limited role sees none of their secrets."""
    left, right = worlds
    document = (await left.clients["operator"].get("/api/v1/openapi.json")).json()
    calls = [*api_calls(document), *page_calls(left)]
    calls += [("GET", path, {}) for path in ("/metrics", "/healthz", "/readyz")]
    is_limited = who in ("orders", "looker", "actor")
    # Why last: what is changed is changed in both, and some is asked again afterwards.
    changes = [one for one in calls if one[0] != "GET" and is_limited]
    reads = [one for one in calls if one[0] == "GET"]
    differing = dict[tuple[str, str], bool]()
    for method, path, given in [*reads, *changes, *(reads[::5] if who == "orders" else ())]:
        key = method, re.sub(r"\d+", "N", path)
        # Why only who sees all: whether an endpoint tells the worlds apart is known by one answer.
        if not is_limited and differing.get(key):
            continue
        one = await left.ask(who, method, path, **given)
        other = await right.ask(who, method, path, **given)
        if is_limited:
            assert one == other, (method, path, given)
            assert one[0] != 500, (method, path, given, one)
            assert not SECRETS.search(one[2]), (method, path, given, SECRETS.search(one[2]))
        differing[key] = differing.get(key, False) or one != other
    return differing


# Why in proof: `orders` has their rights, and those to edit and discard.
@pytest.mark.parametrize(
    "who", ["orders", *(pytest.param(one, marks=pytest.mark.proof) for one in ("looker", "actor"))]
)
async def test_a_role_gets_the_same_in_worlds_that_differ_in_what_it_cannot_see(
    tmp_path: Path, who: str
) -> None:
    async with two_worlds(tmp_path) as worlds:
        assert not any((await walk(worlds, who)).values())


class _OfWorld(Client):
    """Asks a world as a person does."""

    def __init__(self, world: World, who: str) -> None:
        self._person = world.clients[who]

    async def ask(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> RawAnswer:
        more = {"Accept": JSON, "Content-Type": JSON, **headers}
        method = "GET" if body is None else "POST"
        answer = await self._person.request(method, url, headers=more, content=body)
        return RawAnswer(answer.status_code, answer.content)


TOOL_INPUTS: Final[Mapping[str, Sequence[Mapping[str, object]]]] = {
    "groups": [{}, {"destination": "pay.a"}, {"limit": 1}],
    "messages": [{}, {"destination": "pay.a"}, {"state": "exhausted"}, {"group": 4711}],
    "message": [{"message": one} for one in PARTS["reference"]],
    "explain": [{"destination": one} for one in ("orders.a", "pay.a")],
    "try_rules": [{"rules": RULES}, *({"rules": RULES, "message": one} for one in ("1", "2"))],
    "operation": [{"number": n} for n in range(7)],
    "preview": [
        {"action": one, "destination": place}
        for one in AssistantAction
        for place in ("orders.a", "orders.b", "pay.a")
    ],
    "act": [{"token": "none", "expected": 1, "reason": "why"}],
    "pause": [{"number": n, "reason": "why"} for n in range(7)],
    "undo": [{"number": n, "reason": "why"} for n in range(7)],
}
"""Inputs of the tools for assistants; those without any are not named."""


@pytest.mark.parametrize("who", ["orders", "looker", "actor"])
async def test_an_assistant_gets_the_same_in_both_worlds(tmp_path: Path, who: str) -> None:
    tools = AssistantTools(Previews(VirtualClock()))
    assert {*TOOL_INPUTS} <= {*tools.table}

    async def told(caller: ApiCaller, tool: Tool, given: Mapping[str, object]) -> str:
        if not tool.exists_for(caller):
            return "Unknown tool"
        try:
            text = await tool.run(caller, msgspec.convert(given, tool.input))
        except (SidecarError, msgspec.ValidationError) as error:
            text = str(error)
        return re.sub(r'token \S+|"since":\d+', "", text)

    async with two_worlds(tmp_path) as worlds:
        callers = [await CallerApi(_OfWorld(one, who), "", "").open() for one in worlds]
        for name, tool in tools.table.items():
            for given in TOOL_INPUTS.get(name, [{}]):
                one, other = [await told(caller, tool, given) for caller in callers]
                assert one == other, (name, given)
                assert not SECRETS.search(one), (name, given)


async def test_the_worlds_differ_for_those_who_see_all(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    async with two_worlds(tmp_path) as worlds:
        differing = await walk(worlds, "operator")
    told = {path for (method, path), is_told in differing.items() if is_told and method == "GET"}
    assert {
        *("/", "/groups", "/messages", "/operations", "/plots", "/policies", "/webhooks"),
        *("/groups.csv", "/messages.csv", "/messages/one", "/api/vN/overview", "/api/vN/status"),
        *("/api/vN/groups", "/api/vN/messages", "/api/vN/preview", "/api/vN/operations"),
    } <= told


def test_each_filter_of_the_pages_is_asked() -> None:
    asked = {name for one in PAGE_QUERIES for name in one}
    assert {"destination", "state", "group", "contains", "id"} <= {*FILTER_NAMES} & asked


async def test_a_role_sees_its_own(tmp_path: Path) -> None:
    """What is hidden is not everything."""
    async with two_worlds(tmp_path) as (world, _):
        _, _, text = await world.ask("orders", "GET", "/api/v1/messages?limit=100")
        assert {row.id for row in ORDERS if row.id != 17} <= set(
            map(int, re.findall(r'"id":(\d+)', text))
        )
        assert (await world.ask("orders", "GET", "/api/v1/messages/1/content"))[0] == 200
        assert (await world.ask("looker", "GET", "/api/v1/messages/1/content"))[0] == 403
        assert (await world.ask("actor", "GET", "/api/v1/messages/7/content"))[0] == 403
        assert (await world.ask("orders", "GET", "/api/v1/messages/2/content"))[0] == 404
        assert (await world.ask("viewer", "GET", "/metrics"))[0] == 200
        assert (await world.ask("orders", "GET", "/metrics"))[0] == 403


async def test_an_action_is_about_what_its_right_is_given_on(tmp_path: Path) -> None:
    async with two_worlds(tmp_path) as (world, _):
        asked = {"action": "hold", "filter": {"cause_group": GROUP}, "expected": 2}
        _, _, text = await world.ask("actor", "POST", "/api/v1/operations", json=asked)
        assert '"destinations":["queue://orders.a"]' in text
        refused = await world.ask(
            "actor",
            "POST",
            "/api/v1/operations",
            json={**asked, "filter": {"destination": "orders.b"}},
        )
        assert refused[0] == 403
        assert (await world.ask("looker", "POST", "/api/v1/operations", json=asked))[0] == 403


async def test_an_event_belongs_to_the_roles_whose_patterns_its_name_matches(
    tmp_path: Path,
) -> None:
    async with two_worlds(tmp_path) as (world, _):

        async def asked(who: str, name: str) -> tuple[int, int]:
            report = await world.ask(who, "POST", f"/api/v1/events/{name}")
            hold = {"action": "hold", "filter": {"id": [1]}, "expected": 1, "until": name}
            begun = await world.ask(who, "POST", "/api/v1/operations", json=hold)
            return int(report[0]), int(begun[0])

        assert await asked("orders", "orders.1") == (200, 201)
        for name in ("pay.1", "invoice-1", "orders", "a.orders.1", ">", "orders.>"):
            refused = await asked("orders", name)
            assert refused == ((200, 201) if name == "orders" else (403, 403)), name
        assert await asked("actor", "orders.a") == (200, 201)
        assert await asked("actor", "orders.1") == (403, 403)
        for who in ("looker", "viewer"):
            assert await asked(who, "orders.1") == (403, 403)
        for name in ("invoice-1", "pay.1", "invoice/7", "invoice%2F8"):
            assert await asked("operator", name) == (200, 201)
        assert (await world.ask("operator", "POST", "/api/v1/events/%20"))[0] == 400


async def test_a_marker_exists_for_those_whom_it_concerns(tmp_path: Path) -> None:
    async with two_worlds(tmp_path) as (world, _):

        async def marked(who: str, place: str) -> int:
            body = {"text": f"by {who}", "destination": place}
            status, _, _ = await world.ask(who, "POST", "/api/v1/markers", json=body)
            return int(status)

        async def seen(who: str) -> set[str]:
            _, _, text = await world.ask(who, "GET", "/api/v1/markers")
            return set(re.findall(r'"destination":"([^"]*)"', text))

        assert await marked("orders", "orders.eu.>") == 201
        refused = [await marked("orders", place) for place in ("pay.a", ">", "*.a", "")]
        assert refused == [403] * 4
        assert await marked("looker", "orders.a") == await marked("viewer", "orders.a") == 403
        own = {"queue://orders.>", "queue://orders.eu.>", ""}
        assert await seen("orders") == await seen("looker") == own
        assert await seen("operator") == await seen("viewer") == own | {"queue://pay.0"}


async def test_sidecars_of_one_schedule_are_known_by_it_to_every_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a fleet counts them once; what an instance does tells of other destinations."""

    def instances(store: SqliteStore) -> list[InstanceView]:
        is_right = "world1" in str(store._path)
        working = {"cycle": 9, "unfinished_cycle": 9, "manual": ("pay.>",)}
        doing: Any = working if is_right else {"cycle": 1, "unfinished_cycle": None}
        seen_s = 3.0 if is_right else 0.5
        return [
            InstanceView(instance="test", uid="u1", is_held=True, seen_seconds_ago=seen_s, **doing)
        ]

    monkeypatch.setattr(SqliteStore, "instances", instances)
    async with two_worlds(tmp_path) as worlds:
        one, other = [await world.ask("orders", "GET", "/api/v1/status") for world in worlds]
        assert one == other
        assert '"uid":"u1"' in one[2]


async def test_a_stream_tells_only_of_what_is_seen(tmp_path: Path) -> None:
    """Also later: a hold of `pay.>` changes one world only, a hold of `orders.a` both."""
    told: list[dict[str, list[bytes]]] = []
    async with two_worlds(tmp_path) as worlds:
        for number, world in enumerate(worlds):
            live = Live(world.queries, every_s=0.01)
            events = {who: await live.listen(world.callers[who]) for who in ("orders", "operator")}
            seen = {who: [await anext(one)] for who, one in events.items()}
            for place in ("pay.z", "orders.a")[1 - number :]:
                hold(world.path, place)
                for who in ("orders", "operator")[place == "pay.z" :]:
                    seen[who].append(await next_counters(events[who], seen[who][-1]))
            told.append(seen)
    assert told[0]["orders"] == told[1]["orders"]
    assert len(set(told[0]["orders"])) == 2
    assert told[0]["operator"][0] != told[1]["operator"][0]
    assert len(set(told[1]["operator"])) == 3


def hold(schedule: Path, place: str, actor: str = "ann") -> None:
    """Hold what waits for a queue, as another process does."""
    with closing(SqliteStore(schedule, clock=VirtualClock())) as store:
        store.open()
        chosen = RowFilter(destination=f"queue://{place}", state=RowState.WAITING)
        assert store.change(chosen, row_changes.hold(1, actor))


async def next_counters(events: AsyncIterator[bytes], last: bytes) -> bytes:
    """Return the next counters of a stream that differ from the last."""
    async for event in events:
        if event.startswith(b"event: counters") and event != last:
            return event
    raise AssertionError("the stream has ended")


async def test_a_mark_of_events_does_not_count_them_and_finds_what_others_did(
    tmp_path: Path,
) -> None:
    async with two_worlds(tmp_path) as (world, _):
        client = world.clients["orders"]

        async def mark() -> int:
            answer = await client.get("/api/v1/preview?action=retry&id=3")
            return int(answer.json()["since"])

        before = await mark()
        hold(world.path, "orders.a", "ben")
        after = [await mark() for _ in range(8)]
        with closing(SqliteStore(world.path, clock=VirtualClock(NOW_MS))) as store:
            store.open()
            assert min(after) > 1_000 * store.event_mark()
            assert len({*after}) > 1
            for since, expected in ((before, (0, 1)), (after[0], (1, 0))):
                asked = {"action": "retry", "filter": {"id": [3]}, "expected": 1, "since": since}
                answer = await client.post("/api/v1/operations", json=asked)
                assert answer.status_code == 201, answer.text
                number = answer.json()["id"]
                operate.carry_out(store, number, "ann", ".final", lambda: NOW_MS)
                done = store.operation(number)
                assert done is not None
                assert (done.changed, done.overtaken) == expected


async def test_a_large_action_and_each_discard_wait_for_another_person(tmp_path: Path) -> None:
    async with two_worlds(tmp_path, second_person_above=2) as (world, _):
        client, team = world.clients["operator"], world.clients["orders"]

        async def begin(action: str, count: int, **chosen: object) -> Any:
            asked = {"action": action, "filter": chosen, "expected": count}
            answer = await client.post("/api/v1/operations", json=asked)
            assert answer.status_code == 201, answer.text
            return answer.json()

        async def unapproved() -> list[int]:
            found = (await team.get("/api/v1/overview")).json()
            page = (await team.get("/")).text
            numbers = [one["id"] for one in found["unapproved"]]
            assert all(f"Operation {one}</a>" in page for one in numbers)
            return numbers

        assert (await begin("hold", 1, id=[3]))["state"] == "running"
        large = await begin("retry", 5, destination="orders.a")
        assert (large["state"], await unapproved()) == ("paused", [large["id"]])
        resume = f"/api/v1/operations/{large['id']}/resume"
        refused = await client.post(resume, json={})
        assert (refused.status_code, "second person" in refused.text) == (409, True)
        assert (await world.clients["looker"].post(resume, json={})).status_code == 403
        world.queries.close()
        approved = (await team.post(resume, json={})).json()
        assert (approved["state"], await unapproved()) == ("running", [])
        gone = await begin("discard", 1, destination="orders.b", state="parked")
        assert await unapproved() == [gone["id"]]
        cancelled = await client.post(f"/api/v1/operations/{gone['id']}/cancel", json={})
        assert (cancelled.json()["state"], await unapproved()) == ("cancelled", [])


async def test_auditors_filter_the_audit(tmp_path: Path) -> None:
    async with two_worlds(tmp_path) as (world, _):

        async def shown(query: str) -> list[str]:
            _, _, text = await world.ask("viewer", "GET", f"/audit?{query}")
            return re.findall(
                r"retry|discard", text.partition("<tbody>")[2].partition("</tbody>")[0]
            )

        assert [*dict.fromkeys(await shown(""))] == ["discard", "retry"]
        assert {*await shown("action=ret")} == {*await shown("contains=retry")} == {"retry"}
        assert await shown("who=nobody") == []
        assert (await world.ask("orders", "GET", "/audit"))[0] == 403
