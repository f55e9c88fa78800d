"""The audit of console and API: one line for each act, with its actor, and what it was."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amqsidecar.http.access import Role
from amqsidecar.http.masking import HIDDEN, Masking
from support.audit import audited
from support.web.console import console_client
from support.web.site import GROUPS_HEADER, USER_HEADER, Site, running_site

FROM = {"X-Forwarded-For": "203.0.113.7"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as running:
        yield running


def api_act(client: httpx2.Client, path: str, body: dict[str, Any] | None = None) -> None:
    answer = client.post(f"/api/v1{path}", json=body or {})
    assert answer.is_success, answer.text


HOLD = {"action": "hold", "filter": {"destination": "orders"}, "expected": 2, "reason": "mend"}
EDIT = {"change": {"text": "card ****"}, "reason": "card"}


def test_each_act_over_the_api_has_one_line(site: Site) -> None:
    client = site.client("token")
    client.headers.update(FROM)
    with audited() as lines:
        api_act(client, "/operations", HOLD)
        api_act(client, "/operations/1/pause", {"reason": "lunch"})
        api_act(client, "/operations/1/resume")
        api_act(client, "/operations/1/cancel")
        note = {"destination": "orders", "cause_group": "timeout after * ms", "owner": "ann"}
        assert client.post("/api/v1/notes", json=note).status_code in (201, 400)
        client.get("/api/v1/messages/1")
        client.get("/api/v1/messages/1/content")
        api_act(client, "/messages/1/edit-preview", EDIT)
        api_act(client, "/messages/1/edit", EDIT)
        client.get("/api/v1/messages/test-000000000001/originals/0/content")
        client.get("/api/v1/status")
        client.get("/api/v1/messages")
    said = [
        line["event.action"] for line in lines if line["event.action"] not in ("note", "request")
    ]
    assert said == [
        "hold",
        "operation-paused",
        "operation-running",
        "operation-cancelled",
        "read-message",
        "download-message",
        "read-message",
        "edit-message",
        "retry",
        "download-message",
    ]
    for line in lines:
        assert (line["user.name"], line["amqsidecar.way"]) == ("ci-operator", "token")
        assert line["source.ip"] == "203.0.113.7"
        assert line["ecs.version"]
    held, paused = lines[:2]
    assert held["amqsidecar.selection"]["destination"] == "queue://orders"
    assert (held["amqsidecar.count"], held["event.reason"]) == (2, "mend")
    assert (paused["amqsidecar.operation"], paused["event.reason"]) == (1, "lunch")
    assert paused["amqsidecar.before"] == {"state": "running"}
    assert paused["amqsidecar.after"]["state"] == "paused"
    (edited,) = [line for line in lines if line["event.action"] == "edit-message"]
    assert edited["amqsidecar.before"]["sha256"] != edited["amqsidecar.after"]["sha256"]
    assert edited["amqsidecar.after"]["body"] is True
    assert "4111" not in str(lines)


def test_the_page_of_an_operation_shows_who_by_which_way_from_where(site: Site) -> None:
    """A user of a proxy whose name looks like a command's is still a user of the console."""
    client = site.client("proxy")
    client.headers.update({**FROM, USER_HEADER: "cli:root", GROUPS_HEADER: "operators"})
    client.headers.update(site.csrf(client))
    with audited() as lines:
        api_act(client, "/operations", HOLD)
        assert client.post("/operations/1/pause", data={"reason": "lunch"}).status_code == 303
    page = " ".join(client.get("/operations/1").text.split())
    assert 'api:cli:root</bdi> (proxy from <bdi class="data">203.0.113.7</bdi>)' in page
    assert 'console:cli:root</bdi> (proxy from <bdi class="data">203.0.113.7</bdi>)' in page
    assert [(x["user.name"], x["amqsidecar.way"]) for x in lines] == [("cli:root", "proxy")] * 2
    assert not any("user.id" in line for line in lines)


def test_content_that_a_role_may_not_see_is_not_read(site: Site) -> None:
    viewer = site.client("token", Role.VIEWER)
    with audited() as lines:
        assert HIDDEN in viewer.get("/api/v1/messages/1").text
        assert viewer.get("/api/v1/messages/1/content").status_code == 403
        viewer.get("/messages/one?id=1")
    assert lines == []


@pytest.mark.parametrize("kind", ["token", "password"])
def test_lists_as_files_are_audited_with_what_they_are_of(site: Site, kind: str) -> None:
    client = site.client(kind)
    api_act(site.client("token"), "/operations", HOLD)
    root = "/api/v1" if kind == "token" else ""
    paths = ("groups.csv", "messages.csv?destination=orders", "operations/1/members.csv")
    with audited() as lines:
        for path in paths:
            assert client.get(f"{root}/{path}").status_code == 200
        client.get(f"{root}/operations/99/members.csv")
    assert {line["event.action"] for line in lines} == {"export"}
    assert [line["amqsidecar.list"] for line in lines] == ["groups", "messages", "members"]
    assert lines[1]["amqsidecar.selection"]["destination"] == "queue://orders"
    assert lines[2]["amqsidecar.operation"] == 1


def test_pages_that_compare_messages_are_audited_for_those_who_may_see_them(site: Site) -> None:
    group = {"destination": "queue://orders", "group": "timeout after * ms"}
    with audited() as lines:
        for role in (Role.VIEWER, Role.OPERATOR):
            page = site.client("password", role).get("/groups/one", params=group)
            assert page.status_code == 200
    reads = [line for line in lines if line["event.action"] != "log-in"]
    assert {(line["event.action"], line["user.name"]) for line in reads} == {
        ("read-messages", "operator")
    }
    assert reads[0]["amqsidecar.selection"]["ids"]


def test_pages_that_show_a_message_are_audited(site: Site) -> None:
    client = site.client("password")
    with audited() as lines:
        for page in ("/messages/one?id=1", "/messages/edit?id=1", "/messages/download?id=1"):
            assert client.get(page).status_code == 200
        client.get("/messages")
    assert [line["event.action"] for line in lines] == [
        "read-message",
        "read-message",
        "download-message",
    ]
    assert {line["amqsidecar.message"] for line in lines} == {"1"}


def test_auditors_see_nothing_that_is_masked(tmp_path: Path) -> None:
    """A line is JSON, where a pattern that is written for a text need not fit."""
    path, masking = tmp_path / "audit", Masking(patterns=['pin "[0-9]+"', "^zebra$"])
    after = {"text": 'the pin "4711" came back', "names": ["zebra"]}
    path.write_text(json.dumps({"event.action": "note", "amqsidecar.after": after}))
    with console_client(None, audit=path, masking=masking) as client:
        text = client.get("/audit").text
    assert "the *** came back" in text
    assert [one for one in ("4711", "zebra") if one in text] == []
