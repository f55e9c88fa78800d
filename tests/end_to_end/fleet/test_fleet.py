"""One console over two prepared sidecars, one hung, one down, one of an older version."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.http.access import Role
from amqsidecar.http.authentication.files import new_token, token_digest
from amqsidecar.http.authentication.session import COOKIE
from amqsidecar.model.marker import Marker
from amqsidecar.stores.sqlite.store import SqliteStore
from support.machine.ports import free_port
from support.otlp_receiver import attributes_of, otlp_receiver
from support.waiting import eventually
from support.web.client import web_client
from support.web.fleet import (
    OLDER,
    FleetProcess,
    as_person,
    hung_sidecar,
    older_sidecar,
    prepared_sidecar,
)
from support.web.incident import CAUSES
from support.web.site import RULES, session_cookie

WELL: Final = ("one", "two")
TIMEOUT: Final = "java.net.SocketTimeoutException: Read timed out, order *"


class Fleet(NamedTuple):
    process: FleetProcess
    folder: Path
    urls: dict[str, str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        urls = {
            "one": stack.enter_context(prepared_sidecar(folder / "one")),
            "two": stack.enter_context(
                prepared_sidecar(folder / "two", rules=RULES.replace("5", "7"))
            ),
            "hung": stack.enter_context(hung_sidecar()),
            "down": f"http://127.0.0.1:{free_port()}",
            "older": stack.enter_context(older_sidecar()),
        }
        yield Fleet(stack.enter_context(FleetProcess(folder, urls)), folder, urls)


def ask(fleet: Fleet, path: str, **headers: str) -> Any:
    with fleet.process.client(**(headers or as_person())) as client:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


def lines(fleet: Fleet, **headers: str) -> dict[str, Any]:
    found = ask(fleet, "/api/v1/overview", **headers)["sidecars"]
    return {one["seen"]["sidecar"]["name"]: one for one in found}


def known(fleet: Fleet, **headers: str) -> dict[str, Any]:
    """Wait until all that can answer have."""

    def answered() -> dict[str, Any] | None:
        found = lines(fleet, **headers)
        return None if any(one["state"] == "no answer yet" for one in found.values()) else found

    return eventually(answered, what="those that can answer have")


def test_the_first_screen_says_which_sidecars_say_nothing_about_now_and_why(fleet: Fleet) -> None:
    found = known(fleet)
    assert {name: one["state"] for name, one in found.items()} == {
        "one": "well",
        "two": "well",
        "hung": "unreachable",
        "down": "unreachable",
        "older": "well",
    }
    assert "no answer within" in found["hung"]["seen"]["problem"]
    assert "refused" in found["down"]["seen"]["problem"].lower()
    assert found["down"]["seen"]["answered_ms"] is None
    assert found["older"]["seen"]["version"] == OLDER
    screen = ask(fleet, "/api/v1/overview")
    assert screen["exhausted"] == 180
    assert set(screen["versions"][OLDER]) == {"older"}
    [kinds] = screen["rules"].values()
    assert sorted(map(tuple, kinds.values())) == [("one",), ("two",)]
    places = {
        one["cause_group"]: [place["sidecar"]["name"] for place in one["places"]]
        for one in screen["groups"]
    }
    assert {*places[TIMEOUT]} == {"one", "two"}
    assert places["old"] == ["older"]


def test_pages_show_it_in_the_frame_of_the_sidecars_console(fleet: Fleet) -> None:
    known(fleet)
    with fleet.process.client(accept="text/html", **as_person()) as client:
        for path, words in (
            (
                "/",
                (
                    "unreachable",
                    "never answered this console",
                    OLDER,
                    "kinds of rules",
                    "/policies",
                ),
            ),
            ("/groups", ("Read timed out", "Missing, or as they were before")),
            ("/messages", ("Give a condition",)),
            ("/messages?state=exhausted", ("exhausted", f"{fleet.urls['one']}/messages")),
            ("/messages?contains=order+17", ("Read timed out",)),
            ("/operations", ("Operations",)),
        ):
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            for one in words:
                assert one in answer.text, (path, one)
        assert client.get("/messages?state=nonsense").status_code == 400
        assert client.get("/act/nothing?group=x").status_code == 404


@contextmanager
def known_by(fleet: Fleet, way: str, role: Role) -> Iterator[dict[str, str]]:
    """Give the headers of a caller that the fleet and sidecar one know by a way; two knows none."""
    match way:
        case "token":
            token = new_token()
            line = f"ci {role} sha256:{token_digest(token)}\n"
            (fleet.folder / "fleet.tokens").write_text(line)
            (fleet.folder / "one" / "tokens").write_text(line)
            yield {"Authorization": f"Bearer {token}"}
        case "proxy":
            yield as_person("anna", f"{role}s")
        case _:
            yield {"Cookie": f"{COOKIE}={session_cookie('oidc', role)}"}


@pytest.mark.parametrize(
    ("way", "actor", "cause"),
    [("token", "ci", 0), ("proxy", "anna", 1), ("oidc", "olga", 2)],
)
def test_a_cause_is_acted_on_where_it_is_approved_and_in_the_persons_own_name(
    fleet: Fleet, way: str, actor: str, cause: int
) -> None:
    with (
        known_by(fleet, way, Role.OPERATOR) as headers,
        fleet.process.client(**headers) as client,
    ):
        groups = client.get("/api/v1/groups").json()["found"]
        [name] = [
            one["cause_group"]
            for one in groups
            if one["places"][0]["value"]["destination"] == CAUSES[cause][0]
        ]
        asked = {"action": "hold", "cause_group": name}
        found = client.get("/api/v1/preview", params=asked).json()["found"]
        approvals = {
            one["place"]["sidecar"]["name"]: one["approval"] for one in found if one["approval"]
        }
        token = {"X-CSRF-Token": client.get("/api/v1/session").json()["csrf"]}
        body = {"action": "hold", "approvals": [approvals["one"]], "reason": f"by {way}"}
        [begun] = client.post("/api/v1/operations", json=body, headers=token).json()
        assert begun["value"]["actor"] == f"api:{actor}", begun
        done = [
            (one["sidecar"]["name"], one["value"]["id"])
            for one in client.get("/api/v1/operations").json()["found"]
            if one["value"]["actor"] == f"api:{actor}"
        ]
        assert done == [("one", begun["value"]["id"])]


def test_a_token_that_a_sidecar_does_not_know_shows_nothing_of_it(fleet: Fleet) -> None:
    with known_by(fleet, "token", Role.OPERATOR) as headers:
        found = known(fleet, **headers)
    assert found["one"]["state"] == "well"
    assert found["two"]["state"] == "refuses"
    assert "this token is not known" in found["two"]["said"]["problem"]
    assert found["two"]["said"]["value"] is None


def test_a_viewer_changes_nothing_and_strangers_see_nothing(fleet: Fleet) -> None:
    with fleet.process.client(**as_person("vera", "viewers")) as client:
        assert client.get("/api/v1/overview").status_code == 200
        body = {"action": "hold", "approvals": []}
        assert client.post("/api/v1/operations", json=body).status_code == 403
    with fleet.process.client() as client:
        assert client.get("/api/v1/overview").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_audit_lines_of_the_fleet_reach_a_receiver_of_otlp(tmp_path: Path) -> None:
    with otlp_receiver() as receiver, prepared_sidecar(tmp_path / "one") as url:
        sets = [f"otel.endpoint={receiver.url}", "otel.signals=logs"]
        with (
            FleetProcess(tmp_path, {"one": url}, sets) as process,
            process.client(**as_person("vera", "viewers")) as client,
        ):
            body = {"action": "hold", "approvals": []}
            assert client.post("/api/v1/operations", json=body).status_code == 403
            dropped = 'amqsidecar_otlp_dropped_total{signal="logs"} 0.0'
            shown = client.get("/metrics").text
        assert dropped in shown
        assert shown.count("\namqsidecar_") == 1
        [line] = [one for one in receiver.logs if one.body.string_value == "vera (proxy): request"]
        about = attributes_of(line.attributes)
        assert (about["user.name"], about["event.outcome"]) == ("vera", "failure")


def test_a_new_cause_names_the_marker_before_it(tmp_path: Path) -> None:
    """As the sidecar's own pages do: on the first screen, among all groups, and at its place."""
    with ExitStack() as stack:
        url = stack.enter_context(prepared_sidecar(tmp_path / "one"))
        with closing(SqliteStore(tmp_path / "one" / "schedule.db", clock=SystemClock())) as store:
            store.open()
            at_ms = SystemClock().now_ms() - 4 * 3_600_000
            marker = Marker(at_ms=at_ms, text="orders <4.2>", destination="queue://orders.>")
            store.add_marker(marker)
        found = Fleet(stack.enter_context(FleetProcess(tmp_path, {"one": url})), tmp_path, {})
        known(found)
        with found.process.client(accept="text/html", **as_person()) as client:
            for path in ("/", "/groups", f"/groups/one?{urlencode({'group': TIMEOUT})}"):
                text = client.get(path).text
                assert 'new since <bdi class="data">orders &lt;4.2&gt;<' in text, path


