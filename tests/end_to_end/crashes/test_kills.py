"""Sidecar and broker are killed in the middle of hundreds of messages: none lost, none twice.

Real JMS applications send and consume. Counted is what they saw, by message id, with every body,
header and property compared to what was sent.
"""

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from amqsidecar.engine import crash_points
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import (
    ARTEMIS_ACCEPTORS,
    STOCK_ADDRESS_SETTINGS,
    attempts_without_limit,
)
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.ledger import assert_each_ended_once
from support.jms.message import JmsMessage
from support.jms.peer import ALL_TYPES, FlakyConsumer, JmsPeer
from support.machine.processes import is_stopped
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.versions import newest
from support.waiting import eventually

pytestmark = pytest.mark.broker

MESSAGES = at_length(2_000, otherwise=280)
KILLS_PER_CRASH_POINT = at_length(3, otherwise=1)
RANDOM_KILLS = at_length(4, otherwise=1)
BROKER_KILLS = at_length(3, otherwise=1)
# Where it matters what a process does that wakes up and doesn't know that it was given up.
FREEZES = at_length(("stored", "sent", "committing", "committed"), otherwise=("sent", "committing"))
# How often the messages of a batch fail, batch after batch; -1: always.
FAILURES = (1, 2, 1, -1, 1, 2, 1)
CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: 3
        # Why none: some are sent by the cycle that takes them, others wait.
        initial_redelivery_delay_ms: 0
        redelivery_delay_ms: 100
"""
# Why: small cycles, so that a run has many; small time-outs, so that a frozen one is soon given up.
OPTIONS = ("cycle.max_messages=20", "intake.backlog=process", "broker.idle_timeout_s=2")
ARTEMIS_SETTINGS = attempts_without_limit("DLQ")


# Why one attempt: a Core client can't give a message up at once. Tokens keep the stock ten.
CORE_SETTINGS = f"""{
    STOCK_ADDRESS_SETTINGS.replace(
        "<redelivery-delay>0</redelivery-delay>",
        "<redelivery-delay>0</redelivery-delay><max-delivery-attempts>1</max-delivery-attempts>",
    )
}{ARTEMIS_SETTINGS}
<address-setting match="amqsidecar.#">
  <max-delivery-attempts>10</max-delivery-attempts>
</address-setting>
"""


class Run:
    """One run: its queue, its producer's messages, its sidecar."""

    def __init__(self, broker: Broker, wire: str, queue: str, folder: Path) -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.broker = broker
        self.queue = queue
        self.types = (*ALL_TYPES, "NullObject") if wire == "core" else ALL_TYPES
        self.peer = JmsPeer.of(broker, {"amqp": "qpid"}.get(wire, wire))
        self.how = "reject" if wire == "amqp" else "rollback"
        self.dead_letter_queue = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        policy = write_policy(folder, FOUR_ATTEMPTS if is_artemis else CLASSIC_POLICY)
        url = str(getattr(broker, f"{wire}_url"))
        self.sidecar = SidecarProcess(folder, url, policy=policy, sets=OPTIONS)
        self.sent: list[JmsMessage] = []
        self.exhausted: list[JmsMessage] = []
        self.failures = cycle(FAILURES)
        self.killed: Counter[str] = Counter()

    def produce(self, messages: int) -> None:
        """Send some messages, all types in turn, that fail as often as it is their turn to."""
        self.sent += self.peer.produce(
            self.queue,
            self.types,
            count=messages // len(self.types),
            properties={"failures": next(self.failures)},
            transacted=True,
        )

    def kill_all(self) -> None:
        """Send all messages at once, and let each of them die once."""
        self.produce(self.message_count)
        self.peer.fail(self.queue, self.how, messages=self.message_count)

    def consume(self) -> FlakyConsumer:
        """Start the application: it fails as often as each message says."""
        return self.peer.start_flaky_consumer(
            self.queue, failures_property="failures", how=self.how, full=True
        )

    @property
    def message_count(self) -> int:
        """How many messages the run has in all: as many of each type."""
        return MESSAGES // len(self.types) * len(self.types)

    def batch(self, parts: int) -> int:
        """Return how many messages are in each of this many parts."""
        return self.message_count // parts // len(self.types) * len(self.types)

    @property
    def always(self) -> int:
        """How many messages fail always."""
        return sum(message.value("failures") == -1 for message in self.sent)

    def kill_at(self, name: str, hits: int) -> None:
        """Start the sidecar; it dies when it reaches the place for the nth time."""
        self.sidecar.die_at(f"{name}:{hits}")
        self.killed[name] += 1

    def kill_after(self, seconds: float) -> None:
        """Start the sidecar and kill it, wherever it is, after a time."""
        self.sidecar.start(ready=False)
        process = self.sidecar.process
        assert process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        self.sidecar.kill()
        self.killed["random"] += 1

    def freeze_at(self, name: str) -> None:
        """Start the sidecar; it freezes at the place until the broker gives it up, then goes on."""
        crash = {CRASH_POINT_VARIABLE: f"{name}:2:SIGSTOP"}
        process = self.sidecar.start(ready=False, environ=crash).process
        assert process is not None
        eventually(lambda: is_stopped(process.pid), what=f"the sidecar stops at {name}")
        eventually(lambda: not is_connected(process.pid), what="the broker gives it up")
        process.send_signal(signal.SIGCONT)
        eventually(
            lambda: any(line["event"] == "link_down" for line in self.sidecar.log_lines()),
            what="the sidecar finds its connection gone",
        )
        self.sidecar.wait_ready()
        assert self.sidecar.stop() == 0

    def settle(self, consumer: FlakyConsumer) -> None:
        """Wait until nothing is on its way any more."""
        # Why not successes: who loses the broker in a commit never learns that it happened.
        consumer.wait_for(
            lambda events: (
                len({one.id for one in events if one.outcome == "succeeding"})
                == self.message_count - self.always
            ),
            what="all messages that can succeed are handed over",
        )
        final = f"{self.dead_letter_queue}.exhausted"
        self.exhausted = self.peer.consume(final, count=self.always, wait_ms=20_000)
        eventually(lambda: self.sidecar.unsent() == 0, what="all is sent")
        assert self.sidecar.stop() == 0
        self.exhausted += self.peer.consume(final)

    def check(self, consumer: FlakyConsumer) -> None:
        """Hold what the applications saw against what was sent."""
        assert "cycle_in_doubt" not in self.sidecar.log()
        result = assert_each_ended_once(self.sent, consumer.events(), self.exhausted)
        assert len(result.recovered) == self.message_count - self.always
        assert len(result.exhausted) == self.always
        for queue in (self.queue, self.dead_letter_queue):
            assert self.peer.browse(queue) == []


