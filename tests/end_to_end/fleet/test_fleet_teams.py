"""Two teams on a Classic broker log in at the fleet by OpenID; each acts on its own messages."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from playwright.sync_api import expect

from amqsidecar.http.authentication.session import COOKIE
from end_to_end.operators.test_exhausted import CLASSIC_POLICY, make_broker
from support.jms.peer import JmsPeer
from support.machine.ports import free_port
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.web.chromium import opened_page, running_chromium
from support.web.fleet import FleetProcess, prepared_sidecar
from support.web.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Provider,
    come_back,
    running_provider,
)
from support.web.site import KEY

pytestmark = [pytest.mark.broker, pytest.mark.browser]

COUNT: Final = 4
QUEUES: Final = {"orders": "orders.a", "pay": "pay.a"}
ROLES: Final = """\
orders-team: {groups: [orders-dev], rights: {orders.>: [discard]}}
pay-team: {groups: [pay-dev], rights: {pay.>: [view]}}
"""


class Teams(NamedTuple):
    """A fleet over the sidecar of both teams, and one that gives roles to neither."""

    fleet: FleetProcess
    provider: Provider
    peer: JmsPeer
    sidecar: SidecarProcess

    @contextmanager
    def logged_in(self, *groups: str) -> Iterator[httpx2.Client]:
        """Log a member of groups in at the fleet, by the provider."""
        self.provider.claims["groups"] = list(groups)
        with self.fleet.client() as client:
            assert come_back(client, "/").status_code == 200
            client.headers["X-CSRF-Token"] = client.get("/api/v1/session").json()["csrf"]
            yield client

    def held(self) -> dict[str, int]:
        tallies = self.sidecar.json_command("status")["waiting"]
        return {one["destination"]: one["count"] for one in tallies if one["state"] == "held"}


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teams]:
    folder = tmp_path_factory.mktemp("teams")
    port = free_port()
    with ExitStack() as stack:
        broker = stack.enter_context(make_broker("classic"))
        provider = stack.enter_context(running_provider())
        peer = JmsPeer.of(broker, "openwire")
        for queue in QUEUES.values():
            peer.produce(queue, "Text", count=COUNT)
            peer.fail(queue, messages=COUNT)
        (folder / "roles.yaml").write_text(ROLES)
        (folder / "secret").write_text(CLIENT_SECRET)
        (folder / "key").write_text(KEY)
        by_provider = [
            f"http.oidc.issuer={provider.issuer}",
            f"http.oidc.client_id={CLIENT_ID}",
            f"http.oidc.client_secret_file={folder / 'secret'}",
            f"http.roles_file={folder / 'roles.yaml'}",
            f"http.public_url=http://127.0.0.1:{port}",
        ]
        sidecar = SidecarProcess(
            folder,
            broker.openwire_url,
            policy=write_policy(folder, CLASSIC_POLICY),
            sets=[
                "intake.backlog_threshold=1",
                f"http.session_key_file={folder / 'key'}",
                *by_provider,
            ],
        )
        stack.enter_context(sidecar.start())
        urls = {
            "both": sidecar_url(sidecar),
            "other": stack.enter_context(prepared_sidecar(folder / "other")),
        }
        sets = [*by_provider, f"http.listen=127.0.0.1:{port}", "http.operator_groups=fleet-ops"]
        fleet = stack.enter_context(FleetProcess(folder, urls, sets))
        found = Teams(fleet, provider, peer, sidecar)
        everything = {f"queue://{queue}": COUNT for queue in QUEUES.values()}
        eventually(lambda: found.held() == everything, what="all dead are held")
        yield found


def sidecar_url(sidecar: SidecarProcess) -> str:
    sidecar.get("/healthz")
    return f"http://{sidecar._http}"


def lines(client: httpx2.Client) -> dict[str, Any]:
    """Return the lines of the first screen once all have answered."""

    def answered() -> dict[str, Any] | None:
        found = client.get("/api/v1/overview").json()["sidecars"]
        is_waiting = any(one["state"] == "no answer yet" for one in found)
        return None if is_waiting else {one["seen"]["sidecar"]["name"]: one for one in found}

    return eventually(answered, what="all have answered")


def found_by(client: httpx2.Client, what: str, refusing: Sequence[str] = ()) -> list[Any]:
    """Return what all have answered but those that refuse."""

    def answered() -> list[list[Any]] | None:
        said = client.get(f"/api/v1/{what}").json()
        return [said["found"]] if {*said["missing"]} == {*refusing} else None

    return eventually(answered, what=f"all have answered for {what}")[0]


def places(client: httpx2.Client, refusing: Sequence[str] = ()) -> set[tuple[str, str]]:
    return {
        (one["sidecar"]["name"], one["value"]["destination"])
        for group in found_by(client, "groups", refusing)
        for one in group["places"]
    }


def test_each_sidecar_gives_the_role_by_its_own_groups(teams: Teams) -> None:
    with teams.logged_in("orders-dev") as client:
        session = client.get("/api/v1/session").json()
        assert (session["actor"], session["role"]) == ("api:olga", "orders-team")
        found = lines(client)
        assert found["both"]["state"] == "well", found["both"]
        assert found["both"]["seen"]["version"]
        assert found["other"]["state"] == "refuses"
        assert "olga is in no group that has access" in found["other"]["said"]["problem"]
        assert places(client, refusing=["other"]) == {("both", "queue://orders.a")}
    with teams.logged_in("pay-dev", "viewers") as client:
        assert places(client) >= {("both", "queue://pay.a"), ("other", "queue://orders.pay")}
        asked = {"action": "hold", "approvals": []}
        assert client.post("/api/v1/operations", json=asked).status_code == 403
    with teams.logged_in("fleet-ops") as client:
        # An operator of the fleet is none of a sidecar.
        assert {one["state"] for one in lines(client).values()} == {"refuses"}
    with teams.fleet.client() as stranger:
        teams.provider.claims["groups"] = ["staff"]
        assert come_back(stranger, "/").status_code == 403


def test_a_team_redirects_and_retries_its_own_in_a_browser(teams: Teams) -> None:
    with (
        teams.logged_in("orders-dev") as client,
        running_chromium() as browser,
        opened_page(browser, teams.fleet.address) as page,
    ):
        page.context.add_cookies(
            [{"name": COOKIE, "value": client.cookies[COOKIE], "url": teams.fleet.address}]
        )
        page.goto("/groups")
        page.locator("#group-1").click()
        page.get_by_role("link", name="Redirect…").click()
        target = page.get_by_label("Where to, at each broker")
        target.fill("pay.a")
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_text("your role has no right to act at queue://pay.a")).to_be_visible()
        target.fill("orders.repair")
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_role("heading", name=f"{COUNT} messages at 1 place")).to_be_visible()
        page.get_by_label("At once").check()
        page.get_by_label("Reason or ticket").fill("OPS-46")
        page.get_by_role("button", name="Redirect what is ticked").click()
        expect(page.get_by_text("begun", exact=True)).to_be_visible()
        assert len(teams.peer.consume("orders.repair", count=COUNT)) == COUNT
        [done] = found_by(client, "operations", refusing=["other"])
        assert (done["value"]["actor"], done["value"]["reason"]) == ("api:olga", "OPS-46")
    assert teams.held() == {"queue://pay.a": COUNT}
    with teams.logged_in("pay-dev") as client:
        assert found_by(client, "operations", refusing=["other"]) == []