def test_a_form_of_another_site_does_nothing(fleet: Fleet) -> None:
    with fleet.process.client(Sec_Fetch_Site="cross-site", **as_person()) as client:
        assert client.post("/act/hold", data={"approve": "{}"}).status_code == 403


def test_a_sidecar_that_stops_answering_is_shown_as_it_was_to_this_person_alone(
    tmp_path: Path,
) -> None:
    port = free_port()
    with ExitStack() as stack:
        sidecar = ExitStack()
        url = sidecar.enter_context(prepared_sidecar(tmp_path / "one", port))
        with sidecar:
            fleet = Fleet(
                stack.enter_context(FleetProcess(tmp_path, {"one": url})), tmp_path, {"one": url}
            )
            assert known(fleet)["one"]["said"]["problem"] == ""
            before_ms = known(fleet)["one"]["seen"]["since_ms"]
        stack.enter_context(hung_sidecar(port))
        eventually(lambda: lines(fleet)["one"]["state"] == "unreachable", what="it is seen")
        found = lines(fleet)["one"]
        assert found["said"]["value"]["exhausted"]
        assert found["seen"]["since_ms"] > before_ms
        assert found["said"]["at_ms"] <= found["seen"]["since_ms"]
        assert lines(fleet, **as_person("bert"))["one"]["said"]["value"] is None
        with fleet.process.client(**as_person()) as client:
            page = client.get("/").text
        assert "numbers of" in page
        assert "last answer" in page


