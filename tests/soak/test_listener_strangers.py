"""The memory that the chart's formula gives a listener is enough, whatever strangers do.

Hostile clients of every kind at once, beside consumers that come, work and go: in a control group
of exactly that size.
"""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Delivery, Message, SSLDomain
from proton.utils import BlockingConnection

from amqsidecar.config.sections.listener import ListenerOptions
from soak.watch import MIB
from support.brokers.real import FULL_SPEED, ArtemisBroker
from support.machine.certificates import Pki
from support.machine.cgroup import memory_group
from support.sidecar.listener import ListenerProcess
from support.sidecar.process import COMMAND
from support.tier import at_length
from support.waiting import PATIENCE_S
from support.wires.amqp_options import Anycast
from support.wires.stomp_peer import StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(1800, otherwise=600))]

ROOT = Path(__file__).parents[2]
SOCKETS = at_length(1_000, otherwise=400)
GOOD = at_length(50, otherwise=20)
ROUNDS = at_length(20, otherwise=2)
MESSAGES = 5
FULL, FULL_BYTES = 1_000, 60_000
INTERCEPTED = "amqsidecar.intercepted"
QUEUE = {"subscription-type": "ANYCAST"}


def formula_bytes(connections: int) -> int:
    """Return what `values.yaml` says that a listener needs with the default options."""
    values = (ROOT / "helm/amqsidecar/values.yaml").read_text(encoding="utf-8")
    found = re.search(r"# Memory: (\d+)Mi, what .* permits, and (\d+)Ki for each", values)
    assert found is not None
    memory_mib = ListenerOptions().memory_mib
    return (int(found[1]) + memory_mib) * MIB + int(found[2]) * 1024 * connections


@contextmanager
def strangers(port: int, ca_file: str) -> Iterator[dict[str, int]]:
    """Run hostile clients; yields how many sockets they have opened, filled in at the end."""
    opened: dict[str, int] = {}
    child = subprocess.Popen(
        [sys.executable, "-m", "soak.strangers", str(port), str(SOCKETS), ca_file],
        cwd=ROOT / "tests",
        env={**os.environ, "PYTHONPATH": "."},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline()
        yield opened
        opened |= json.loads(child.communicate(timeout=PATIENCE_S)[0])
    finally:
        child.kill()
        child.wait()


class GoodConsumers:
    """Consumers of both wires, each with a queue of its own."""

    def __init__(self, port: int, ca_file: str) -> None:
        self._port, self._ca_file = port, ca_file
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else None

    def work(self, number: int) -> None:
        """Come, send, accept all but one, give that one up, and go; some rounds."""
        for _ in range(ROUNDS):
            if number % 2:
                self._work_by_stomp(f"good.{number}")
            else:
                self._work_by_amqp(f"good.{number}")

    def _work_by_stomp(self, queue: str) -> None:
        with StompPeer(self._port, tls=self._tls) as consumer:
            consumer.subscribe(queue, headers=QUEUE)
            for number in range(MESSAGES):
                consumer.send(queue, {"destination-type": "ANYCAST"}, b"%d" % number)
                message = consumer.receive()
                assert message.body == b"%d" % number
                if number:
                    consumer.ack(message)
                else:
                    consumer.nack(message)
            consumer.unsubscribe()

    def _work_by_amqp(self, queue: str) -> None:
        scheme, domain = "amqp", None
        if self._ca_file:
            scheme, domain = "amqps", SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(self._ca_file)
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        consumer = BlockingConnection(
            f"{scheme}://localhost:{self._port}",
            PATIENCE_S,
            ssl_domain=domain,
            user="admin",
            password="admin",
            allowed_mechs="PLAIN",
        )
        sender = consumer.create_sender(queue, options=Anycast())
        receiver: Any = consumer.create_receiver(queue, credit=1, options=Anycast())
        for number in range(MESSAGES):
            sender.send(Message(body=f"{number}", durable=True))
            message: Any = receiver.receive(PATIENCE_S)
            assert message.body == f"{number}"
            if number:
                receiver.accept()
            else:
                receiver.fetcher.unsettled[-1].local.condition = Condition("app:bad", "no stock")
                receiver.settle(Delivery.REJECTED)
        consumer.close()


def fill(broker: ArtemisBroker) -> None:
    url = f"amqp://127.0.0.1:{broker.ports['PORT']}"
    connection = BlockingConnection(
        url, PATIENCE_S, user="admin", password="admin", allowed_mechs="PLAIN"
    )
    sender = connection.create_sender("full", options=Anycast())
    for _ in range(FULL):
        sender.send(Message(body=b"x" * FULL_BYTES))
    connection.close()


# Why plain in proof: with TLS each connection takes more of the same memory.
@pytest.mark.parametrize(
    "has_tls",
    [pytest.param(False, id="plain", marks=pytest.mark.proof), pytest.param(True, id="tls")],
)
def test_strangers_neither_kill_the_listener_nor_keep_consumers_out(
    tmp_path: Path, *, has_tls: bool
) -> None:
    # Why so long for a log-in: a busy machine is no stranger.
    sets, ca_file = [f"listener.connections_max={SOCKETS}", "listener.login_s=60"], ""
    if has_tls:
        pki = Pki(tmp_path / "pki")
        ours = pki.client("listener", hosts=["localhost"])
        sets += [f"listener.cert_file={ours.certificate}", f"listener.key_file={ours.key}"]
        ca_file = str(pki.ca_file)
    limit = formula_bytes(SOCKETS)
    with (
        memory_group(limit) as group,
        ArtemisBroker(jvm_flags=FULL_SPEED) as broker,
        ListenerProcess(
            tmp_path, broker.ports["PORT"], sets, program=group.command(COMMAND)
        ) as listener,
    ):
        fill(broker)
        good = GoodConsumers(listener.port, ca_file)
        with strangers(listener.port, ca_file) as opened, ThreadPoolExecutor(GOOD) as pool:
            for _ in pool.map(good.work, range(GOOD)):
                pass
        assert listener.process is not None
        assert listener.process.poll() is None, listener.log()[-2000:]
        print(f"limit {limit // MIB} MiB, peak {group.peak_bytes // MIB} MiB; opened {opened}")
        assert all(opened.values()), opened
        assert listener.stop() == 0
        # Why: a client with a log-in that does not read can hold Artemis's network threads for
        # minutes, and then the broker reads from nobody.
        broker.restart()
        with StompPeer(broker.ports["PORT"]) as sidecar:
            sidecar.subscribe(INTERCEPTED, headers=QUEUE)
            for _ in range(GOOD * ROUNDS):
                sidecar.ack(sidecar.receive())
