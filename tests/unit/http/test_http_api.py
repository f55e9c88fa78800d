"""The API: its document is true, every endpoint answers from a real store."""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_plus

import httpx2
import jsonschema
import msgspec
import pytest
from openapi_spec_validator import validate

from amqsidecar.clock import SystemClock
from amqsidecar.http import masking
from amqsidecar.http.access import Role
from amqsidecar.http.authentication.settings import Bodies
from amqsidecar.http.live import MAX_LISTENERS
from amqsidecar.http.masking import HIDDEN, Masking
from amqsidecar.http.store_queries import THREADS
from amqsidecar.model import row_changes
from amqsidecar.model.cause import cause_group, former_group_number
from amqsidecar.model.event import Parked
from amqsidecar.model.message import BodyKind, BodyView, MessageView
from amqsidecar.model.operation import (
    Action,
    Operation,
    OperationState,
    Selection,
    StateChange,
)
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.failures.notes import write_note
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, taken_row, took
from support.waiting import eventually
from support.web.console_store import keep
from support.web.site import Site, running_site

HOLD = {"action": "hold", "filter": {"destination": "orders"}, "expected": 2, "reason": "why"}
RULES = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 2, initial_redelivery_delay_ms: 1000}
"""
TIMEOUT = cause_group("timeout after 4111 ms")
EDIT = {"change": {"set_properties": [{"name": "customer", "value": "berta"}]}, "reason": "typo"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For what changes nothing."""
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def api(shared: Site) -> httpx2.Client:
    return shared.client("token")


@pytest.fixture(scope="module")
def document(api: httpx2.Client) -> Any:
    return api.get("/api/v1/openapi.json").json()