def test_a_redirect_goes_where_it_was_previewed_and_waits_where_it_takes_two(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        urls = {
            "one": stack.enter_context(prepared_sidecar(tmp_path / "one")),
            "two": stack.enter_context(prepared_sidecar(tmp_path / "two", second_person_above=0)),
        }
        process = stack.enter_context(FleetProcess(tmp_path, urls))
        client = stack.enter_context(process.client(accept="text/html", **as_person()))
        asked = {"group": TIMEOUT}
        page = client.get("/act/redirect", params=asked).text
        assert "Where to, at each broker" in page
        assert 'name="approve"' not in page
        page = client.get("/act/redirect", params={**asked, "target": "orders.repair"}).text
        approvals = approvals_of(page)
        assert {one["target"] for one in approvals} == {"orders.repair"}
        form = {
            "csrf": page.partition('name="csrf" value="')[2].partition('"')[0],
            "approve": [json.dumps(one) for one in approvals],
            "how": "once",
        }
        answer = client.post("/act/redirect", data=form)
        here = Counter(one["sidecar"] for one in approvals)
        assert answer.text.count(">begun</span>") == here["one"] > 0
        assert answer.text.count(">waits for a second person</span>") == here["two"] > 0
        done = client.get("/api/v1/operations").json()["found"]
        assert {(one["value"]["action"], one["value"]["target"]) for one in done} == {
            ("redirect", "queue://orders.repair")
        }
        waiting = "waits for a second person"
        eventually(lambda: client.get("/").text.count(waiting) == here["two"], what=waiting)
        # Without the target that was approved nothing is sent anywhere.
        nowhere = json.dumps({**approvals[0], "target": None})
        answer = client.post("/act/redirect", data={**form, "approve": [nowhere]})
        assert "redirect needs one" in answer.text


def approvals_of(page: str) -> list[dict[str, Any]]:
    parts = page.split('name="approve" value="')[1:]
    return [json.loads(unescape(part.partition('"')[0])) for part in parts]


def test_each_sidecar_refuses_by_itself_what_has_changed_since_its_preview(tmp_path: Path) -> None:
    with ExitStack() as stack:
        urls = {name: stack.enter_context(prepared_sidecar(tmp_path / name)) for name in WELL}
        process = stack.enter_context(FleetProcess(tmp_path, urls))
        client = stack.enter_context(process.client(accept="text/html", **as_person()))
        page = client.get("/act/retry", params={"group": TIMEOUT}).text
        approvals = [
            json.dumps(one) for one in approvals_of(page) if CAUSES[0][0] in one["destination"]
        ]
        assert len(approvals) == 2
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        # Of sidecar two nearly all were held meanwhile... which a retry sends too; so given up.
        other = stack.enter_context(web_client(urls["two"]))
        other.headers.update(as_person("bert"))
        token = other.get("/api/v1/session").json()["csrf"]
        chosen = {"destination": CAUSES[0][0], "state": "waiting"}
        count = other.get("/api/v1/preview", params={"action": "discard", **chosen}).json()["count"]
        other.post(
            "/api/v1/operations",
            json={"action": "discard", "filter": chosen, "expected": count},
            headers={"X-CSRF-Token": token},
        ).raise_for_status()
        form = {"csrf": csrf, "approve": approvals, "how": "once", "reason": "OPS-1207"}
        answer = client.post("/act/retry", data=form)
        assert answer.status_code == 200, answer.text
        assert answer.text.count(">begun</span>") == 2
        [mine] = [
            one["value"]
            for one in client.get("/api/v1/operations").json()["found"]
            if one["sidecar"]["name"] == "one"
        ]
        assert mine["actor"] == "api:carl"
        # What is approved for more messages than there are is refused, and the other goes on.
        wrong = [one.replace('"expected": ', '"expected": 9') for one in approvals[:1]]
        answer = client.post("/act/retry", data={**form, "approve": [*wrong, approvals[1]]})
        assert answer.text.count(">begun</span>") == 1
        assert "look again" in answer.text
