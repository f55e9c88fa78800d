"""Memory follows what is on its way, not how many large dead letters there are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from soak.watch import WatchedSidecar
from support.brokers import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.link_amqp_artemis import AmqpArtemisHarness
from support.link_openwire import OpenWireHarness

MESSAGES = 40
SIZE_BYTES = 10_000_000

BUSY_MAX_MIB = {"classic": 330, "artemis": 640}
"""All of them have 380 MiB, and more where they are copied. Over OpenWire 4 are handed over before
their size is known, on Artemis 32."""

IDLE_MAX_MIB = 330
"""After the last one, with what the allocator keeps."""

MAKE: dict[str, Callable[[], Broker]] = {
    "classic": lambda: ClassicBroker(jvm_flags=FULL_SPEED),
    "artemis": lambda: ArtemisBroker(jvm_flags=FULL_SPEED),
}


@pytest.fixture(params=MAKE)
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with MAKE[request.param]() as broker:
        yield broker


@pytest.mark.broker
def test_many_large_dead_letters_do_not_fill_the_memory(own_broker: Broker, tmp_path: Path) -> None:
    make = AmqpArtemisHarness if own_broker.kind == "artemis" else OpenWireHarness
    harness = make(own_broker, "large")
    for _ in range(MESSAGES):
        harness.put_dead_letters("large.orders", 1, size_bytes=SIZE_BYTES)
    intake = harness.dead_letter_queue
    harness.close()

    with WatchedSidecar(tmp_path / "large", own_broker, delay_ms=0, intake=intake) as sidecar:
        sidecar.start()
        samples = sidecar.watch(lambda one: one.sent >= MESSAGES, within_s=200, every_s=0.05)

    assert max(one.rss for one in samples) <= BUSY_MAX_MIB[own_broker.kind]
    assert samples[-1].rss <= IDLE_MAX_MIB