def problem_of(answer: httpx2.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    return answer.status_code, problem["detail"]


# --- the document -----------------------------------------------------------------------------


def test_the_document_is_openapi(document: Any) -> None:
    validate(document)


def test_every_route_of_the_api_is_in_the_document(shared: Site, document: Any) -> None:
    routes = {
        (method.lower(), route.path.replace(":path}", "}"))
        for route in shared.routes
        if route.path.startswith("/api/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {(method, path) for path, item in document["paths"].items() for method in item} == routes


def numbers_of(schema: Any, document: Any) -> Iterator[dict[str, Any]]:
    """Yield what a schema says of each number that a client gives."""
    if isinstance(schema, list):
        for one in schema:
            yield from numbers_of(one, document)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if schema.get("type") == "integer":
            yield schema
        for one in schema.values():
            yield from numbers_of(one, document)


def test_no_number_is_larger_than_a_store_can_compare(document: Any) -> None:
    asked = [
        (path, method, number)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        for part in (operation.get("parameters", []), operation.get("requestBody", {}))
        for number in numbers_of(part, document)
    ]
    assert len(asked) > 20
    unbounded = [one for one in asked if one[2].get("maximum", 2**63) >= 2**63]
    assert unbounded == []


def objects_of(schema: Any, document: Any) -> Iterator[dict[str, Any]]:
    """Yield what a schema says of each object that a client gives."""
    if isinstance(schema, list):
        for one in schema:
            yield from objects_of(one, document)
    elif isinstance(schema, dict):
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "properties" in schema:
            yield schema
        for one in schema.values():
            yield from objects_of(one, document)


def test_no_body_has_fields_that_are_ignored(document: Any) -> None:
    """A newer client, or one with a mistake, would get more done than it asked for."""
    asked = [
        one["title"]
        for item in document["paths"].values()
        for operation in item.values()
        for one in objects_of(operation.get("requestBody", {}), document)
        if one.get("additionalProperties") is not False
    ]
    assert asked == []


CALLS: Sequence[tuple[str, str, Mapping[str, object] | None]] = (
    ("GET", "/session", None),
    ("GET", "/status", None),
    ("GET", "/overview", None),
    ("GET", "/groups?destination=orders&since=0&limit=5", None),
    ("POST", "/notes", {"destination": "orders", "cause_group": TIMEOUT, "text": "on it"}),
    ("GET", f"/notes?destination=orders&cause_group={quote(TIMEOUT)}", None),
    ("POST", "/events/invoice-1", None),
    ("POST", "/markers", {"text": "orders 4.2", "destination": "orders.>"}),
    ("GET", "/markers", None),
    ("GET", "/groups.csv?destination=orders&since=0", None),
    ("GET", "/messages.csv?state=waiting&order=due", None),
    ("GET", "/messages?state=waiting&order=due&limit=2", None),
    ("GET", "/messages/1?max_bytes=100", None),
    ("GET", "/messages/1/content", None),
    ("GET", "/preview?action=retry&destination=orders&id=1&id=2&property=customer%3Danna", None),
    ("POST", "/messages/1/edit-preview", EDIT),
    ("POST", "/messages/1/edit", EDIT),
    ("GET", "/messages/test-000000000001/originals/0/content", None),
    ("POST", "/operations", {**HOLD, "expected": 1}),
    ("GET", "/operations?limit=5", None),
    ("GET", "/operations/2", None),
    ("POST", "/operations/2/pause", {"reason": "lunch"}),
    ("POST", "/operations/2/resume", None),
    ("POST", "/operations/2/cancel", {}),
    ("POST", "/operations", {"action": "discard", "filter": {"id": [2]}, "expected": 1}),
    ("POST", "/operations/3/undo", {"reason": "wrong"}),
    ("GET", "/operations/1/members?limit=5", None),
    ("GET", "/operations/1/members.csv?outcome=consumed", None),
    ("GET", "/policies", None),
    ("GET", "/policies/explain?destination=orders&redelivery_count=1&expired=false", None),
    ("POST", "/policies/explain", {"message": "1", "rules": RULES}),
    ("POST", "/policies/effect", {"rules": RULES}),
    ("GET", "/openapi.json", None),
)
"""In this order on one store; the stream of events has a test of its own."""


def test_every_endpoint_answers_as_the_document_says(site: Site, document: Any) -> None:
    api, called = site.client("token"), set()
    for method, path, body in CALLS:
        answer = api.request(method, f"/api/v1{path}", json=body)
        template, operation = described(document, method, path.partition("?")[0])
        assert str(answer.status_code) in operation["responses"], (path, answer.text)
        assert answer.is_success, (path, answer.text)
        content = operation["responses"][str(answer.status_code)]["content"]
        (kind, media) = next(iter(content.items()))
        assert answer.headers["content-type"].partition(";")[0] == kind
        if "schema" in media:
            schema = {**media["schema"], "components": document["components"]}
            jsonschema.validate(answer.json(), schema)
        called.add((method, template))
    everything = {(m.upper(), path) for path, item in document["paths"].items() for m in item}
    assert everything - called == {("GET", "/api/v1/events")}


def described(document: Any, method: str, path: str) -> tuple[str, Any]:
    """Return the path of the document that a path is of, and what it says there."""
    parts = f"/api/v1{path}".split("/")
    for template, item in document["paths"].items():
        names = template.split("/")
        fits = len(names) == len(parts) and all(
            name == part or name.startswith("{") for name, part in zip(names, parts, strict=True)
        )
        if fits and method.lower() in item:
            return template, item[method.lower()]
    raise AssertionError(path)


# --- looking ----------------------------------------------------------------------------------


def test_messages_are_paged_by_key(api: httpx2.Client) -> None:
    for order, expected in (("newest", [5, 4, 3, 2, 1]), ("due", [3, 4, 5, 1, 2])):
        seen, after = [], None
        while True:
            query: dict[str, str | int] = {"order": order, "limit": 2}
            if after:
                query["after"] = after
            page = api.get("/api/v1/messages", params=query).json()
            seen += [row["id"] for row in page["rows"]]
            after = page["next"]
            if after is None:
                break
        assert seen == expected


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("destinaton=orders", "destinaton is not known"),
        ("state=lost", "Invalid enum value 'lost'"),
        ("limit=0", "Expected `int` >= 1"),
        ("limit=501", "Expected `int` <= 500"),
        ("limit=x", "Expected `int`"),
        ("state=held&state=parked", "more than once"),
        ("older_than=soon", "Expected `str` matching regex"),
        ("property=x", "expected name=value"),
        ("after=x", "after: expected the value from the page before"),
        ("destination=queue://", "a destination needs a name"),
        ("id=" + "9" * 30, "id"),
    ],
)
def test_a_query_that_is_not_understood_is_no_query(
    api: httpx2.Client, query: str, what: str
) -> None:
    status, detail = problem_of(api.get(f"/api/v1/messages?{query}"))
    assert status == 400
    assert what in detail


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("id=2&id=4&id=9", [4, 2]),
        ("destination=bills", [5]),
        ("destination=queue://bills", [5]),
        ("state=held", [3]),
        ("cause=after", [2]),
        ("cause_group=" + quote(cause_group("timeout after 5 ms")), [2]),
        ("source=DLQ", [5, 4, 3, 2, 1]),
        ("attempt=1", [5, 4, 3, 2, 1]),
        ("count_at_least=2", []),
        ("older_than=1h", [5, 4, 3, 2, 1]),
        ("newer_than=1h", []),
        ("older_than=@500", []),
        ("event=invoice-4711", []),
        ("property=customer%3Danna", [1]),
        ("contains=ANNA", [1]),
        ("contains=AFTER", [2]),
        ("contains=anna&state=held", []),
        ("state=waiting&destination=orders&cause=timeout", [2]),
    ],
)
def test_conditions_narrow_what_is_found(api: httpx2.Client, query: str, found: list[int]) -> None:
    rows = api.get(f"/api/v1/messages?{query}").json()["rows"]
    assert [row["id"] for row in rows] == found


@pytest.mark.parametrize(
    "path",
    [
        "/messages/99",
        "/messages/nobody",
        "/messages/99/content",
        "/messages/" + "9" * 40,
        "/messages/test-000000000001/originals/0/content",
        "/messages/x/originals/x/content",
        "/operations/1",
        "/operations/x",
        "/operations/" + "9" * 40,
        "/operations/1/members",
        "/nothing",
    ],
)
def test_what_is_not_there_is_404(api: httpx2.Client, path: str) -> None:
    assert problem_of(api.get(f"/api/v1{path}"))[0] == 404


