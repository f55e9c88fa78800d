"""The page on the listener: its commands set it up, and the way back leads to the broker."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.machine.ports import free_port, is_open
from support.sidecar.listener import copy_keys
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[3] / "deploy" / "reference" / "listener.md"
POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
ANYCAST = {"subscription-type": "ANYCAST"}


def code(under: str, language: str) -> str:
    """Return the first code of a language in a section of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {under}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.S)
    assert found, f"{PAGE.name}, {under}: no {language}"
    return found[1]


@contextmanager
def running(command: list[str], folder: Path, ports: dict[str, int]) -> Iterator[None]:
    """Run a command of the page, with ports of this machine in place of its addresses."""

    def local(text: str) -> str:
        for address, port in ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        return text

    assert command[0] == "amqsidecar", command
    arguments = [local(one) for one in command[1:]]
    keys = copy_keys(folder.parent).partition("=")[2]
    arguments = [one.replace("/etc/amqsidecar/copy-keys/keys", keys) for one in arguments]
    shutil.copy(keys, folder / "copy.keys")
    (folder / "amqsidecar.yaml").write_text(local(code("Set it up", "yaml")), encoding="utf-8")
    with (folder / "listener.log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--set", "listener.http_listen="],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        listens = next(iter(ports.values()))
        eventually(lambda: is_open(listens), what="the listener listens")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "is_beside_the_broker", [False, pytest.param(True, marks=pytest.mark.proof)]
)
def test_the_page_leads_to_the_listener_and_back(
    artemis: ArtemisBroker, tmp_path: Path, unique: str, is_beside_the_broker: bool
) -> None:
    port, orders, folder = free_port(), f"e2e.back.{unique}", tmp_path / "listener"
    folder.mkdir()
    broker = artemis.ports["PORT"]
    if is_beside_the_broker:
        container = code("In Kubernetes", "yaml\ninitContainers:").partition("command: ")[2]
        command = shlex.split(container.partition("]\n")[0].strip("[").replace(",", " "))
        ports = {"0.0.0.0:61613": port, "127.0.0.1:61612": broker}
    else:
        command = shlex.split(code("Set it up", "bash"))
        ports = {"0.0.0.0:61613": port, "broker:61612": broker}
    with SidecarProcess(
        tmp_path, artemis.pair_url, policy=POLICY, sets=[copy_keys(tmp_path)]
    ) as sidecar:
        sidecar.start()
        with running(command, folder, ports), StompPeer(port) as consumer:
            consumer.send(orders, {"destination-type": "ANYCAST"}, b"one")
            consumer.subscribe(orders, headers=ANYCAST)
            consumer.nack(consumer.receive(), reason="no stock")
            cause = "intercepted at the NACK of admin: no stock"
            eventually(lambda: cause in sidecar.run_command("groups"), what="the group says why")
            consumer.unsubscribe()
        with StompPeer(broker) as consumer:
            consumer.subscribe(orders, headers=ANYCAST)
            again = consumer.receive()
            consumer.ack(again)
            assert (again.body, again.headers["amqsidecarRedeliveryCount"]) == (b"one", "1")
