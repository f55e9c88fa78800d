"""Operating a service: a backlog, signals, refusals, and what is never said."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsMessage, JmsPeer
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
PASSWORD = "pl4nted-passw0rd"
BODY = "planted body: nobody's business"
LOGIN = f"""
    <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
      <authenticationUser username="admin" password="{PASSWORD}" groups="admins,users"/>
    </users></simpleAuthenticationPlugin>
"""


@dataclass
class Site:
    """A broker with a login, and what differs between the products."""

    broker: Broker
    url: str
    policy: Path
    provider: str
    how: str
    dead_letter_queue: str

    @property
    def peer(self) -> JmsPeer:
        return JmsPeer.of(self.broker, self.provider)

    def attach(self, folder: Path, *sets: str, **options: Any) -> SidecarProcess:
        return SidecarProcess(
            folder,
            options.pop("url", self.url),
            policy=options.pop("policy", self.policy),
            sets=["intake.backlog=process", *sets],
            **options,
        )

    def die(self, queue: str, count: int, **message: Any) -> list[JmsMessage]:
        """Send messages and make each die once."""
        sent = self.peer.produce(queue, ["Text"], count=count, **message)
        self.fail(queue, count)
        return sent

    def fail(self, queue: str, count: int, **options: Any) -> None:
        # Why: a reject is settled at once, nothing has to be waited for.
        self.peer.fail(queue, self.how, messages=count, deliveries=1, quiet_ms=0, **options)


whatever_the_broker = pytest.mark.parametrize(
    "site", [pytest.param("classic", marks=pytest.mark.proof), "artemis"], indirect=True
)
"""For what no broker has a part in."""


@pytest.fixture(scope="module", params=["classic", "artemis"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "classic":
        classic = ClassicBroker(CLASSIC_6, plugins=LOGIN)
        classic.password = PASSWORD
        with classic:
            policy = POLICIES / "redelivery.yaml"
            url = classic.openwire_url
            yield Site(classic, url, policy, "openwire", "rollback", "ActiveMQ.DLQ")
        return
    artemis = ArtemisBroker()
    artemis.password = PASSWORD
    with artemis:
        policy = POLICIES / "artemis.yaml"
        yield Site(artemis, artemis.amqp_url, policy, "qpid", "reject", "DLQ")


def wait_for_rows(sidecar: SidecarProcess, destination: str, count: int) -> list[dict[str, Any]]:
    return eventually(
        lambda: rows if len(rows := rows_of(sidecar, destination)) == count else None,
        what=f"{count} rows for {destination}",
    )


def rows_of(sidecar: SidecarProcess, destination: str) -> list[dict[str, Any]]:
    """Return what is not exhausted."""
    rows = sidecar.rows("--destination", destination)
    return [row for row in rows if row["state"] != "exhausted"]


def types(sidecar: SidecarProcess, reference: object) -> list[str]:
    story = sidecar.json_command("show", str(reference))
    return [event["type"] for event in story["history"]]


def test_a_backlog_is_held_until_it_is_released(site: Site, tmp_path: Path, unique: str) -> None:
    """What died before the first attach waits for a person; what dies later does not."""
    queue, peer = f"e2e.back.{unique}", site.peer
    old = site.die(queue, 3, test_id=f"{unique}-old")
    if site.provider == "qpid":
        # Quirk (Artemis): what is rejected in the dead-letter queue itself loses its origin there.
        lost = f"{unique}-lost"
        site.die(queue, 1, test_id=lost)
        site.fail(site.dead_letter_queue, 1, selector=f"testId = '{lost}-0'")
    with site.attach(tmp_path, "intake.backlog=hold", "intake.backlog_threshold=2") as sidecar:
        sidecar.start()
        held = wait_for_rows(sidecar, queue, 3)
        site.die(queue, 1, test_id=f"{unique}-new")
        [new] = peer.consume(queue, count=1)
        assert new.test_id == f"{unique}-new-0"
        assert [(row["state"], row["rule"]) for row in held] == [("held", held[0]["rule"])] * 3
        assert types(sidecar, held[0]["id"]) == ["received", "scheduled", "held"]
        if site.provider == "qpid":
            [parked] = sidecar.rows("--state", "parked")
            assert "the true origin is lost" in parked["rule"]

        released = sidecar.json_command("release", "--destination", queue, "--yes")
        back = peer.consume(queue, count=3)
        assert released["changed"] == 3
        assert sorted(one.test_id for one in back) == [one.test_id for one in old]


def wait_for_metric(sidecar: SidecarProcess, name: str, value: float) -> None:
    eventually(lambda: sidecar.metric(name) >= value, what=f"{name} is {value}")


@whatever_the_broker
def test_sigterm_finishes_the_cycle(site: Site, tmp_path: Path, unique: str) -> None:
    """In the middle of its work it leaves with 0, and goes on after a restart."""
    queue, peer = f"e2e.back.{unique}", site.peer
    sent = site.die(queue, 120)
    with site.attach(tmp_path, "cycle.max_messages=5") as sidecar:
        sidecar.start()
        wait_for_metric(sidecar, "amqsidecar_dead_letters_received_total", 10)
        assert sidecar.stop() == 0
        assert sidecar.log_lines()[-1]["event"] == "stopped"
        assert sidecar.json_command("status")["unfinished_cycle"] is None

        sidecar.start()
        back = peer.consume(queue, count=120)
        assert sorted(one.test_id for one in back) == sorted(one.test_id for one in sent)
        assert sidecar.metric("amqsidecar_cycles_in_doubt_total") == 0


@whatever_the_broker
def test_a_second_process_on_the_same_store_is_refused(site: Site, tmp_path: Path) -> None:
    """It names the holder and what to do, and ends with 69; the first one continues."""
    with site.attach(tmp_path) as sidecar:
        sidecar.start()
        said = sidecar.run_refused(expect=69)
        assert "is in use by another service, process" in said
        assert "store.url" in said
        assert sidecar.get("/readyz")[0] == 200


def test_a_wrong_password_is_refused(site: Site, tmp_path: Path) -> None:
    """The service does not start, says what the broker said, and not the password."""
    url = site.url.replace(PASSWORD, "wr0ng-passw0rd")
    said = site.attach(tmp_path, url=url).run_refused(expect=69)
    assert "wr0ng-passw0rd" not in said
    assert "Traceback" not in said
    assert "password" in said.lower() or "authentic" in said.lower()


def test_nothing_reveals_passwords_or_bodies(site: Site, tmp_path: Path, unique: str) -> None:
    """Not the log at its most talkative, not the commands, not the probes."""
    queue = f"e2e.late.{unique}"
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD)
    for folder, url, sets in (
        ("in-url", site.url, ()),
        ("in-file", site.url.replace(f":{PASSWORD}", ""), (password_option(password_file),)),
    ):
        (tmp_path / folder).mkdir()
        with site.attach(tmp_path / folder, "log.level=debug", *sets, url=url) as sidecar:
            sidecar.start()
            site.die(queue, 1, text=BODY)
            [row] = wait_for_rows(sidecar, queue, 1)
            outputs = [
                sidecar.run_command("list"),
                sidecar.run_command("show", str(row["id"])),
                *(sidecar.run_command(name, "--output", "json") for name in ("status", "list")),
                *(sidecar.get(path)[1] for path in ("/metrics", "/readyz", "/healthz")),
            ]
            assert sidecar.json_command("retry", str(row["id"]))["changed"] == 1
            [back] = site.peer.consume(queue, count=1)
            assert back.body == BODY
            assert sidecar.stop() == 0
            assert_unsaid([*outputs, sidecar.log()], [PASSWORD, BODY])


def password_option(path: Path) -> str:
    return f"broker.password_file={path}"


def assert_unsaid(texts: Sequence[str], secrets: Sequence[str]) -> None:
    assert [secret for secret in secrets for text in texts if secret in text] == []


def test_what_acts_without_a_policy_is_reported(site: Site, tmp_path: Path, unique: str) -> None:
    """Artemis: its settings, once a death had them read; Classic: its default policy."""
    queue = f"e2e.late.{unique}"
    with site.attach(tmp_path, policy=None) as sidecar:
        sidecar.start()
        case = f"/api/v1/policies/explain?destination={queue}"
        is_artemis = site.provider == "qpid"
        if is_artemis:
            status, text = sidecar.get(case)
            assert (status, "not yet read for this address" in text) == (404, True)
        site.die(queue, 1)

        def told() -> dict[str, Any] | None:
            status, text = sidecar.get(case)
            return json.loads(text) if status == 200 else None

        forecast = eventually(told, what="the rules are known")
        if is_artemis:
            assert f"the broker's settings of {queue}, read live at 20" in forecast["now"]["rule"]
        else:
            assert len(forecast["sends"]) == 6
        view = json.loads(sidecar.get("/api/v1/policies")[1])
        assert ("read live" in view["source"]) is is_artemis
        assert ("default redelivery policy" in view["source"]) is not is_artemis