def test_a_download_is_the_message_and_nothing_that_a_browser_shows(
    shared: Site, api: httpx2.Client
) -> None:
    answer = api.get("/api/v1/messages/1/content")
    store = SqliteStore(shared.folder / "schedule.db", clock=SystemClock(), read_only=True)
    store.open()
    assert answer.content == store.message(1)
    store.close()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.headers["x-content-type-options"] == "nosniff"


# --- acting -----------------------------------------------------------------------------------


def begun(api: httpx2.Client) -> int:
    return len(api.get("/api/v1/operations").json())


@pytest.mark.parametrize(
    ("change", "status", "what"),
    [
        ({"expected": 50}, 409, "this would change 2 messages, not 50; look again"),
        ({"filter": {}}, 400, "set `everything` to select all messages"),
        ({"filter": {"destinaton": "orders"}}, 400, "unknown field `destinaton`"),
        ({"filtre": {}}, 400, "unknown field `filtre`"),
        ({"pace": {"prob": 5}}, 400, "unknown field `prob`"),
        ({"action": "explode"}, 400, "Invalid enum value 'explode'"),
        ({"action": "redirect"}, 400, "redirect needs one"),
        ({"pace": {"probe": 5}}, 400, "messages of hold do not come back"),
        ({"reason": "x" * 501}, 400, "at most 500 characters"),
        ({"expected": -1}, 400, "Expected `int` >= 0"),
    ],
)
def test_nothing_is_begun_that_was_not_meant(
    api: httpx2.Client, change: dict[str, Any], status: int, what: str
) -> None:
    found = problem_of(api.post("/api/v1/operations", json=HOLD | change))
    assert found[0] == status
    assert what in found[1]
    assert begun(api) == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"action":"hold"}'])
def test_a_body_that_is_no_operation_begins_none(api: httpx2.Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = api.post("/api/v1/operations", content=body, headers=headers)
    assert problem_of(answer)[0] == 400
    answer = api.post("/api/v1/operations", content=body)
    assert problem_of(answer)[0] == 415
    assert begun(api) == 0


def test_an_operation_names_its_starter_and_its_ender(site: Site) -> None:
    api = site.client("token")
    assert api.post("/api/v1/operations", json=HOLD).json()["actor"] == "api:ci-operator"
    browser = site.client("password")
    csrf = site.csrf(browser)
    ended = browser.post("/api/v1/operations/1/cancel", headers=csrf, json={"reason": "no"}).json()
    assert ended["state"] == "cancelled"
    assert "api:operator" in ended["state_reason"]
    status, detail = problem_of(api.post("/api/v1/operations/1/resume"))
    assert (status, "operation 1 is cancelled" in detail) == (409, True)


def test_an_edit_changes_what_is_named_and_is_sent_as_an_operation(site: Site) -> None:
    api = site.client("token")
    before = api.get("/api/v1/messages/1/content").content
    looks = api.post("/api/v1/messages/1/edit-preview", json=EDIT).json()
    assert "berta" in [value["value"] for value in looks["properties"]]
    assert api.get("/api/v1/messages/1/content").content == before
    assert api.post("/api/v1/messages/1/edit", json=EDIT).json()["action"] == "retry"
    assert b"berta" in api.get("/api/v1/messages/1/content").content
    for reference in ("test-000000000001", "1"):
        original = api.get(f"/api/v1/messages/{reference}/originals/0/content")
        assert original.content == before
    wrong = {"change": {"remove_properties": ["nothing"]}}
    assert problem_of(api.post("/api/v1/messages/1/edit", json=wrong))[0] == 400


def test_an_operation_takes_exactly_the_oldest_that_it_changes(site: Site) -> None:
    api = site.client("token")

    def preview(action: str, **filters: int) -> tuple[int, str]:
        query: dict[str, str | int] = {"action": action, "destination": "orders", **filters}
        found = api.get("/api/v1/preview", params=query).json()
        return found["count"], found["example"]["redelivery_id"]

    assert preview("discard")[0] == 4
    assert preview("discard", limit=3) == (3, "test-000000000003")
    # What is not held can't be released, and counts as none of them.
    assert preview("release", limit=1) == (1, "test-000000000003")
    body = {"action": "hold", "filter": {"limit": 1}, "expected": 1}
    assert api.post("/api/v1/operations", json=body).json()["selection"]["rows"]["ids"] == [1]


def test_of_copies_with_one_message_id_an_operation_takes_the_first(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
        store.open()
        copies = [taken_row(number, message_id="ID:copy") for number in (6, 7, 8)]
        store.allocate_ids(3)
        take_rows(store, 2, copies)
        store.close()
        query = "action=hold&id=1&id=6&id=7&id=8&one_per_message_id=true"
        assert site.client("token").get(f"/api/v1/preview?{query}").json()["count"] == 2


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"limit": 1, "contains": "anna"}, "can't be used with"),
        ({"one_per_message_id": True, "property": ["a=b"]}, "can't be used with"),
        ({"limit": 0}, "limit"),
        ({"limit": 100_001}, "limit"),
    ],
)
def test_a_limit_that_would_open_each_message_is_refused(
    api: httpx2.Client, wrong: dict[str, Any], what: str
) -> None:
    body = {"action": "hold", "filter": wrong, "expected": 1}
    for answer in (
        api.post("/api/v1/operations", json=body),
        api.get("/api/v1/preview", params={"action": "hold", **wrong}),
    ):
        status, detail = problem_of(answer)
        assert (status, what in detail) == (400, True)


