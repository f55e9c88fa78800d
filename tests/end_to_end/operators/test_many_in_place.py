"""Very many dead letters where they lie: looking at them moves none."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from support.brokers.purge import manage_artemis
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(5400, otherwise=900))]

MILLION: Final = at_length(1_000_000, otherwise=30_000)
SCREENS: Final = ("/", "/groups", "/messages", "/api/v1/status", "/api/v1/overview")
MEMORY_MIB: Final = 512
_COUNTERS: Final = ("MessageCount", "MessagesAdded", "MessagesAcknowledged", "MessagesKilled")


class Many:
    """A sidecar in manual mode beside many dead letters of a stock Artemis."""

    def __init__(self, broker: ArtemisBroker, folder: Path, unique: str) -> None:
        self.broker = broker
        self.orders = f"{unique}.orders"
        self.peer = JmsPeer.of(broker, "core")
        self.sidecar = SidecarProcess(
            folder,
            broker.pair_url,
            sets=["redelivery.mode=manual", "intake.queues=[DLQ]", "observe.max_per_second=50000"],
        )

    def ask(self, resource: str, operation: str, *arguments: object, attribute: str = "") -> object:
        return manage_artemis(
            self.broker, ManagementQuestion(resource, operation, arguments, attribute)
        )

    def kill(self, count: int) -> None:
        self.peer.fill(self.orders, count, size=100, batch=2_000)
        for _ in range(count):
            if not int(
                str(self.ask(f"queue.{self.orders}", "sendMessagesToDeadLetterAddress", ""))
            ):
                break
        eventually(lambda: self.counters()[0] == count, what="all are dead")

    def counters(self) -> list[int]:
        return [int(str(self.ask("queue.DLQ", "", attribute=one))) for one in _COUNTERS]

    def exhausted(self) -> int:
        return sum(one["count"] for one in msgspec.to_builtins(self.sidecar.status())["exhausted"])

    def wait_until(self, count: int) -> None:
        eventually(
            lambda: self.exhausted() == count,
            within_s=1_800,
            what=f"{count} messages in place",
            last=lambda _: f"{self.exhausted()}\n{self.sidecar.log()[-3000:]}",
        )


@pytest.fixture
def many(tmp_path: Path, unique: str) -> Iterator[Many]:
    with ArtemisBroker() as broker:
        site = Many(broker, tmp_path, unique)
        with site.sidecar:
            yield site


@pytest.mark.proof
def test_a_million_are_seen_in_bounded_memory_and_none_moves(many: Many) -> None:
    """Prints how long the index and each screen takes."""
    many.kill(MILLION)
    before = many.counters()
    began_s = time.monotonic()
    many.sidecar.start()
    many.wait_until(MILLION)
    print(f"\n{MILLION:,} indexed in {time.monotonic() - began_s:.0f} s")
    for screen in SCREENS * 2:
        asked_s = time.monotonic()
        assert many.sidecar.get(screen)[0] == 200
        print(f"{screen}: {time.monotonic() - asked_s:.2f} s")
    assert many.sidecar.process is not None
    status = Path(f"/proc/{many.sidecar.process.pid}/status").read_text()
    [peak] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    print(f"at most {int(peak) // 1024} MiB")
    assert int(peak) < MEMORY_MIB * 1024
    assert many.counters() == before
