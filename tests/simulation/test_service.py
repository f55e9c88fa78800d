"""The service's loop against a broker in memory: one claim per test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import pytest

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.clock import never_set
from amqsidecar.engine.crash_points import no_crash
from amqsidecar.engine.cycle_events import CycleObserver
from amqsidecar.engine.gates import NO_GATES
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.death_groups import DeathGroups, no_fields, no_note
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.manual import Manual
from amqsidecar.errors import DiscoveryRefused, LinkLost, QueueRefused
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.row_changes import Exhausting
from amqsidecar.model.schedule import RowState
from amqsidecar.model.sidecar_names import FINAL_SUFFIX
from amqsidecar.runtime.attempts import Attempts
from amqsidecar.runtime.intake_keeper import ALL_REFUSED, FindIntake, IntakeKeeper
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.runtime.service import Service
from amqsidecar.runtime.stored import StoredMode, StoredSettings
from amqsidecar.runtime.work import EngineParts
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.health import Health
from simulation.rules import DLQ, CountingRules
from simulation.world import World
from support.brokers.memory import MemoryBroker, MemoryLink, StoredMessage
from support.brokers.one import OneBroker
from support.waiting import eventually


class SlowLink(MemoryLink):
    """Hands tokens over only when it was asked some times."""

    refusals = 0

    def take_token(self, timeout_s: float) -> int | None:
        if self.refusals:
            self.refusals -= 1
            return None
        return super().take_token(timeout_s)


def make_mode(
    world: World,
    link: MemoryLink,
    health: Health,
    schedule: Schedule,
    *,
    backlog_threshold: int = 100,
    observe: CycleObserver = lambda _seen, _stats: None,
) -> StoredMode:
    """Return the mode of a service over a schedule, as `wiring/stored.py` makes it."""

    def make_judge(link: LookSession, names: IntakeNames) -> Judge:
        is_classic = link.description.kind is BrokerKind.CLASSIC
        send_rules = SendRules(
            link.description.kind, names.covers, FINAL_SUFFIX, parks_topics=is_classic
        )
        return Judge(world.rules, send_rules, lambda: 0.5)

    return StoredMode(
        schedule=schedule,
        make_link=lambda _instance: link,
        make_judge=make_judge,
        parts=EngineParts(world.clock, observe, no_crash, 0),
        gates=NO_GATES,
        death_groups=DeathGroups(no_fields, no_note),
        settings=StoredSettings(
            holds_backlog=True,
            backlog_threshold=backlog_threshold,
            exhausting=Exhausting(final_suffix=FINAL_SUFFIX, keeps_exhausted=False),
            accepts_orphans=False,
            rules_digest="",
        ),
        health=health,
        mode=LiveMode(Manual()),
    )


def make_service(
    world: World,
    link: MemoryLink,
    health: Health,
    *,
    named: Sequence[IntakeQueue] = (),
    find: FindIntake,
    backlog_threshold: int = 100,
    observe: CycleObserver = lambda _seen, _stats: None,
    broker: OneBroker | None = None,
) -> Service:
    """Return a service over the world's schedule."""
    mode = make_mode(
        world, link, health, world.store, backlog_threshold=backlog_threshold, observe=observe
    )
    return Service(
        open_link=mode.open,
        intake=IntakeKeeper(named, find, health.intake, LiveMode(Manual())),
        attempts=Attempts(broker or OneBroker(), 0.5, 30.0, lambda: 0.5),
        clock=world.clock,
        look_at_clock=never_set,
        prefetch=0,
        max_wait_s=1.0,
        discovery_interval_s=30.0,
        health=health,
    )


