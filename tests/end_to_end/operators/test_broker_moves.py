"""Moves of the broker by deploy/guides/broker-moves.md: what waits arrives once, elsewhere."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from end_to_end.operators.test_backup import Site
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.versions import CLASSIC_6
from support.waiting import eventually

MAKE: Mapping[str, Callable[[], Broker]] = {
    "classic": lambda: ClassicBroker(CLASSIC_6),
    "artemis": ArtemisBroker,
}
MIRROR = """
<broker-connections>
  <amqp-connection uri="tcp://127.0.0.1:{port}" name="replica" user="admin" password="admin"
                   retry-interval="100" reconnect-attempts="-1"><mirror/></amqp-connection>
</broker-connections>
"""
KINDS = ["artemis", pytest.param("classic", marks=pytest.mark.proof)]
WAITING = 3


class Move(Site):
    """A broker with waiting messages in the schedule, whose sidecar is stopped for the move."""

    def __init__(self, broker: Broker, folder: Path, unique: str) -> None:
        super().__init__(broker, folder, unique)
        self.sidecar.start()
        self.die(self.late, WAITING)
        self.wait_for(["waiting"] * WAITING)
        assert self.sidecar.stop() == 0

    def start_at(self, url: str, peer: JmsPeer) -> None:
        self.sidecar.options[0] = f"broker.url={url}"
        self.peer = peer
        self.sidecar.start()

    def doubts(self) -> tuple[float, float]:
        """Return how many cycles are in doubt, and how often the token was missing without one."""
        return (
            self.sidecar.metric("amqsidecar_cycles_in_doubt_total"),
            self.sidecar.metric("amqsidecar_tokens_missing_total"),
        )

    def held_twice(self) -> list[int]:
        """Return the held messages that wait a second time, as dead letters taken again."""
        rows = self.sidecar.rows("--destination", self.late)
        again = {row["message_id"] for row in rows if row["state"] == "waiting"}
        return [row["id"] for row in rows if row["state"] == "held" and row["message_id"] in again]

    def check_all_arrive(self, count: int = WAITING) -> None:
        self.act("retry")
        assert len(self.peer.consume(self.late, count=count)) == count
        self.die(self.soon, 1)
        assert len(self.peer.consume(self.soon, count=1)) == 1
        assert self.peer.browse(self.late) == self.peer.browse(self.soon) == []
        assert self.states() == []
        assert self.sidecar.stop() == 0


def url_of(broker: Broker) -> str:
    return broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url


def peer_of(broker: Broker) -> JmsPeer:
    return JmsPeer.of(broker, "qpid" if isinstance(broker, ArtemisBroker) else "openwire")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_and_empty_broker_gets_what_waits(
    kind: str, tmp_path: Path, unique: str, stack: ExitStack
) -> None:
    old = stack.enter_context(MAKE[kind]())
    move = Move(old, tmp_path, unique)
    stack.enter_context(move.sidecar)
    old.stop()
    new = stack.enter_context(MAKE[kind]())
    move.start_at(url_of(new), peer_of(new))
    assert move.states() == ["waiting"] * WAITING
    assert move.doubts() == (0, 1)
    assert move.sidecar.stop() == 0
    move.sidecar.start()
    assert move.doubts() == (0, 0)
    move.check_all_arrive()


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_is_restored_has_what_waited_held(
    kind: str, tmp_path: Path, unique: str, stack: ExitStack
) -> None:
    """What the sidecar took since the backup is a dead letter again: it is held, and waits anew."""
    broker = stack.enter_context(MAKE[kind]())
    move = Move(broker, tmp_path, unique)
    stack.enter_context(move.sidecar)
    move.die(move.late, 1)
    broker.stop()
    backup = tmp_path / "backup"
    shutil.copytree(broker.data, backup)
    broker.start()
    move.sidecar.start()
    move.wait_for(["waiting"] * (WAITING + 1))
    assert move.sidecar.stop() == 0
    broker.stop()
    shutil.rmtree(broker.data)
    shutil.copytree(backup, broker.data)
    broker.start()
    move.sidecar.start()
    assert move.doubts() == (1, 0)
    eventually(
        lambda: sorted(move.states()) == ["held"] * (WAITING + 1) + ["waiting"],
        what="the dead letter is taken again",
    )
    [twice] = move.held_twice()
    move.sidecar.run_command("discard", str(twice), "--yes")
    move.sidecar.run_command("release", "--all", "--yes")
    move.check_all_arrive(WAITING + 1)


def test_a_replica_that_has_caught_up_goes_on_with_the_token(
    tmp_path: Path, unique: str, stack: ExitStack
) -> None:
    replica = stack.enter_context(ArtemisBroker())
    core = MIRROR.format(port=replica.ports["PORT"])
    broker = stack.enter_context(ArtemisBroker(core=core))
    move = Move(broker, tmp_path, unique)
    stack.enter_context(move.sidecar)
    with closing(ArtemisManager(broker)) as manager:
        eventually(
            lambda: manager.message_count("$ACTIVEMQ_ARTEMIS_MIRROR_replica") == 0,
            what="the replica has all",
        )
    broker.stop()
    move.start_at(replica.pair_url, peer_of(replica))
    assert move.states() == ["waiting"] * WAITING
    assert move.doubts() == (0, 0)
    move.check_all_arrive()