def test_the_whole_trace_of_a_death_is_in_the_answer(tmp_path: Path) -> None:
    trace = "shop.X: no\\n" + "\\tat shop.A.b(A.java:1)\\n" * 90 + "Caused by: shop.Y: empty"
    with running_site(tmp_path) as site:
        store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
        store.open()
        row = taken_row(store.allocate_ids(1), cause=trace)
        take_rows(store, 2, [row], [took(row)])
        store.close()
        found = site.client("token").get(f"/api/v1/messages/{row.redelivery_id}").json()
        assert found["row"]["cause"] == trace
        assert [one["event"]["cause"] for one in found["life"] if one["kind"] == "received"] == [
            trace
        ]


# --- notes ------------------------------------------------------------------------------------


def test_a_note_has_its_author_and_stands_with_its_group(site: Site) -> None:
    api, place = site.client("token"), {"destination": "queue://orders", "cause_group": TIMEOUT}
    for text in ("first", "  JIRA-5\nmore "):
        answer = api.post("/api/v1/notes", json={**place, "destination": "orders", "text": text})
        assert answer.status_code == 201
    assert answer.json() | {"at_ms": 0} == {
        **place,
        "at_ms": 0,
        "author": "api:ci-operator",
        "text": "JIRA-5\nmore",
        "owner": "",
        "snoozed_until_ms": 0,
        "muted_deaths": None,
        "merged_into": "",
    }
    taken = api.post("/api/v1/notes", json={**place, "owner": "ann", "snooze_s": 3600}).json()
    assert (taken["owner"], taken["text"]) == ("ann", "")
    assert taken["snoozed_until_ms"] == taken["at_ms"] + 3_600_000
    assert api.post("/api/v1/notes", json={**place, "owner": "x" * 101}).status_code == 400
    notes = api.get("/api/v1/notes", params=place).json()
    assert [note["text"] for note in notes] == ["", "JIRA-5\nmore", "first"]
    groups = api.get("/api/v1/groups").json()
    noted = [group for group in groups if group["note"]]
    assert [(one["cause_group"], one["note"]) for one in noted] == [(TIMEOUT, notes[0])]
    viewer = site.client("token", Role.VIEWER)
    assert viewer.get("/api/v1/notes", params=place).json() == notes
    assert viewer.post("/api/v1/notes", json={**place, "text": "x"}).status_code == 403


def totals(api: httpx2.Client) -> dict[str, int]:
    groups = api.get("/api/v1/groups", params={"destination": "orders"}).json()
    return {group["cause_group"]: group["total"] for group in groups}


@pytest.mark.parametrize("named", ["key", "number"])
def test_a_group_is_merged_into_another_one_and_separated_again(site: Site, named: str) -> None:
    api, script = site.client("token"), cause_group("<script>alert(1)</script>")
    before = totals(api)
    groups = api.get("/api/v1/groups").json()
    numbers = {one["cause_group"]: f"#{one['number']}" for one in groups}
    names = numbers if named == "number" else {key: key for key in numbers}
    place = {"destination": "orders", "cause_group": names[script]}

    merged = api.post("/api/v1/notes", json={**place, "merge_into": names[TIMEOUT]})
    assert merged.status_code == 201
    assert (merged.json()["cause_group"], merged.json()["merged_into"]) == (script, TIMEOUT)
    after = totals(api)
    assert after.pop(TIMEOUT) == before[TIMEOUT] + before[script]
    assert {**before, **after} == before
    assert script not in after
    of_the_whole = {"destination": "orders", "cause_group": TIMEOUT}
    assert api.get("/api/v1/notes", params=of_the_whole).json() == [merged.json()]
    again = problem_of(api.post("/api/v1/notes", json={**place, "merge_into": names[TIMEOUT]}))
    assert again == (400, "they are one group already")

    apart = {"destination": "orders", "cause_group": script, "merge_into": ""}
    assert api.post("/api/v1/notes", json=apart).json()["merged_into"] == ""
    assert totals(api) == before