class OfAnotherThread:
    """The schedule of the service's own thread, which nobody else may use."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked over the connection of another thread")


def test_a_taken_over_instance_is_settled_through_a_store_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    link = MemoryLink(world.broker)
    mode = make_mode(world, link, Health(), cast("Schedule", OfAnotherThread()))
    mode.settler(link, world.store)
    world.kill()


def service(world: World, link: MemoryLink, events: list[AnyEvent]) -> Service:
    made = make_service(
        world,
        link,
        Health(),
        find=lambda _link: [IntakeQueue(queue(DLQ))],
        observe=lambda seen, _stats: events.extend(seen),
    )
    link.on_wait = lambda _timeout_s: made.stop()
    return made


def test_a_token_that_comes_late_is_waited_for_after_the_doubt_was_settled(tmp_path: Path) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    world.broker.commit_fault = iter([None, "lost_after"]).__next__
    world.die("a")
    with pytest.raises(LinkLost):
        world.run(5)
    world.broker.commit_fault = lambda: None
    world.broker.tokens.clear()
    link = SlowLink(world.broker)
    link.refusals = 3
    events: list[AnyEvent] = []
    service(world, link, events).run()
    assert world.bodies("orders") == ["a", "a"], "at worst a copy, never a loss"
    world.kill()


class RenewedToken(OneBroker):
    """A broker that is logged in to by tokens, of which there is a newer one since a moment."""

    since_s = 0.0

    def login_outdated(self, since_s: float) -> bool:
        return since_s < self.since_s


def test_a_token_that_is_renewed_while_the_instance_is_waited_for_is_used(tmp_path: Path) -> None:
    """Another thread renews it for all links."""
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    world.kill()
    broker, logins = RenewedToken(), list[str]()

    class Link(MemoryLink):
        def take(self, token_queue: str) -> Self:
            logins.append(token_queue)
            return super().take(token_queue)

        def take_token(self, timeout_s: float) -> int | None:
            if len(logins) == 1:
                world.clock.advance(1_000)
                broker.since_s = world.clock.monotonic_s()
                world.clock.advance(1_000)
            return super().take_token(timeout_s)

    link = Link(world.broker)
    made = make_service(world, link, Health(), find=lambda _link: [], broker=broker)
    link.on_wait = lambda _timeout_s: made.stop()
    made.run()
    assert len(logins) == 2


class WatchingLink(MemoryLink):
    """Refuses some queues, and reports queues that come and go."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.refused: dict[str, str] = {}
        self.born: set[str] = set()
        self.has_changed = False
        self.attach_count = 0

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self.attach_count += 1
        names = [one.destination.name for one in queues if one.destination.name in self.refused]
        if names:
            raise QueueRefused.all_of({name: self.refused[name] for name in names})
        super().attach(queues, prefetch)

    def queues_changed(self) -> bool:
        changed, self.has_changed = self.has_changed, False
        return changed

    def is_newborn(self, destination: Destination) -> bool:
        return destination.name in self.born


class Told(Health):
    """The last word on the intake."""

    @property
    def refused(self) -> Mapping[str, str]:
        return self.state().readiness.intake.refused

    @property
    def problem(self) -> str:
        return self.state().readiness.intake.reason

    @property
    def left_behind_reasons(self) -> tuple[str, ...]:
        return tuple(item.reason for item in self.state().left_behind)


class Run:
    """A service that finds `found`; each step runs when it waits, and then it looks again."""

    def __init__(self, folder: Path, *, named: Sequence[str] = (), backlog: int = 10) -> None:
        self.world = World(folder, CountingRules(delay_ms=0))
        self.world.start()
        self.world.kill()
        self.found = [DLQ]
        self.finds = 0
        self.can_ask = True
        self.told = Told()
        self._named, self._threshold = named, backlog
        self.restart()

    def restart(self) -> None:
        """Make a new service, with a link of its own."""
        self.link = WatchingLink(self.world.broker)
        self.service = make_service(
            self.world,
            self.link,
            self.told,
            named=[IntakeQueue(queue(name)) for name in self._named],
            find=self._find,
            backlog_threshold=self._threshold,
        )

    def _find(self, _link: LookSession) -> list[IntakeQueue]:
        self.finds += 1
        if not self.can_ask:
            raise DiscoveryRefused("grant manage")
        return [IntakeQueue(queue(name)) for name in self.found]

    def go(self, *steps: Callable[[], object], looks: bool = True) -> None:
        """Run the steps, one each time the service waits, and look again after each; then stop."""
        left = [*steps, self.service.stop]

        def on_wait(timeout_s: float) -> None:
            self.world.clock.advance(max(1, round(timeout_s * 1000)))
            left.pop(0)()
            if looks:
                self.service.look_again()

        self.link.on_wait = on_wait
        self.service.run()

    def die(self, name: str, *bodies: str) -> None:
        for body in bodies:
            message = StoredMessage(body.encode())
            self.world.broker.die(name, message, queue("orders"))


