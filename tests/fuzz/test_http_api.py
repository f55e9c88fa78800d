"""Any query and any body to the API: an answer or a problem in words, never a fault of ours."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.web.site import Site, running_site
from support.wires.fuzz import fuzz

NAMES = (
    *("id", "destination", "state", "cause_group", "cause", "source", "attempt", "older_than"),
    *(
        "newer_than",
        "count_at_least",
        "event",
        "property",
        "order",
        "after",
        "limit",
        "action",
        "since",
        "before",
        "outcome",
        "max_bytes",
    ),
    *("redelivery_count", "persistent", "expired"),
)
PATHS = (
    *("/messages", "/preview", "/groups", "/operations", "/operations/1/members", "/messages/1"),
    *("/policies/explain", "/notes", "/groups.csv", "/messages.csv", "/operations/1/members.csv"),
)
POSTS = (
    *("/operations", "/operations/1/pause", "/messages/2/edit-preview", "/messages/2/edit"),
    *("/policies/effect", "/policies/explain", "/notes"),
)
WORDS = (
    *("0", "-1", "9" * 30, "queue://", "topic://a", "waiting", "retry", "@0", "90s", "a=b"),
    *("due", "1.2", "true", "\0", "%", "é", "x" * 5000),
)
words = st.sampled_from(WORDS) | st.text(max_size=20)
queries = st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=5), words), max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["retry", "redirect", "cancel", "discard"]) | values,
        "filter": st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES[:11], values)) | values,
        "expected": st.integers(0, 5) | values,
        "everything": values,
        "reason": values,
        "target": values,
        "pace": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("probe", "per_second", "ramp", "stop_share", "window_ms"),
                st.integers() | st.floats() | st.booleans(),
            ),
        ),
        "change": st.fixed_dictionaries(
            {}, optional={"text": values, "set_properties": values, "remove_entries": values}
        ),
        "rules": values,
    },
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    def client(site: Site) -> httpx2.Client:
        found = site.client("token")
        found.headers["Content-Type"] = "application/json"
        return found

    with running_site(tmp_path_factory.mktemp("site")) as site:
        yield client(site)


def check(answer: httpx2.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.json()["detail"].splitlines()) == 1


@fuzz
@given(st.sampled_from(PATHS), queries)
@example("/messages", [("attempt", "9" * 19)])
@example("/messages", [("newer_than", "@" + "9" * 16)])
@example("/preview", [("action", "retry"), ("property", "=")])
@example("/operations/1/members", [("after", "\0")])
def test_any_query_is_answered(api: httpx2.Client, path: str, query: list[tuple[str, str]]) -> None:
    check(api.get(f"/api/v1{path}", params=tuple(query)))


@fuzz
@given(st.sampled_from(POSTS), bodies | values)
@example("/operations", {"action": "retry", "filter": {}, "expected": 9, "target": "queue://x"})
@example("/operations", {"action": "retry", "filter": {"id": [2**63]}, "expected": 0})
@example("/operations", {"action": "retry", "filter": {"id": [-1]}, "expected": 0})
@example("/operations", {"action": "hold", "filter": {"cause": "\ud800"}, "expected": 0})
@example("/operations", {"action": "hold", "filter": {"cause": "\0"}, "expected": 0})
@example("/policies/effect", {"rules": "&a [*a, *a]"})
def test_any_body_is_answered(api: httpx2.Client, path: str, body: Any) -> None:
    check(api.post(f"/api/v1{path}", content=json.dumps(body)))


@fuzz
@given(st.binary(max_size=40))
@example(b"[" * 100_000)
@example(b'{"action":"hold","action":"retry"}')
@example(b'{"filter":{"id":[1e400]}}')
def test_any_bytes_are_answered(api: httpx2.Client, body: bytes) -> None:
    check(api.post("/api/v1/operations", content=body))


@fuzz
@given(st.text(max_size=30))
@example("..%2f..%2fetc%2fpasswd")
@example("%00")
def test_any_message_is_asked_for(api: httpx2.Client, name: str) -> None:
    for rest in ("", "/content", "/originals/0/content"):
        check(api.get(f"/api/v1/messages/{quote(name, safe='%')}{rest}"))