def test_a_muted_group_is_hidden_until_more_die_of_it(site: Site) -> None:
    api = site.client("token")
    place = {"destination": "queue://orders", "cause_group": TIMEOUT}
    muted = api.post("/api/v1/notes", json={**place, "is_muted": True, "text": "known"}).json()
    assert (muted["muted_deaths"], muted["text"]) == (0, "known")
    owned = api.post("/api/v1/notes", json={**place, "owner": "ann"}).json()
    assert (owned["muted_deaths"], owned["owner"]) == (0, "ann")
    loud = api.post("/api/v1/notes", json={**place, "is_muted": False}).json()
    assert (loud["muted_deaths"], loud["owner"]) == (None, "ann")
    assert len(api.get("/api/v1/notes", params=place).json()) == 3
    for change in ({"is_muted": True}, {"merge_into": ""}):
        viewer = site.client("token", Role.VIEWER)
        assert viewer.post("/api/v1/notes", json={**place, **change}).status_code == 403


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"merge_into": "none such"}, "has no group 'none such' to merge into"),
        ({"merge_into": "#1"}, "#1"),
        ({"merge_into": TIMEOUT}, "they are one group already"),
        ({"merge_into": 5}, "merge_into"),
        ({"is_muted": "yes"}, "is_muted"),
        ({"text": " \n"}, "needs a text"),
        ({"text": "x" * 2_001}, "at most 2000 characters"),
        ({"cause_group": "never seen"}, "the history has no death of this"),
        ({"destination": "queue://"}, "a destination needs a name"),
    ],
)
def test_a_note_that_says_nothing_of_any_group_is_refused(
    api: httpx2.Client, wrong: dict[str, str], what: str
) -> None:
    note = {"destination": "orders", "cause_group": TIMEOUT, "text": "x"} | wrong
    status, detail = problem_of(api.post("/api/v1/notes", json=note))
    assert status == 400
    assert what in detail


# --- rules ------------------------------------------------------------------------------------


def test_other_rules_are_asked_without_being_put_in_place(api: httpx2.Client) -> None:
    say = "/api/v1/policies/explain?destination=orders"
    before = api.get(say).json()
    assert before["now"]["action"] == "redeliver"
    effect = api.post("/api/v1/policies/effect", json={"rules": "plugins: []"}).json()
    assert "queue://orders" in [changed["destination"] for changed in effect["destinations"]]
    assert api.get(say).json() == before


def test_a_message_that_nothing_is_known_of_has_no_other_rules(api: httpx2.Client) -> None:
    asked = {"message": "99", "rules": RULES}
    assert problem_of(api.post("/api/v1/policies/explain", json=asked))[0] == 404


@pytest.mark.parametrize("rules", ["", "plugins: 5", "plugins: [nothing]", ": [", "a" * 300_000])
def test_rules_that_can_t_be_used_are_refused_with_what_is_wrong(
    api: httpx2.Client, rules: str
) -> None:
    for path, asked in (("effect", {}), ("explain", {"message": "1"})):
        answer = api.post(f"/api/v1/policies/{path}", json={"rules": rules, **asked})
        status, detail = problem_of(answer)
        assert status == 400
        assert "rules" in detail


# --- masking ----------------------------------------------------------------------------------


def test_a_viewer_sees_no_body_and_no_property(shared: Site) -> None:
    page = shared.client("token", Role.VIEWER).get("/api/v1/messages/1")
    assert "anna" not in page.text
    assert "4111 1111" not in page.text
    assert page.json()["view"]["problems"] == [HIDDEN]
    assert problem_of(shared.client("token", Role.VIEWER).get("/api/v1/messages/1/content")) == (
        403,
        HIDDEN,
    )
    assert "anna" in shared.client("token").get("/api/v1/messages/1").text


def test_matches_of_the_patterns_are_never_shown(tmp_path: Path) -> None:
    with running_site(tmp_path, Masking(Bodies.VIEWERS, [r"\b4111\b", "an+a", "script"])) as site:
        for role in Role:
            api = site.client("token", role)
            page = api.get("/api/v1/messages/1")
            assert "4111" not in page.text
            assert '"anna"' not in page.text
            view = page.json()["view"]
            assert view["body"]["text"] == "card *** 1111"
            assert view["body"]["locked"] == "parts of it are masked"
            assert {value["name"]: value["value"] for value in view["properties"]} == {
                "customer": "***",
                "tries": "3",
            }
            rows = api.get("/api/v1/messages").json()["rows"]
            causes = {row["id"]: row["cause"] for row in rows}
            assert causes[2] == "timeout after *** ms"
            assert causes[1] == "<***>alert(1)</***>"
            preview = api.get("/api/v1/preview?action=retry&id=2").json()
            assert preview["example"]["cause"] == "timeout after *** ms"


def test_an_operator_without_the_right_to_content_can_t_edit(tmp_path: Path) -> None:
    """An edit would reveal content by refusals, and unseen content can't be changed safely."""
    with running_site(tmp_path, Masking(Bodies.NOBODY)) as site:
        api = site.client("token")
        for change in (EDIT, {"change": {"text": "card 4111 1111"}}):
            for path in ("edit-preview", "edit"):
                answer = api.post(f"/api/v1/messages/1/{path}", json=change)
                assert problem_of(answer) == (403, HIDDEN)
        for page in ("/messages/edit?id=1", "/messages/download?id=test-000000000001"):
            answer = api.get(page)
            assert answer.status_code == 403
            assert "4111" not in answer.text
        shown = api.get("/messages/one?id=test-000000000001").text
        assert "4111" not in shown
        assert "/messages/edit" not in shown


