"""Two sidecars share one schedule and keep exhausted messages: one is killed, then the other."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from end_to_end.operators.test_exhausted import KEEP, Site, make_broker
from support.brokers.real import Broker
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

COUNT = at_length(400, otherwise=200)
OPTIONS = ("cycle.max_messages=20", "store.lease_s=2")


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.proof), "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of our own, so that no other test's messages are in its final queue."""
    with make_broker(request.param) as running:
        yield running


@pytest.fixture
def site(
    broker: Broker, tmp_path: Path, unique: str, postgres_url: str
) -> Iterator[tuple[Site, SidecarProcess]]:
    """Queues with the first sidecar, and the second one."""
    site = Site(broker, tmp_path, unique)
    site.sidecar.options += [f"store.url={postgres_url}", *OPTIONS]
    (tmp_path / "second").mkdir()
    second = SidecarProcess(tmp_path / "second", site.sidecar.options[0].partition("=")[2])
    second.options = site.sidecar.options
    with site.sidecar, second:
        yield site, second


def test_what_two_sidecars_keep_and_retry_is_neither_lost_nor_doubled_when_each_is_killed(
    site: tuple[Site, SidecarProcess],
) -> None:
    here, second = site
    first = here.sidecar
    first.start()
    second.start()
    here.exhaust(here.ours, COUNT // 2)
    for one in (first, second):
        assert one.stop() == 0
    here.keep()
    # Half is taken back out of the final queue, mostly by the second one: the first dies of it.
    first.start(ready=False, environ={CRASH_POINT_VARIABLE: "stored:2"})
    second.start()
    assert first.process is not None
    eventually(
        lambda: here.exhausted(here.ours, in_queue=False) == COUNT // 2 == here.status()["total"],
        what="all is taken back into the schedule",
        last=lambda _: str(here.status()),
    )
    if first.process.poll() is None:
        first.kill()
    assert first.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert KEEP in first.options
    # The other half never goes to the final queue.
    first.start()
    # Why ids of their own: what is received is counted by id.
    here.peer.fill(here.ours, COUNT - COUNT // 2, size=100, test_id="second-")
    here.fail(here.ours, COUNT - COUNT // 2)
    assert here.exhausted(here.ours, in_queue=False) == COUNT
    assert here.peer.browse(here.final) == []

    first.stop()
    first.start(ready=False, environ={CRASH_POINT_VARIABLE: "sent:3"})
    first.run_command("retry", "--state", "exhausted", "--yes", "--reason", "all together")
    consumed = here.peer.consume(here.ours, count=COUNT // 2)
    second.kill()
    # Why also by hand: it dies of its third send only if the second has left it one.
    if first.process.poll() is None:
        first.kill()
    assert first.process.wait(PATIENCE_S) == -signal.SIGKILL
    first.start(ready=False)
    consumed += here.peer.consume(here.ours, count=COUNT - len(consumed))
    assert len({one.test_id for one in consumed}) == COUNT == len(consumed)
    assert here.peer.consume(here.ours, wait_ms=1_000) == []
    second.start()
    eventually(lambda: here.status()["total"] == 0, what="nothing is left")
    assert here.peer.browse(here.final) == []
    assert here.peer.consume(here.ours, wait_ms=300) == []
