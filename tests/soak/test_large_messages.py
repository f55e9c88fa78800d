"""Memory follows what is on its way, not how many large dead letters there are."""

import random
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest
from proton import Message

from amqsidecar.brokers.connection.message_sizes import AHEAD_AT_FIRST
from soak.watch import MIB, WatchedSidecar
from support.brokers.real import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.core_artemis import CoreArtemisHarness, text_message
from support.links.openwire import OpenWireHarness
from support.machine.cgroup import MemoryGroup
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

MESSAGES = 40
SIZE_BYTES = 10_000_000

IDLE_MAX_MIB = 150
"""After the last one, with what the allocator keeps."""


class Case(NamedTuple):
    """A wire, and what it may take.

    Attributes:
        busy_max_mib: all messages have 380 MiB, and more where they are copied.
    """

    broker: Callable[..., Broker]
    harness: Callable[[Broker, str], OpenWireHarness | AmqpArtemisHarness]
    wire: str
    busy_max_mib: int


CASES = {
    # 3 are handed over before their size is known over OpenWire and STOMP on Classic, 32 over AMQP.
    "classic-openwire": Case(ClassicBroker, OpenWireHarness, "openwire", 330),
    "classic-stomp": Case(ClassicBroker, OpenWireHarness, "stomp", 330),
    "artemis-amqp": Case(ArtemisBroker, AmqpArtemisHarness, "amqp", 640),
}
PROOF = [pytest.mark.proof]
AT_ONCE = "classic-openwire"
"""In `make test`."""


@pytest.mark.broker
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name == AT_ONCE else PROOF)
        for name, case in CASES.items()
    ],
)
def test_many_large_dead_letters_do_not_fill_the_memory(case: Case, tmp_path: Path) -> None:
    with case.broker(jvm_flags=FULL_SPEED) as broker:
        harness = case.harness(broker, "large")
        for _ in range(MESSAGES):
            harness.put_dead_letters("large.orders", 1, size_bytes=SIZE_BYTES)
        intake = harness.dead_letter_queue
        harness.close()

        with WatchedSidecar(
            tmp_path / "large", broker, delay_ms=0, intake=intake, wire=case.wire
        ) as sidecar:
            sidecar.start()
            samples = sidecar.watch(lambda one: one.sent >= MESSAGES, within_s=200, every_s=0.05)
            # Why waited for: the last cycle is still in memory when its sends are counted.
            sidecar.watch(lambda one: one.rss <= IDLE_MAX_MIB, within_s=90, every_s=0.2)

    assert max(one.rss for one in samples) <= case.busy_max_mib


LARGEST_COUNT = AHEAD_AT_FIRST + 1
"""One more than are asked for before their size is known."""
LARGEST_BYTES = 95 * MIB
"""Almost what a stock Classic takes in one frame (100 MiB); what Artemis takes has no limit."""
ORIGIN = "largest.orders"
BYTES_MESSAGE = 24


def put_over_openwire(broker: Broker, body: bytes) -> str:
    """Put dead letters with a body; return their queue."""
    harness = OpenWireHarness(broker, "largest")
    dead = WireMessage(
        code=BYTES_MESSAGE,
        destination=(wire.QUEUE, harness.dead_letter_queue),
        original_destination=(wire.QUEUE, ORIGIN),
        content=body,
    )
    for _ in range(LARGEST_COUNT):
        harness.send([dead])
    harness.close()
    return harness.dead_letter_queue


def put_over_amqp(broker: Broker, body: bytes) -> str:
    """Make a message with a body die; return the queue of the dead letter."""
    harness = AmqpArtemisHarness(broker, "largest")
    harness.send(ORIGIN, [Message(id="ID:largest", durable=True, body=body)])
    harness.kill(ORIGIN)
    harness.close()
    return harness.dead_letter_queue


def put_over_core(broker: Broker, body: bytes) -> str:
    """Make a message with a body die; return the queue of the dead letter."""
    harness = CoreArtemisHarness(broker, "largest")
    harness.put([text_message(ORIGIN, "")])
    harness.drain(ORIGIN)
    message = text_message(ORIGIN, "")._replace(body=b"")
    asked = harness.session.ask_send_large(message, BytesIO(body))
    assert harness.session.answers([asked]) == [None]
    harness.session.commit()
    harness.kill(ORIGIN)
    harness.close()
    return harness.dead_letter_queue


@pytest.mark.broker
@pytest.mark.parametrize(
    ("kind", "scheme", "put", "count"),
    [
        (ClassicBroker, "openwire", put_over_openwire, LARGEST_COUNT),
        pytest.param(*(ClassicBroker, "stomp", put_over_openwire, LARGEST_COUNT), marks=PROOF),
        pytest.param(*(ArtemisBroker, "amqp", put_over_amqp, 1), marks=PROOF),
        (ArtemisBroker, "core", put_over_core, 1),
    ],
    ids=["classic-openwire", "classic-stomp", "artemis-amqp", "artemis-core"],
)
def test_the_largest_messages_go_through_the_memory_of_chart_and_unit(
    kind: Callable[..., Broker],
    scheme: str,
    put: Callable[[Broker, bytes], str],
    count: int,
    group: MemoryGroup,
    tmp_path: Path,
) -> None:
    with kind(jvm_flags=FULL_SPEED) as broker:
        # Why random: the store keeps what it can't make smaller as it is.
        intake = put(broker, random.Random(0).randbytes(LARGEST_BYTES))
        with WatchedSidecar(
            tmp_path / "largest", broker, delay_ms=0, intake=intake, wire=scheme
        ) as sidecar:
            sidecar.start(ready=False)
            group.add(sidecar.pid)
            sidecar.watch(lambda one: one.sent == count, within_s=200, every_s=0.2)
            print(f"{scheme}: {sidecar.peak():.0f} MiB at most")
            assert sidecar.stop() == 0
