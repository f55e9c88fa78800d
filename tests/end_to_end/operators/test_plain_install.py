"""A plain install compiles nothing, has no AMQP, and serves Classic over OpenWire."""

import subprocess
from pathlib import Path

import pytest

from support.brokers import ClassicBroker
from support.jms_peer import JmsPeer
from support.plain_install import plain_install
from support.sidecar_process import SidecarProcess

RULES = (
    "policy.rules={plugins: [{redelivery: {default_entry: {initial_redelivery_delay_ms: 100}}}]}"
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain_install(tmp_path_factory.mktemp("plain"))


def told(programs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(programs / "amqsidecar"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_explains_examines_and_redelivers_over_openwire(programs: Path, tmp_path: Path) -> None:
    missing = subprocess.run(
        [programs / "python3", "-c", "import proton"], capture_output=True, check=False
    )
    assert missing.returncode == 1, "the venv has python-qpid-proton"
    explained = told(programs, "explain", "--set", RULES, "--destination", "queue://orders")
    assert explained.returncode == 0, explained.stderr
    assert '"delay_ms":100' in explained.stdout.replace(" ", "")
    with (
        ClassicBroker() as broker,
        SidecarProcess(
            tmp_path,
            broker.openwire_url,
            sets=[RULES],
            program=(str(programs / "amqsidecar"),),
        ) as sidecar,
    ):
        assert "fit: 0 problems" in sidecar.run_command("doctor")
        sidecar.start()
        peer = JmsPeer.of(broker, "openwire")
        peer.fill("orders", 1)
        with peer.start_flaky_consumer("orders", failures=1) as consumer:
            assert consumer.wait_for_successes(1) == ["n0"]
        assert sidecar.stop() == 0


@pytest.mark.parametrize("wire", ["openwire", "stomp_artemis", "stomp_classic"])
def test_openwire_and_stomp_need_no_more(programs: Path, wire: str) -> None:
    imported = [programs / "python3", "-c", f"import amqsidecar.brokers.{wire}.link"]
    assert subprocess.run(imported, check=False).returncode == 0


@pytest.mark.parametrize("command", [["run"], ["run", "--check"], ["doctor"]])
def test_amqp_says_what_to_install_and_what_that_needs(programs: Path, command: list[str]) -> None:
    done = told(programs, *command, "--set", "broker.url=amqp://127.0.0.1:1")
    assert done.returncode == 78
    assert 'pip install "amqsidecar[amqp]"' in done.stderr
    assert "a C compiler and Python's headers" in done.stderr
