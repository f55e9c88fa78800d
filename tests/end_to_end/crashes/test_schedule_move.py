"""A schedule moves between SQLite and PostgreSQL while sidecar and move are killed: none is lost.

Before each move the sidecar is killed in a cycle, so that the move has to end it by the token; then
the move is killed. Counted is what JMS applications saw.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from end_to_end.crashes.test_kills import CORE_SETTINGS, OPTIONS, Run
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import PostgresServer
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOPS = (
    ("postgresql", "stored:2", "copying:3"),
    ("sqlite", "committed:2", "copied:1"),
    ("postgresql", "sent:2", "given_up:1"),
    ("sqlite", "finished:2", "opened:1"),
)
"""Where to, and where sidecar and move are killed before."""

KNOWN_STORE = "store.accept_orphans=false"


@pytest.fixture(params=[pytest.param("openwire", marks=pytest.mark.proof), "core"])
def run(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Run]:
    broker: Broker = (
        ClassicBroker()
        if request.param == "openwire"
        else ArtemisBroker(address_settings=CORE_SETTINGS)
    )
    with broker:
        made = Run(broker, request.param, unique, tmp_path)
        try:
            yield made
        finally:
            made.sidecar.__exit__()


def at_store(run: Run, folder: Path, url: str) -> SidecarProcess:
    """Return the sidecar of a run with another store, which it knows to be in use."""
    folder.mkdir()
    broker_url, *options = run.sidecar.options
    policy = next(one for one in options if one.startswith("policy.source="))
    sets = (*OPTIONS, policy, f"store.url={url}", KNOWN_STORE)
    return SidecarProcess(folder, broker_url.removeprefix("broker.url="), sets=sets)


def test_each_message_ends_once_over_four_moves(
    run: Run, tmp_path: Path, postgres: PostgresServer
) -> None:
    with ExitStack() as stack:
        consumer = stack.enter_context(run.consume())
        for number, (kind, place, point) in enumerate(HOPS):
            run.produce(run.batch(len(HOPS) + 1))
            run.sidecar.die_at(place)
            folder = tmp_path / str(number)
            url = f"sqlite:///{folder / 'moved.db'}"
            if kind == "postgresql":
                url = stack.enter_context(postgres.database())
            moved = at_store(run, folder, url)
            died = run.sidecar.try_command(
                "schedule move", "--to", url, environ={CRASH_POINT_VARIABLE: point}
            )
            assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
            if point.startswith("given_up"):
                assert "schedule move" in moved.run_refused(expect=69)
            run.sidecar.run_command("schedule move", "--to", url)
            assert "was moved to" in run.sidecar.run_refused(expect=69)
            assert "cycle_in_doubt" not in run.sidecar.log()
            run.sidecar = stack.enter_context(moved)
        run.produce(run.message_count - len(run.sent))
        run.sidecar.start()
        run.settle(consumer)
        run.check(consumer)


def test_an_orphaned_schedule_is_sent_beside_a_busy_sidecar(run: Run, tmp_path: Path) -> None:
    """As the runbook of AmqsidecarOrphanedSchedule says: the old sidecar takes nothing."""
    run.produce(run.batch(4))
    with run.consume() as consumer:
        run.sidecar.die_at("committed:2")
        old = run.sidecar
        url = f"sqlite:///{tmp_path / 'new' / 'new.db'}"
        run.sidecar = at_store(run, tmp_path / "new", url)
        run.sidecar.options.append("store.accept_orphans=true")
        run.sidecar.start()
        run.produce(run.batch(4))
        old.options.append("intake.queues=[no.dead.letters]")
        with old.running():
            run.produce(run.batch(4))
            eventually(lambda: old.unsent() == 0, what="the old schedule is sent")
            received = old.metric("amqsidecar_dead_letters_received_total")
        assert received == 0
        run.produce(run.message_count - len(run.sent))
        run.settle(consumer)
        run.check(consumer)