def test_a_queue_that_is_refused_is_left_out_and_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others go on; it is read once the broker allows it, and reported again on a change."""
    run = Run(tmp_path)
    run.found = ["A.DLQ", "B.DLQ"]
    run.link.refused = {"A.DLQ": "no permission on connection 17"}
    run.die("A.DLQ", "a")
    run.die("B.DLQ", "b")
    seen: list[object] = []

    def look() -> None:
        seen.append((dict(run.told.refused), run.told.problem, run.told.left_behind_reasons))

    def change() -> None:
        look()
        run.link.refused = {"A.DLQ": "no permission on connection 18"}

    def change_more() -> None:
        look()
        assert run.world.bodies("orders") == ["b"]
        run.link.refused = {"A.DLQ": "another type"}

    def grant() -> None:
        look()
        run.link.refused = {}

    run.go(change, change_more, grant, lambda: None)

    assert seen == [
        ({"A.DLQ": f"no permission on connection {n}"}, "", ("refused",)) for n in (17, 18)
    ] + [({"A.DLQ": "another type"}, "", ("refused",))]
    assert run.world.bodies("orders") == ["b", "a"]
    assert (dict(run.told.refused), run.told.left_behind_reasons) == ({}, ())
    said = capsys.readouterr().out
    assert said.count("intake_queue_refused") == 2
    assert said.count("intake_queue_read_again") == 1


def test_a_named_queue_that_is_refused_at_first_ends_the_service(tmp_path: Path) -> None:
    run = Run(tmp_path, named=["A.DLQ", "B.DLQ"])
    run.link.refused = {"B.DLQ": "no permission"}
    with pytest.raises(QueueRefused, match="no permission"):
        run.go()


def test_many_refused_queues_cost_one_more_attach(tmp_path: Path) -> None:
    """Each is reported with its own words."""
    run = Run(tmp_path)
    run.found = [f"{number}.DLQ" for number in range(50)]
    refused = {name: f"no permission on {name}" for name in run.found[1:]}
    run.link.refused = dict(refused)

    counts: list[int] = []

    def count() -> None:
        assert run.told.refused == refused
        counts.append(run.link.attach_count)

    run.go(count, count)
    assert counts == [2, 4]


def test_a_named_queue_that_is_refused_later_is_reported_and_tried_again(tmp_path: Path) -> None:
    run = Run(tmp_path, named=["A.DLQ", "B.DLQ"])

    def revoke() -> None:
        run.link.refused = {"B.DLQ": "no permission"}

    def grant() -> None:
        assert run.told.refused == {"B.DLQ": "no permission"}
        run.die("A.DLQ", "a")
        run.die("B.DLQ", "b")
        run.link.refused = {}

    run.go(revoke, grant)
    assert sorted(run.world.bodies("orders")) == ["a", "b"]
    assert run.told.refused == {}


def test_where_nothing_can_be_asked_or_read_the_health_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once in the log; a broker without dead-letter queues is no fault."""
    run = Run(tmp_path)
    run.can_ask = False
    seen: list[str] = []

    def refuse() -> None:
        seen.append(run.told.problem)
        run.can_ask = True
        run.link.refused = {DLQ: "no permission"}

    def remove() -> None:
        seen.append(run.told.problem)
        run.found = []

    run.go(lambda: None, refuse, remove, lambda: seen.append(run.told.problem))
    assert "grant manage; or name them in intake.queues" in seen[0]
    assert seen[1:] == [ALL_REFUSED, ""]
    assert capsys.readouterr().out.count("can't be asked") == 1


def test_what_was_found_is_read_on_when_it_can_not_be_asked_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer that fails once must not end the intake, nor let final dead letters into it."""
    run = Run(tmp_path)

    def fail() -> None:
        run.can_ask = False

    def die() -> None:
        run.die(DLQ, "a")

    run.go(fail, die, lambda: None)
    assert run.world.bodies("orders") == ["a"]
    assert run.told.problem == ""
    said = capsys.readouterr().out
    assert "intake_limited" in said
    assert "intake_empty" not in said


def test_what_comes_after_the_first_look_is_no_backlog_however_much_it_is(tmp_path: Path) -> None:
    """A queue that was empty, and one that was born since; but an older one that is found is."""
    run = Run(tmp_path)
    many = [str(n) for n in range(30)]

    def let_many_die() -> None:
        run.die(DLQ, *many)
        run.die("born.DLQ", *many)
        run.die("old.DLQ", *many)
        run.link.born = {"born.DLQ"}
        run.link.has_changed = True
        run.found = [DLQ, "born.DLQ", "old.DLQ"]

    run.go(let_many_die, lambda: None)
    assert len(run.world.bodies("orders")) == 60
    run.world.store.open()
    assert run.world.store.holds()["queue://old.DLQ"] == 0
    held = [tally for tally in run.world.store.tallies() if tally.state is RowState.HELD]
    assert [tally.count for tally in held] == [30]


def test_what_was_read_once_is_no_backlog_after_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go(lambda: run.die(DLQ, "first"))
    run.die(DLQ, *[str(n) for n in range(30)])
    run.restart()
    run.go(lambda: None)
    assert len(run.world.bodies("orders")) == 31


def test_the_service_looks_at_once_when_the_link_reports_a_new_queue(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def settle() -> None:
        """Wait until the service's own clock has asked for its first look."""
        eventually(lambda: run.finds > 1 or run.service._look_again.is_set())

    def bear() -> None:
        run.found = [DLQ, "born.DLQ"]
        run.die("born.DLQ", "a")

    def tell() -> None:
        assert run.world.bodies("orders") == []
        run.link.has_changed = True

    run.go(settle, lambda: None, bear, lambda: None, tell, lambda: None, lambda: None, looks=False)
    assert run.world.bodies("orders") == ["a"]
