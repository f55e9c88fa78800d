"""Three sidecars share one PostgreSQL: some die, freeze or leave, and none is lost, none twice.

Real JMS applications send and consume all the time. Counted is what they saw, by message id, with
every body, header and property compared to what was sent.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import cycle
from operator import itemgetter
from pathlib import Path

import psycopg
import pytest

from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from end_to_end.crashes.test_kills import CORE_SETTINGS
from support.brokers.broker_xml import ARTEMIS_ACCEPTORS
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.ledger import assert_each_ended_once
from support.jms.message import JmsMessage
from support.jms.peer import ALL_TYPES, FlakyConsumer, JmsPeer
from support.machine.processes import is_stopped
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import PostgresServer
from support.tier import at_length
from support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SIDECARS = 3
# Why not less: on a busy machine one that lives may be late by seconds, and be taken over.
LEASE_S = 4
# How long a client may be silent. Why not less: where a machine stands, a live one is silent, too.
IDLE_S = 5
# How often the messages of a batch fail, batch after batch; -1: always.
FAILURES = (1, 2, 1, -1, 1, 2)
BATCH = at_length(5, otherwise=3) * len(ALL_TYPES)
MOST_BATCHES = 100
PAUSE_S = 0.5
CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: 3
        initial_redelivery_delay_ms: 100
        redelivery_delay_ms: 100
"""
# Why: small cycles, so that a run has many; small time-outs, so that a frozen one is soon given up.
OPTIONS = (
    "cycle.max_messages=10",
    "intake.backlog=process",
    f"broker.idle_timeout_s={IDLE_S}",
    f"store.lease_s={LEASE_S}",
)
UNFINISHED = """
SELECT name FROM amqsidecar.unfinished_cycle JOIN amqsidecar.instance ON number = instance
WHERE name = ANY (%s)
"""
# The sidecars' wire by the broker, and the applications by the wire.
WIRES = {"classic": "openwire", "artemis": "pair", "artemis-amqp": "amqp"}
PROVIDERS = {"openwire": ("openwire",), "pair": ("core", "qpid"), "amqp": ("qpid",)}


class Application:
    """One JMS application: its queue, what it has sent, its consumer."""

    def __init__(self, broker: Broker, provider: str, queue: str) -> None:
        self.queue = queue
        self.peer = JmsPeer.of(broker, provider)
        self.how = "reject" if provider == "qpid" else "rollback"
        self.sent: list[JmsMessage] = []
        self.exhausted: list[JmsMessage] = []

    def produce(self, failures: int) -> None:
        """Send a batch of messages of all types that fail so often."""
        self.sent += self.peer.produce(
            self.queue,
            count=BATCH // len(ALL_TYPES),
            properties={"failures": failures, "application": self.queue},
            transacted=True,
        )

    def consume(self) -> FlakyConsumer:
        """Start the consumer: it fails as often as each message says."""
        self.consumer = self.peer.start_flaky_consumer(
            self.queue, failures_property="failures", how=self.how, full=True
        )
        return self.consumer

    def wait_for_successes(self) -> None:
        """Wait until all messages that can succeed have succeeded."""
        self.consumer.wait_for(
            lambda events: (
                len({one.id for one in events if one.outcome == "succeeded"})
                == len(self.sent) - self._exhausted_count
            ),
            within_s=120,
            what=f"all messages of {self.queue} that can succeed have succeeded",
        )

    @property
    def _exhausted_count(self) -> int:
        """How many messages never succeed."""
        return sum(message.value("failures") == -1 for message in self.sent)

    def take_exhausted(self, final: str) -> None:
        """Take what the sidecars have given up: first all missing messages, then the rest."""
        # Why by its own client: the broker does not convert each message of another one.
        missing = self._exhausted_count - len(self.exhausted)
        self.exhausted += self.peer.consume(
            final,
            missing or None,
            wait_ms=20_000 if missing else None,
            selector=f"application = '{self.queue}'",
        )

    def check(self, dead_letter_queue: str) -> None:
        """Hold what the application saw against what it sent."""
        assert_each_ended_once(self.sent, self.consumer.events(), self.exhausted)
        for queue in (self.queue, dead_letter_queue):
            assert self.peer.browse(queue) == []