@pytest.fixture(
    scope="module", params=["openwire", pytest.param("amqp", marks=pytest.mark.proof), "core"]
)
def wire(request: pytest.FixtureRequest) -> str:
    """The wire of the sidecar; Classic speaks the first, Artemis the others."""
    return str(request.param)


@pytest.fixture(scope="module")
def broker(wire: str) -> Iterator[Broker]:
    """A broker of our own, for it is killed: the newest that speaks each wire."""
    idle = f"{ARTEMIS_ACCEPTORS['artemis']};amqpIdleTimeout=2000"
    settings = {"amqp": STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS, "core": CORE_SETTINGS}
    with (
        ClassicBroker(newest("classic_6", wire).version)
        if wire == "openwire"
        else ArtemisBroker(
            version=newest("artemis", "amqp").version,
            address_settings=settings[wire],
            acceptors={"artemis": idle},
        )
    ) as running:
        yield running


@pytest.fixture
def run(broker: Broker, wire: str, unique: str, tmp_path: Path) -> Iterator[Run]:
    run = Run(broker, wire, unique, tmp_path)
    with run.sidecar:
        yield run


def is_connected(pid: int) -> bool:
    """Say whether a process has an open TCP connection that the other side has not closed."""
    sockets = {
        link.readlink().name.removeprefix("socket:[").removesuffix("]")
        for link in Path(f"/proc/{pid}/fd").iterdir()
    }
    established = "01"
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(
        fields[3] == established and fields[9] in sockets for fields in map(str.split, lines)
    )


def plan(chance: random.Random) -> list[str]:
    """Return every crash point and a random moment, several times each, shuffled."""
    names = [name for name in crash_points.NAMES for _ in range(KILLS_PER_CRASH_POINT)]
    names += ["random"] * RANDOM_KILLS
    chance.shuffle(names)
    return names


def test_the_sidecar_is_killed_at_every_crash_point_and_at_random(run: Run) -> None:
    """Each kill comes with a restart; the token shows each time how the last cycle ended."""
    chance = random.Random()
    names = plan(chance)
    batch = run.batch(len(names) + 1)
    with run.consume() as consumer:
        for name in names:
            run.produce(batch)
            if name == "random":
                run.kill_after(chance.uniform(0.2, 2.0))
            else:
                run.kill_at(name, chance.randint(1, 3))
        run.produce(run.message_count - len(run.sent))
        run.sidecar.start()
        run.settle(consumer)
    run.check(consumer)
    for name in crash_points.NAMES:
        assert run.killed[name] == KILLS_PER_CRASH_POINT
    log = run.sidecar.log()
    assert log.count('"verdict": "rolled_back"') >= 2 * KILLS_PER_CRASH_POINT
    assert log.count('"verdict": "committed"') >= KILLS_PER_CRASH_POINT


# Why in proof: `chaos/test_chaos_small.py` kills brokers for every change.
@pytest.mark.proof
def test_the_broker_is_killed_in_the_middle(run: Run) -> None:
    """It comes back with all that was committed and nothing else.

    The messages have died before: a Classic broker that dies while it moves a message to its
    dead-letter queue can keep both copies, which is not what is asked here.
    """
    chance = random.Random()
    run.kill_all()
    third = run.message_count // (BROKER_KILLS + 1)
    with run.peer.start_flaky_consumer(run.queue, max_redeliveries=1000, full=True) as consumer:
        run.sidecar.start()
        for number in range(BROKER_KILLS):
            successes = number * third + chance.randrange(third // 2, third)
            consumer.wait_for_successes(successes)
            run.broker.kill()
            run.broker.start()
        run.settle(consumer)
    run.check(consumer)
    assert run.sidecar.log().count('"event": "link_down"') >= BROKER_KILLS


def test_a_sidecar_that_wakes_up_late_does_no_harm(run: Run) -> None:
    """It sleeps in the middle of a cycle for longer than the broker waits for it."""
    batch = run.batch(len(FREEZES) + 1)
    with run.consume() as consumer:
        for name in FREEZES:
            run.produce(batch)
            run.freeze_at(name)
        run.produce(run.message_count - len(run.sent))
        run.sidecar.start()
        run.settle(consumer)
    run.check(consumer)
    log = run.sidecar.log()
    assert log.count('"event": "link_down"') >= len(FREEZES)
    assert log.count('"event": "cycle_recovered"') >= len(FREEZES) - 1