def test_what_is_masked_can_t_be_edited(tmp_path: Path) -> None:
    with running_site(tmp_path, Masking(Bodies.VIEWERS, ["an+a", r"\b4111\b"])) as site:
        api = site.client("token")
        for change in (
            {"text": "x"},
            {"set_properties": [{"name": "customer", "value": "x"}]},
            {"remove_properties": ["customer"]},
        ):
            for path in ("edit-preview", "edit"):
                answer = api.post(f"/api/v1/messages/1/{path}", json={"change": change})
                assert problem_of(answer)[0] == 403
        change = {"set_properties": [{"name": "tries", "value": "4"}]}
        assert api.post("/api/v1/messages/1/edit", json={"change": change}).status_code == 201


PROBING = """
plugins:
  - redelivery: {default_entry: {}}
  - rules: {rules: [{properties: {customer: {matches: "a.*"}}, action: park}]}
"""


@pytest.mark.parametrize(
    ("masking", "action"),
    [
        (Masking(), "park"),
        (Masking(Bodies.NOBODY), "redeliver"),
        (Masking(Bodies.VIEWERS, ["an+a"]), "redeliver"),
    ],
    ids=["seen", "hidden", "masked"],
)
def test_trying_rules_reveals_nothing_hidden(tmp_path: Path, masking: Masking, action: str) -> None:
    """Message 1 has the customer anna; a rule's match reveals it."""
    with running_site(tmp_path, masking) as site:
        api = site.client("token")
        asked = {"message": "1", "rules": PROBING}
        answer = api.post("/api/v1/policies/explain", json=asked).json()
        assert answer["after"]["now"]["action"] == action
        page = api.post("/messages/one?id=1", data={"rules": PROBING})
        assert ("rule 1 park" in page.text) == (action == "park")
        effect = api.post("/api/v1/policies/effect", json={"rules": PROBING}).json()
        assert ("rule 1 park" in str(effect)) == (action == "park")


@pytest.mark.parametrize("filter_", ["contains=ann", "cause=after 4", "property=customer=anna"])
def test_what_is_masked_can_t_be_searched(tmp_path: Path, filter_: str) -> None:
    """Else it could be guessed, letter by letter or as a whole."""
    with running_site(tmp_path, Masking(Bodies.VIEWERS, ["an+a", r"\b4111\b"])) as site:
        for role in Role:
            api = site.client("token", role)
            for path in ("messages?", "messages.csv?", "preview?action=retry&"):
                status, detail = problem_of(api.get(f"/api/v1/{path}{filter_}"))
                assert (status, "masked" in detail) == (403, True)
            for path in ("messages?", "messages.csv?", "act/retry?"):
                assert api.get(f"/{path}{filter_}").status_code == 403
            assert api.get("/api/v1/messages?property=tries=3").status_code == 200


MASKED_GROUP = "timeout after * ms"
BY_NAME = {"destination": "queue://orders", "cause_group": MASKED_GROUP}


def test_a_masked_group_is_nowhere_to_be_read_and_goes_by_its_number(tmp_path: Path) -> None:
    """Neither in pages, with their links, nor in JSON, CSV or what an operation is about."""
    with running_site(tmp_path, Masking(Bodies.VIEWERS, ["timeout after"])) as site:
        operator = site.client("token")
        groups = operator.get("/api/v1/groups").json()
        [number] = [one["number"] for one in groups if one["cause_group"] == "*** * ms"]
        named = {"destination": "queue://orders", "cause_group": f"#{number}"}
        page = {"destination": "queue://orders", "group": f"#{number}"}
        guess = former_group_number("queue://orders", MASKED_GROUP)
        guessed = {"destination": "queue://orders", "cause_group": f"#{guess}"}
        assert operator.get("/api/v1/messages", params=guessed).json()["rows"] == []
        part = {"merge_into": f"#{guess}"}
        assert operator.post("/groups/one", params=page, data=part).status_code == 422
        hold = {"action": "hold", "filter": named, "expected": 1, "reason": "mend"}
        held = operator.post("/api/v1/operations", json=hold)
        assert held.status_code == 201, held.text
        note = {"destination": "orders", "cause_group": f"#{number}", "text": "mend"}
        written = operator.post("/api/v1/notes", json=note)
        assert (written.status_code, "timeout after" in written.text) == (201, False)
        to_page = operator.post("/groups/one", params=page, data={"note": "by the form"})
        assert to_page.status_code == 303
        assert "timeout after" not in unquote_plus(to_page.headers["location"])
        part = {"merge_into": "timeout aft"}
        refused = operator.post("/groups/one", params=page, data=part)
        assert (refused.status_code, "timeout after" in refused.text) == (422, False)
        unknown = operator.post("/groups/one", params=page, data={"merge_into": "timeouts"})
        told = [re.findall("no group.*", one.text) for one in (refused, unknown)]
        assert [told[0][0].replace("timeout aft", "timeouts")] == told[1], "a guess says so"
        merge = note | {"merge_into": MASKED_GROUP}
        assert operator.post("/api/v1/notes", json=merge).status_code == 403
        for role in Role:
            client = site.client("token", role)
            asked = [
                *(("/api/v1/" + path, {}) for path in JSON_WITH_GROUPS),
                *(("/api/v1/messages", named), ("/api/v1/messages.csv", named)),
                *(("/messages", page), ("/messages.csv", page), ("/groups/one", page)),
                *((path, {}) for path in ("/", "/groups", "/groups.csv", "/messages")),
                *((path, {}) for path in ("/messages/one?id=1", "/operations", "/operations/1")),
                ("/api/v1/notes", named),
            ]
            for path, query in asked:
                answer = client.get(path, params=query) if query else client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                assert "timeout after" not in unquote_plus(answer.text), path
            assert len(client.get("/api/v1/messages", params=named).json()["rows"]) == 1
            for path in ("messages", "messages.csv"):
                assert client.get(f"/api/v1/{path}", params=BY_NAME).status_code == 403