class Run:
    """One run: its applications, its sidecars."""

    def __init__(self, broker: Broker, wire: str, store_url: str, queue: str, folder: Path) -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.store_url = store_url
        self.applications = [
            Application(broker, provider, f"{provider}.{queue}") for provider in PROVIDERS[wire]
        ]
        self.dead_letter_queue = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        policy = write_policy(folder, FOUR_ATTEMPTS if is_artemis else CLASSIC_POLICY)
        url = getattr(broker, f"{wire}_url")
        self.sidecars = []
        for number in range(SIDECARS):
            (folder / str(number)).mkdir()
            sets = (*OPTIONS, f"store.url={store_url}")
            self.sidecars.append(
                SidecarProcess(folder / str(number), url, policy=policy, sets=sets)
            )
        self.failures = cycle(FAILURES)

    def produce(self) -> None:
        """Let each application send a batch that fails as often as it is its turn to."""
        failures = next(self.failures)
        for one in self.applications:
            one.produce(failures)

    def produce_until(self, condition: Callable[[], bool], what: str) -> None:
        """Send batches until something has happened."""
        for _ in range(MOST_BATCHES):
            self.produce()
            with suppress(TimeoutError):
                eventually(condition, within_s=PAUSE_S)
                return
        raise AssertionError(f"{what}: not within {MOST_BATCHES} batches")

    def start(self, crashes: tuple[str, ...] = ()) -> None:
        """Start all sidecars, the first ones with places to crash at."""
        for sidecar, crash in zip(self.sidecars, crashes, strict=False):
            sidecar.start(ready=False, environ={CRASH_POINT_VARIABLE: crash})
        for sidecar in self.sidecars[len(crashes) :]:
            sidecar.start()

    def logged(self, event: str) -> list[dict[str, object]]:
        """Return the log lines of an event name, of all sidecars that run, by time."""
        lines = [line for one in self.sidecars for line in one.log_lines()]
        return sorted((line for line in lines if line["event"] == event), key=itemgetter("at"))

    def wait_settled(self, *sidecars: SidecarProcess) -> None:
        """Wait until the last cycles of some that do nothing any more are settled."""
        lines = [line for one in sidecars for line in one.log_lines()]
        names = [line["instance"] for line in lines if line["event"] == "link_up"]
        with psycopg.connect(self.store_url, autocommit=True) as connection:
            eventually(
                lambda: not connection.execute(UNFINISHED, (names,)).fetchall(),
                what=f"the last cycles of {names} are settled",
            )

    def settle(self) -> None:
        """Wait until nothing is on its way any more, and stop those that run."""
        final = f"{self.dead_letter_queue}.exhausted"
        for application in self.applications:
            application.wait_for_successes()
            application.take_exhausted(final)
        last = self.sidecars[-1]
        eventually(lambda: last.unsent() == 0, what="all is sent")
        for sidecar in self.sidecars:
            if sidecar.is_running():
                assert sidecar.stop() == 0
        for application in self.applications:
            application.take_exhausted(final)

    def check(self) -> None:
        """Hold what the applications saw against what was sent."""
        for sidecar in self.sidecars:
            assert "cycle_in_doubt" not in sidecar.log()
        for application in self.applications:
            application.check(self.dead_letter_queue)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that soon gives up a client that is frozen."""
    idle = f"{ARTEMIS_ACCEPTORS['artemis']};amqpIdleTimeout={IDLE_S * 1000}"
    with (
        ClassicBroker()
        if request.param == "classic"
        else ArtemisBroker(address_settings=CORE_SETTINGS, acceptors={"artemis": idle})
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, for it is killed; it writes as in production."""
    with PostgresServer(fsync=True) as running:
        yield running


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> str:
    """The sidecars' wire to this broker."""
    return WIRES[request.node.callspec.params["broker"]]


@pytest.fixture
def run(
    broker: Broker, wire: str, server: PostgresServer, unique: str, tmp_path: Path
) -> Iterator[Run]:
    with ExitStack() as stack:
        url = stack.enter_context(server.database())
        made = Run(broker, wire, url, unique, tmp_path)
        for sidecar in made.sidecars:
            stack.enter_context(sidecar)
        for application in made.applications:
            stack.enter_context(application.consume())
        yield made


@pytest.mark.parametrize(
    "broker",
    [
        pytest.param("classic", marks=pytest.mark.proof),
        "artemis",
        pytest.param("artemis-amqp", marks=pytest.mark.proof),
    ],
    indirect=True,
)
def test_one_of_three_is_killed_for_good_twice(run: Run) -> None:
    """It dies in its last cycle, before the broker's commit and after: the others find out."""
    victim, *others = run.sidecars
    for sidecar in others:
        sidecar.start()
    for place in ("stored", "committed"):
        victim.start(ready=False, environ={CRASH_POINT_VARIABLE: f"{place}:3"})
        eventually(lambda: has_been_up(victim), what="it is there")
        run.produce_until(lambda: not victim.is_running(), f"it is killed at {place}")
        run.wait_settled(victim)
    eventually(
        lambda: sum(one.metric("amqsidecar_takeovers_total") for one in others) == 2,
        what="the others count two takeovers",
    )
    run.produce()
    run.settle()
    run.check()
    verdicts = [line["verdict"] for line in run.logged("cycle_recovered")]
    assert verdicts == ["rolled_back", "committed"]


