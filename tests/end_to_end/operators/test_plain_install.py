"""A plain install compiles nothing and has no AMQP; on Classic: `field/test_readme.py`."""

import subprocess
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.machine.processes import run_program
from support.sidecar.plain_install import plain_install
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

ARTEMIS_RULES = (
    'policy.rules={address_settings: [{match: "#", dead_letter_address: DLQ, '
    "max_delivery_attempts: 100, redelivery_delay_ms: 100}]}"
)
# Artemis's default: so often a message is delivered before it dies.
DELIVERIES_MAX = 10
MOVED = ("JMSDestination", "JMSRedelivered", "JMSDeliveryTime")
OF_BROKER = ("JMSXDeliveryCount",)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_install(tmp_path_factory.mktemp("plain"))


def told(programs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_program([str(programs / "amqsidecar"), *arguments], timeout=120)


def test_artemis_is_served_but_for_what_amqp_clients_have_made(
    programs: Path, tmp_path: Path
) -> None:
    """A Core message comes back; the other one stays whole, and `doctor` and `run` report it."""
    missing = subprocess.run(
        [programs / "python3", "-c", "import proton"], capture_output=True, check=False
    )
    assert missing.returncode == 1, "the venv has python-qpid-proton"
    with (
        ArtemisBroker() as broker,
        SidecarProcess(
            tmp_path,
            broker.pair_url,
            sets=[ARTEMIS_RULES, "intake.backlog=process"],
            program=(str(programs / "amqsidecar"),),
        ) as sidecar,
    ):
        core, amqp = JmsPeer.of(broker, "core"), JmsPeer.of(broker, "qpid")
        [left] = amqp.produce("amqp.orders", "Text")
        amqp.fail("amqp.orders", "reject", messages=1)
        examined = sidecar.run_command("doctor", "--notes")
        assert "artemis:// uses only Core here" in examined
        assert "AMQP clients have made them" in examined
        assert "fit: 0 problems" in examined
        sidecar.start()
        [sent] = core.produce("core.orders", "Bytes")
        with core.start_flaky_consumer("core.orders", failures=DELIVERIES_MAX) as consumer:
            assert consumer.wait_for_successes(1) == [sent.test_id]
        eventually(lambda: 'reason="made_by_amqp"' in sidecar.get("/metrics")[1], what="reported")
        assert sidecar.stop() == 0
        [still] = amqp.consume("DLQ", 1)
        assert not left.differences(still, without_headers=MOVED, without_properties=OF_BROKER)


@pytest.mark.parametrize("wire", ["openwire", "core_artemis", "stomp_artemis", "stomp_classic"])
def test_the_other_wires_need_no_more(programs: Path, wire: str) -> None:
    imported = [str(programs / "python3"), "-c", f"import amqsidecar.brokers.{wire}.link"]
    assert subprocess.run(imported, check=False).returncode == 0


@pytest.mark.parametrize("command", [["run"], ["run", "--check"], ["doctor"]])
def test_amqp_says_what_to_install_and_what_that_needs(programs: Path, command: list[str]) -> None:
    done = told(programs, *command, "--set", "broker.url=amqp://127.0.0.1:1")
    assert done.returncode == 78
    assert 'pip install "amqsidecar[amqp]"' in done.stderr
    assert "a C compiler and Python's headers" in done.stderr