JSON_WITH_GROUPS = (
    *("messages", "messages/1", "groups", "overview", "operations", "operations/1"),
    "preview?action=retry",
)


def test_every_endpoint_that_refuses_a_viewer_says_so(tmp_path: Path, document: Any) -> None:
    """With each filter, too; and 403 stands nowhere where a viewer never gets it."""
    with running_site(tmp_path, Masking(Bodies.OPERATORS, ["timeout after"])) as site:
        refused, documented = refusals(site.client("token", Role.VIEWER), document)
    assert refused == documented


OF_FORMS = {"description": "The CSRF token is missing."}
"""The refusal of browsers' sessions only; this viewer has a token."""


def refusals(viewer: httpx2.Client, document: Any) -> tuple[set[Any], set[Any]]:
    """Return the endpoints that answer 403 to a viewer, and those that say so."""
    refused, documented = set(), set()
    for template, item in document["paths"].items():
        path = re.sub(r"{.*?}", "1", template)
        for method, operation in item.items():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
            queries = {"property": "customer=anna", "contains": "anna", "cause": "x"}
            queries["cause_group"] = MASKED_GROUP
            needed = {"action": "retry", "destination": "orders"}
            fixed = {name: value for name, value in needed.items() if name in named}
            for name, value in ({None: None} | queries).items():
                if name is not None and name not in named:
                    continue
                query = fixed | ({} if name is None else {name: value})
                with viewer.stream(method.upper(), path, params=query) as answer:
                    if answer.status_code == 403:
                        refused.add((method, template))
            if (
                operation["responses"].get("403", OF_FORMS)["description"]
                != OF_FORMS["description"]
            ):
                documented.add((method, template))
    return refused, documented


def test_a_cut_shows_no_part_of_what_is_masked(tmp_path: Path) -> None:
    """A pattern that the cut parts still counts: the end of what is shown may be its begin."""
    with running_site(tmp_path, Masking(Bodies.VIEWERS, [r"card \d{4} \d{4}"])) as site:
        api = site.client("token")
        for most in range(1, 14):
            text = api.get(f"/api/v1/messages/1?max_bytes={most}").json()["view"]["body"]["text"]
            assert text == "***"


def test_the_first_line_of_a_note_shows_no_part_of_what_is_masked(tmp_path: Path) -> None:
    with running_site(tmp_path, Masking(patterns=["zebra\n4711"])) as site:
        operator = site.client("token")
        note = {**BY_NAME, "text": "zebra\n4711"}
        assert operator.post("/api/v1/notes", json=note).status_code == 201
        assert "Note of" in operator.get("/groups").text
        assert "zebra" not in operator.get("/groups").text


def test_what_is_masked_is_not_shown_indented() -> None:
    """A pattern that is written for the text as it is may not fit it as it is indented."""
    body = BodyView(kind=BodyKind.JSON, text='{"pin":"12"}', pretty='{\n "pin": "12"\n}')
    view = MessageView(wire="AMQP 1.0", body=body, size_bytes=1)
    shown = Masking(Bodies.VIEWERS, [r'"pin":"\d+"']).message(view, sees=True)
    assert (shown.body.text, shown.body.pretty) == ("{***}", "")


def test_a_pattern_that_takes_too_long_masks_all() -> None:
    masking = Masking(Bodies.VIEWERS, [r"^(a|aa|a+b?)+$"])
    assert masking.text("a" * 4000 + "!") == "***"


