"""In the memory that chart and unit give it, the process lives through all that strangers do."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import httpx2
import pytest

from support.brokers.real import FULL_SPEED, ClassicBroker
from support.links.openwire import OpenWireHarness
from support.machine.cgroup import MemoryGroup
from support.sidecar.process import COMMAND, SidecarProcess
from support.waiting import eventually
from support.web.client import fetch, web_client
from support.wires import hostile_amqp, hostile_core, unasked
from support.wires import openwire as wire
from support.wires.hostile_broker import OPENWIRE_ATTACKS, STOMP_ATTACKS, Attack, hostile_broker
from support.wires.openwire import WireMessage

ROOT = Path(__file__).parents[2]
PATHS = ("/api/v1/messages?limit=500", "/api/v1/messages.csv", "/messages", "/api/v1/overview")
DEAD_LETTERS = 100
ENDED_WITHIN_S = 400.0
# Why not during SASL: at its start the process ends there, as it does at a wrong port.
AMQP_ATTACKS = tuple(
    attack for name, attack in hostile_amqp.ATTACKS.items() if not name.startswith("SASL")
)
# Why not at once: at its start the process ends there, as it does at a wrong port.
CORE_ATTACKS = tuple(
    attack for name, attack in hostile_core.ATTACKS.items() if not name.endswith("at once")
)
FLOODED = (unasked.LARGEST, *unasked.BODIES)
UNASKED = "it handed over more messages than it was asked for"
CAUSE = "com.acme.Outer: x\n" + "\tat com.acme.Frame\n" * 55_000 + "Caused by: com.acme.Root: y"


def has_unasked(sidecar: SidecarProcess, times: int) -> bool:
    return sidecar.log().count(UNASKED) >= times


@pytest.mark.parametrize(
    ("scheme", "attacks", "floods"),
    [
        pytest.param(
            *("stomp", STOMP_ATTACKS, [*map(unasked.stomp, FLOODED)]),
            id="stomp",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            *("openwire", OPENWIRE_ATTACKS, [*map(unasked.openwire, FLOODED)]),
            id="openwire",
        ),
        # Why in proof: they take minutes, and `unit/brokers/test_hostile_*.py` has each attack.
        pytest.param("amqp", AMQP_ATTACKS, [], id="amqp", marks=pytest.mark.proof),
        pytest.param("core", CORE_ATTACKS, [], id="core", marks=pytest.mark.proof),
    ],
)
def test_the_process_lives_beside_a_hostile_broker(
    group: MemoryGroup,
    tmp_path: Path,
    scheme: str,
    attacks: Sequence[Attack],
    floods: Sequence[Attack],
) -> None:
    # Why: else half of the connections would only ask which product it is.
    sets = ["broker.kind=artemis"] if scheme == "amqp" else []
    with (
        hostile_broker(attacks) as broker,
        SidecarProcess(
            tmp_path, f"{scheme}://127.0.0.1:{broker.port}", sets=sets, program=COMMAND
        ) as sidecar,
    ):
        sidecar.start(ready=False)
        assert sidecar.process is not None
        group.add(sidecar.process.pid)
        eventually(
            lambda: broker.attacks >= len(attacks), within_s=ENDED_WITHIN_S, what="each attack ends"
        )
        for flood in floods:
            # Why alone: among others, each flood may meet a connection without a subscription.
            broker.attack_by([flood])
            more = sidecar.log().count(UNASKED) + 1
            eventually(
                partial(has_unasked, sidecar, more),
                within_s=ENDED_WITHIN_S,
                what="a flood ends a link",
            )
        assert sidecar.is_running()
        assert sidecar.get("/healthz")[0] == 200
        assert sidecar.stop() == 0


@pytest.mark.broker
def test_the_process_lives_with_causes_of_a_megabyte(
    group: MemoryGroup, tmp_path: Path, unique: str
) -> None:
    with ClassicBroker(jvm_flags=FULL_SPEED) as broker:
        harness = OpenWireHarness(broker, unique)
        cause = wire.big_text_entry("dlqDeliveryFailureCause", CAUSE)
        for number in range(DEAD_LETTERS):
            harness.send(
                [
                    WireMessage(
                        destination=(wire.QUEUE, harness.dead_letter_queue),
                        original_destination=(wire.QUEUE, f"{unique}.{number % 10}"),
                        properties=wire.property_map(cause),
                    )
                ]
            )
        harness.close()
        policy = ROOT / "tests/end_to_end/policies/redelivery.yaml"
        sets = ["intake.backlog=process", f"intake.queues=[{harness.dead_letter_queue}]"]
        with SidecarProcess(
            tmp_path, broker.openwire_url, policy=policy, sets=sets, program=COMMAND
        ) as sidecar:
            sidecar.start(ready=False)
            assert sidecar.process is not None
            group.add(sidecar.process.pid)
            sidecar.wait_ready()

            def are_shown(number: int) -> int:
                return sidecar.get(PATHS[number % len(PATHS)])[0]

            with ThreadPoolExecutor(8) as pool:
                statuses = set(pool.map(are_shown, range(80)))
            assert statuses <= {0, 200, 503}
            eventually(
                lambda: sidecar.metric("amqsidecar_dead_letters_received_total") >= DEAD_LETTERS,
                what="all are taken",
            )
            assert "com.acme.Root" in sidecar.get(PATHS[0])[1]
            assert sidecar.is_running()
            assert sidecar.get("/healthz")[0] == 200


def test_the_process_lives_under_attack_over_http(group: MemoryGroup, tmp_path: Path) -> None:
    with ExitStack() as stack:
        child = subprocess.Popen(
            [sys.executable, "-m", "soak.attacked", str(tmp_path)],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": "."},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        group.add(child.pid)
        assert child.stdin is not None
        assert child.stdout is not None
        stack.enter_context(child)
        address, token = child.stdout.readline().split()
        host, port = address.rsplit(":", 1)
        viewer = {"Authorization": f"Bearer {token}"}

        for number in range(20):  # who asks much and never reads
            client = stack.enter_context(closing(socket.socket()))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            path = PATHS[number % len(PATHS)]
            client.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode() * 5)

        def ask(number: int) -> int:
            with web_client(f"http://{address}") as client:
                try:
                    if number % 3:
                        return client.get(PATHS[number % len(PATHS)], headers=viewer).status_code
                    form = {"Payload-Type": "application/json"}
                    body = b"x" * (8 * 2**20)
                    path = "/api/v1/operations"
                    return client.post(path, content=body, headers=viewer | form).status_code
                except httpx2.HTTPError:
                    return 0  # It was cut for somebody else, or before all of the body was sent.

        with ThreadPoolExecutor(12) as pool:
            statuses = set(pool.map(ask, range(60)))
        assert statuses <= {0, 200, 403, 503}
        assert 200 in statuses
        assert child.poll() is None
        assert fetch(f"http://{address}/healthz").status_code == 200
