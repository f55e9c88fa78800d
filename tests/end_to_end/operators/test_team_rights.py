"""Two teams on one real broker: each sees, retries, discards and undoes only its own messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amqsidecar.http.authentication.files import new_token, token_digest
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.web.client import web_client

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
COUNT = 4
TEAMS = ("orders", "pay")


class Teams:
    """A sidecar that holds dead letters of two teams, and a client of each."""

    def __init__(self, folder: Path, unique: str, broker: ArtemisBroker) -> None:
        self.queues = {team: f"e2e.late.{unique}.{team}.a" for team in TEAMS}
        self.roles, self.unique = folder / "roles.yaml", unique
        self.write_roles(orders="[edit, discard]", pay="[edit, discard]")
        tokens = {team: new_token() for team in (*TEAMS, "operator")}
        lines = [f"{team} {team} sha256:{token_digest(one)}\n" for team, one in tokens.items()]
        (folder / "tokens").write_text("".join(lines))
        self.tokens, self.peer = tokens, JmsPeer.of(broker, "qpid")
        self.sidecar = SidecarProcess(
            folder,
            broker.pair_url,
            policy=POLICY,
            sets=[
                f"intake.queues=e2e.late.{unique}.DLQ",
                "intake.backlog_threshold=1",
                f"http.tokens_file={folder / 'tokens'}",
                f"http.roles_file={self.roles}",
            ],
        )

    def write_roles(self, **rights: str) -> None:
        """Replace the file; a reader sees the old or the new one."""
        lines = [
            f"{team}: {{rights: {{e2e.late.{self.unique}.{team}.>: {given}}}}}\n"
            for team, given in rights.items()
        ]
        new = self.roles.with_suffix(".new")
        new.write_text("".join(lines))
        new.replace(self.roles)

    @contextmanager
    def client(self, who: str) -> Iterator[httpx2.Client]:
        self.sidecar.get("/healthz")
        with web_client(f"http://{self.sidecar._http}") as client:
            client.headers["Authorization"] = f"Bearer {self.tokens[who]}"
            yield client

    def ask(self, who: str, path: str, body: object = None, status: int = 200) -> Any:
        with self.client(who) as client:
            method = "GET" if body is None else "POST"
            answer = client.request(method, f"/api/v1{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def held(self, who: str) -> dict[str, int]:
        found = self.ask(who, "/status")["waiting"]
        return {one["destination"]: one["count"] for one in found if one["state"] == "held"}


@pytest.fixture
def teams(artemis: ArtemisBroker, tmp_path: Path, unique: str) -> Iterator[Teams]:
    found = Teams(tmp_path, unique, artemis)
    harness = AmqpArtemisHarness(artemis, f"e2e.late.{unique}")
    harness.kill_at_first_failure(f"e2e.late.{unique}")
    harness.close()
    for queue in found.queues.values():
        found.peer.produce(queue, "Text", count=COUNT)
        found.peer.fail(queue, "reject", messages=COUNT, deliveries=1, quiet_ms=0)
    with found.sidecar.start():
        eventually(
            lambda: sum(found.held("operator").values()) == 2 * COUNT, what="all dead are held"
        )
        yield found


def test_each_team_acts_on_its_own(teams: Teams) -> None:
    orders, pay = (f"queue://{teams.queues[team]}" for team in TEAMS)
    assert teams.held("orders") == {orders: COUNT}
    assert {one["destination"] for one in teams.ask("operator", "/groups")} == {orders, pay}
    [group] = teams.ask("orders", "/groups")
    assert (group["destination"], group["held"]) == (orders, COUNT)

    # One cause group of both: a team's preview and retry are about its own part.
    query = {"action": "retry", "cause_group": group["cause_group"]}
    with teams.client("orders") as client:
        seen = client.get("/api/v1/preview", params=query).json()
    assert (seen["count"], [one["destination"] for one in seen["parts"]]) == (COUNT, [orders])
    wanted = {
        "action": "retry",
        "filter": {"cause_group": group["cause_group"]},
        "expected": COUNT,
        "since": seen["since"],
    }
    retried = teams.ask("orders", "/operations", wanted, 201)["id"]
    assert len(teams.peer.consume(teams.queues["orders"], count=COUNT)) == COUNT
    assert teams.held("operator") == {pay: COUNT}
    teams.ask("pay", f"/operations/{retried}", status=404)

    # A discard and its undo.
    gone = teams.ask(
        "pay",
        "/operations",
        {"action": "discard", "filter": {"state": "held"}, "expected": COUNT},
        201,
    )["id"]
    eventually(lambda: teams.held("operator") == {}, what="they are discarded")
    assert teams.ask("orders", "/operations")[0]["id"] == retried
    teams.ask("orders", f"/operations/{gone}/undo", {}, 404)
    teams.ask("pay", f"/operations/{gone}/undo", {})
    eventually(lambda: teams.held("pay") == {pay: COUNT}, what="they are back")

    # What is not theirs can't be a target, either.
    redirect = {"action": "redirect", "filter": {"state": "held"}, "expected": COUNT}
    teams.ask("pay", "/operations", {**redirect, "target": teams.queues["orders"]}, 403)

    # The file is read again while the service runs.
    teams.write_roles(orders="[view]", pay="[view]")
    teams.ask("pay", "/operations", {**redirect, "target": teams.queues["pay"]}, 403)
    assert teams.held("pay") == {pay: COUNT}
    teams.write_roles(orders="[view]")
    teams.ask("pay", "/status", status=403)
    assert teams.sidecar.get("/metrics")[0] == 401