@pytest.mark.parametrize(
    "broker",
    [
        "classic",
        *(pytest.param(name, marks=pytest.mark.proof) for name in ("artemis", "artemis-amqp")),
    ],
    indirect=True,
)
def test_two_of_three_are_frozen_for_longer_than_their_lease(run: Run) -> None:
    """They are taken over; when they wake up they continue as another instance."""
    run.start(crashes=("stored:3:SIGSTOP", "committed:3:SIGSTOP"))
    frozen = run.sidecars[:2]
    run.produce_until(lambda: all(map(is_frozen, frozen)), "both are frozen")
    run.wait_settled(*frozen)
    for sidecar in frozen:
        assert sidecar.process is not None
        sidecar.process.send_signal(signal.SIGCONT)
    run.produce()
    for sidecar in frozen:
        sidecar.wait_ready()
    eventually(lambda: len(run.logged("link_up")) >= SIDECARS + 2, what="both are back")
    run.produce()
    run.settle()
    run.check()


@pytest.mark.parametrize("broker", ["classic"], indirect=True)
def test_all_are_restarted_one_by_one_and_one_leaves(run: Run) -> None:
    """A rolling update, then one sidecar less: what it had taken goes with the others, at once."""
    for sidecar in run.sidecars:
        sidecar.options.append("store.lease_s=30")
    run.start()
    for sidecar in run.sidecars:
        run.produce()
        assert sidecar.stop() == 0
        run.produce()
        sidecar.start()
    run.produce()
    assert run.sidecars[0].stop() == 0
    run.produce()
    run.settle()
    run.check()
    assert run.logged("taken_over") == []


@pytest.mark.proof  # A minute: so long may a statement take.
@pytest.mark.parametrize("broker", ["artemis"], indirect=True)
def test_a_server_that_hangs_is_reported(run: Run, server: PostgresServer) -> None:
    """It takes connections and answers nothing; the alert of a link that is down sees it, too."""
    run.start()
    run.produce()
    server.pause()
    run.produce()
    eventually(
        lambda: all(one.metric("amqsidecar_link_up") == 0 for one in run.sidecars),
        within_s=180,
        what="the sidecars find their store hanging",
    )
    for one in run.sidecars:
        assert "no answer for 65 s" in one.get("/readyz")[1]
        assert "no answer for 65 s" in one.log()
    server.resume()
    for one in run.sidecars:
        one.wait_ready()
    run.produce()
    run.settle()
    run.check()


@pytest.mark.parametrize("broker", ["classic"], indirect=True)
def test_a_standby_takes_over(broker: Broker, unique: str, tmp_path: Path) -> None:
    """It has confirmed each commit; the sidecars find it by the hosts in `store.url`."""
    with (
        PostgresServer(fsync=True) as primary,
        PostgresServer(fsync=True, primary=primary) as standby,
    ):
        primary.wait_for_standby()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        with ExitStack() as stack:
            run = Run(broker, "openwire", url, unique, tmp_path)
            for sidecar in run.sidecars:
                stack.enter_context(sidecar)
            for application in run.applications:
                stack.enter_context(application.consume())
            run.start()
            run.produce()
            run.produce()
            primary.kill()
            run.produce()
            standby.promote()
            run.produce()
            for sidecar in run.sidecars:
                sidecar.wait_ready()
            run.settle()
            run.check()


@pytest.mark.parametrize("broker", ["artemis"], indirect=True)
def test_a_wire_that_accepts_outside_its_transactions_is_refused(
    broker: Broker, server: PostgresServer, tmp_path: Path
) -> None:
    """What a dead sidecar had accepted comes again over STOMP; only its heir would know it."""
    with server.database() as url:
        sidecar = SidecarProcess(tmp_path, broker.stomp_url, sets=[f"store.url={url}"])
        said = sidecar.run_refused(expect=78)
        assert "store.url: " in said
        assert "artemis://" in said


def has_been_up(sidecar: SidecarProcess) -> bool:
    """Return whether a process has begun to read dead letters."""
    return any(line["event"] == "link_up" for line in sidecar.log_lines())


def is_frozen(sidecar: SidecarProcess) -> bool:
    """Return whether the running process is stopped."""
    assert sidecar.process is not None
    return is_stopped(sidecar.process.pid)