def test_a_pattern_that_takes_long_holds_up_no_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a text takes: pages are masked beside what answers probes."""
    monkeypatch.setattr(masking, "_TIMEOUT_S", 60.0)
    explosive = Masking(Bodies.VIEWERS, [r"^(a|aa|a+b?)+$"])
    length, took_s = 20, 0.0
    while took_s < 0.15:
        length += 1
        began_s = time.process_time()
        explosive.text("a" * length + "!")
        took_s = time.process_time() - began_s
    cause, begun = "a" * length + "?", threading.Event()

    def text(text: str, *, is_cut: bool = False) -> str:
        begun.set()
        return Masking.text(explosive, cause if text else text, is_cut=is_cut)

    monkeypatch.setattr(explosive, "text", text)
    with running_site(tmp_path, explosive) as site, ThreadPoolExecutor(1) as threads:
        page = threads.submit(site.client("token").get, "/groups")
        probe = site.client()
        assert begun.wait(30)
        assert [probe.get(path).status_code for path in ("/healthz", "/metrics")] == [200, 200]
        assert not page.done()
        assert page.result().status_code == 200


# --- the stream -------------------------------------------------------------------------------


def counters(lines: Iterator[str]) -> Any:
    for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


def test_counters_come_when_they_change(site: Site) -> None:
    with site.client("token").stream("GET", "/api/v1/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        first = counters(lines)
        assert (first["waiting"], first["held"], first["parked"]) == (3, 1, 1)
        store = SqliteStore(site.folder / "schedule.db", clock=SystemClock())
        store.open()
        store.change(RowFilter(ids=(3,)), row_changes.release(1, "test"))
        store.close()
        found = counters(lines)
        while found["held"]:
            found = counters(lines)
        assert found["waiting"] == 4


def test_the_number_of_listeners_is_bounded(shared: Site) -> None:
    clients = [shared.client("token") for _ in range(MAX_LISTENERS + 1)]
    streams = [client.stream("GET", "/api/v1/events") for client in clients]
    answers = [stream.__enter__() for stream in streams]
    try:
        assert [answer.status_code for answer in answers] == [200] * MAX_LISTENERS + [503]
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)
    again = shared.client("token")

    def is_heard() -> bool:
        with again.stream("GET", "/api/v1/events") as answer:
            return answer.status_code == 200

    eventually(is_heard)


def test_masking_covers_every_text_whoever_wrote_it(tmp_path: Path) -> None:
    """Stack traces, notes, reasons, conditions of commands: in pages, lists, JSON and streams."""
    secret = "iban-DE02120300"
    pages = (
        *("/", "/groups", "/messages", "/messages?state=held", "/messages/one?id=6"),
        *("/operations", "/operations/1", "/operations/2", "/overview.csv", "/groups.csv"),
        *("/messages.csv", "/operations/1.csv", "/api/v1/groups", "/api/v1/overview"),
        *("/api/v1/messages", "/api/v1/messages/6", "/api/v1/operations", "/api/v1/operations/1"),
        *("/api/v1/operations/2", "/api/v1/messages.csv", "/api/v1/groups.csv"),
        *("/api/v1/preview?action=retry", "/api/v1/messages?cause_group=", "/api/v1/status"),
    )
    with running_site(tmp_path, Masking(Bodies.VIEWERS, [r"iban-\w+"])) as site:
        write_everywhere(site.folder / "schedule.db", secret)
        for role in Role:
            client = site.client("token", role)
            groups = client.get("/api/v1/groups").json()
            numbers = {f"#{one['number']}" for one in groups if "***" in one["cause_group"]}
            [number] = numbers
            named = {"destination": "queue://orders", "cause_group": number}
            place = {"destination": "queue://orders", "group": number}
            asked = [*((page, {}) for page in pages), ("/api/v1/notes", named)]
            for path, query in [*asked, ("/groups/one", place), ("/messages", place)]:
                answer = client.get(path, params=query) if query else client.get(path)
                assert secret not in unquote_plus(answer.text), path
            with client.stream("GET", "/api/v1/events") as stream:
                first = next(line for line in stream.iter_lines() if line.startswith("data:"))
            assert ("***" in first, secret in first) == (True, False)


def write_everywhere(path: Path, secret: str) -> None:
    """Write a text wherever a sender, a broker or a person can."""
    cause = f"shop.X: no {secret}\n\tat shop.A.b(A.java:1)\nCaused by: shop.Y: {secret}"
    group = f"shop.X: no {secret}"
    row = taken_row(6, destination="queue://orders", cause=cause, cause_group=group)
    store = SqliteStore(path, clock=SystemClock())
    parked = Parked(at_ms=1, id=6, redelivery_id=row.redelivery_id, destination="x", reason=secret)
    keep(store, [row], [msgspec.structs.replace(took(row), cause_group=group), parked])
    store.change(RowFilter(ids=(6,)), row_changes.hold(1, "cli:ann"))
    chosen = Selection(
        rows=RowFilter(destination="queue://orders", cause_group=group, cause_contains=secret),
        contains=secret,
        properties=(("account", secret),),
    )
    now_ms = SystemClock().now_ms()
    for action in (Action.HOLD, Action.RETRY):
        store.add_operation(
            Operation(
                id=0,
                action=action,
                selection=chosen,
                actor="cli:ann",
                reason=secret,
                created_at_ms=now_ms,
                until_id=0,
                state_reason=secret,
                state_changes=(
                    StateChange(
                        at_ms=now_ms, state=OperationState.PAUSED, actor="cli:ann", reason=secret
                    ),
                ),
            )
        )
    write_note(store, ("queue://orders", group), f"ask {secret}", "cli:ann", now_ms, owner="ann")
    store.close()


def test_the_status_tells_the_last_cycle_however_long_the_store_is_open(site: Site) -> None:
    """Each of the threads that answer keeps a store open."""
    api = site.client("token")
    first = {api.get("/api/v1/status").json()["cycle"] for _ in range(2 * THREADS)}
    store = SqliteStore(site.folder / "schedule.db", clock=SystemClock())
    store.open()
    take_rows(store, max(first) + 1, [])
    store.close()
    later = {api.get("/api/v1/status").json()["cycle"] for _ in range(2 * THREADS)}
    assert (first, later) == ({1}, {2})
