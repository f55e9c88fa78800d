"""A person learns before a send what the gate will answer: command, API, console and doctor."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_xml import STOCK_ADDRESSES
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.machine.ports import free_port
from support.sidecar.doctor import run_doctor
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

RED = "color='red'"
POLICY = """
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 9
    redelivery_delay_ms: 3600000
"""
QUEUES = "".join(
    f'<address name="{name}"><anycast><queue name="{name}">{inside}</queue></anycast></address>'
    for name, inside in {
        "orders": "",
        "red": f'<filter string="{RED}"/>',
        "DLQ.exhausted": f'<filter string="{RED}"/>',
    }.items()
)
MISSPELLED = "reapir"
IS_MADE = f"{MISSPELLED} does not exist: the broker makes it at the first send"


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(addresses=STOCK_ADDRESSES + QUEUES) as started:
        yield started


@pytest.fixture(scope="module")
def sidecar(
    broker: ArtemisBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SidecarProcess]:
    """Run it on a list of brokers whose first one is away, as after a failover."""
    folder = tmp_path_factory.mktemp("preview")
    peer = JmsPeer.of(broker, "core")
    peer.produce("orders", "Text", count=2)
    peer.fail("orders", messages=2, deliveries=10)
    eventually(lambda: len(peer.browse("DLQ")) == 2, what="two messages have died")
    policy = write_policy(folder, POLICY)
    sets = ["intake.backlog=process", "intake.cause_notes=shop.notes"]
    urls = f"[core://127.0.0.1:{free_port()}, {broker.core_url}]"
    with SidecarProcess(folder, urls, policy=policy, sets=sets) as started:
        started.start()
        eventually(lambda: started.unsent() == 2, what="they wait")
        yield started


def test_a_dry_run_says_on_classic_that_a_target_does_not_exist(tmp_path: Path) -> None:
    with (
        ClassicBroker() as broker,
        SidecarProcess(tmp_path, broker.openwire_url, sets=["intake.backlog=hold"]) as sidecar,
    ):
        peer = JmsPeer.of(broker, "openwire")
        peer.produce("ActiveMQ.DLQ", "Text", count=1)
        peer.produce("repair", "Text", count=1)
        sidecar.start()
        [row] = eventually(sidecar.rows, what="it was taken")
        for name, is_missing in ((MISSPELLED, True), ("repair", False)):
            said = sidecar.try_command("redirect", str(row["id"]), "--dry-run", "--to", name)
            assert (IS_MADE in said.stderr) is is_missing, said.stderr


def test_a_dry_run_says_that_a_target_does_not_exist_or_takes_others(
    sidecar: SidecarProcess,
) -> None:
    said = sidecar.try_command("redirect", "--dry-run", "--to", MISSPELLED, "--state", "waiting")
    assert IS_MADE in said.stderr
    said = sidecar.try_command("redirect", "--dry-run", "--to", "red", "--state", "waiting")
    assert f"red takes only messages that match ({RED})" in said.stderr
    said = sidecar.try_command("retry", "--dry-run", "--state", "waiting")
    assert "takes only" not in said.stderr
    assert "only the send shows" not in said.stderr


def test_a_dry_run_says_that_a_target_is_a_queue_of_notes(
    sidecar: SidecarProcess,
) -> None:
    said = sidecar.try_command("redirect", "--dry-run", "--to", "shop.notes", "--state", "waiting")
    assert "shop.notes holds the notes of consumers" in said.stderr


def test_the_api_answers_the_same(sidecar: SidecarProcess) -> None:
    code, answer = sidecar.get(f"/api/v1/preview?action=redirect&target={MISSPELLED}")
    assert code == 200
    assert any(IS_MADE in note for note in json.loads(answer)["notes"])


def test_the_console_asks_again(sidecar: SidecarProcess) -> None:
    """The first press shows the doubt; the page then holds the target that was asked about."""
    _, page = sidecar.get("/act/redirect?state=waiting")
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    form |= {"target": MISSPELLED}
    code, answer = posted(sidecar, "/act/redirect?state=waiting", form)
    assert code == 422
    assert IS_MADE in answer
    assert f'name="asked" value="{MISSPELLED}"' in answer
    assert json.loads(sidecar.get("/api/v1/operations")[1]) == []


def posted(sidecar: SidecarProcess, path: str, form: dict[str, str]) -> tuple[int, str]:
    data = urllib.parse.urlencode(form).encode()
    place = sidecar._http
    try:
        with urllib.request.urlopen(f"http://{place}{path}", data, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_doctor_names_a_final_queue_that_would_lose_messages(
    broker: ArtemisBroker, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path, POLICY)
    verdict = run_doctor(broker.core_url, tmp_path, policy=policy)
    [found] = verdict.of("final queues")
    assert found["severity"] == "problem"
    assert f"takes only messages that match ({RED})" in found["what"]
