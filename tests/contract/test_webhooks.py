"""Reports of a schedule in each store, to a real receiver."""

import ssl
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from amqsidecar.engine.crash_points import no_crash
from amqsidecar.http.rights import Right, rights_of
from amqsidecar.http.seen_schedule import seen_schedule
from amqsidecar.model import row_changes
from amqsidecar.model.cause import group_number
from amqsidecar.model.event import AnyEvent, Received, Resent, Returned
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.operation import Action, Operation, OperationState, Selection
from amqsidecar.model.schedule import RowFilter, RowState, Tally
from amqsidecar.operations.markers import set_marker
from amqsidecar.runtime.worker import KeptSchedule
from amqsidecar.telemetry.health import LinkPart, Readiness
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.web_client import Client, permits
from amqsidecar.webhooks import reporting
from amqsidecar.webhooks.matters import LOOK_S, OUT_MS, Matters
from amqsidecar.webhooks.outbox import (
    GIVE_UP_MS,
    PREFIX,
    Kind,
    Phase,
    WantedMatters,
    forget_outboxes,
    read_outbox,
)
from amqsidecar.webhooks.reporting import Reporting, request_test
from amqsidecar.webhooks.sending import Address
from contract.conftest import MakeStore, OwnStore
from support.stores.rows import take_rows, taken_row, took
from support.virtual_clock import VirtualClock
from support.web.receiver import Receiver

ALL_KINDS = frozenset(Kind)
DEATHS = 10_000
CAUSE = "a.Refused: order 7"
GROUP = "a.Refused: order *"


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("pki")) as found:
        yield found


class Site:
    """Reporters on one schedule, and their receiver."""

    def __init__(self, open_store: MakeStore, receiver: Receiver) -> None:
        self.open_store, self.receiver = open_store, receiver
        self.store: OwnStore = open_store()
        self.clock = VirtualClock(10**12)
        self.readiness = Readiness(link=LinkPart(up=True, reason=""))
        self.metrics = Metrics()

    def reporter(self, runner: str = "", *, dies_at: str = "", **wanted: Any) -> Reporting:
        def crash_point(name: str) -> None:
            if name == dies_at:
                raise Killed

        about = msgspec.structs.replace(
            WantedMatters(kinds=ALL_KINDS, gather_ms=10_000, update_ms=900_000), **wanted
        )
        tls = ssl.create_default_context(cafile=self.receiver.pki.ca_file)
        return Reporting(
            "ops",
            about,
            Address(
                url=lambda: self.receiver.url,
                secrets=list,
                console="https://c.example/x/",
                client=Client(
                    lambda: tls,
                    10.0,
                    65_536,
                    permits=permits([ip_network("127.0.0.0/8")]),
                    needs_body=False,
                ),
            ),
            Matters(
                about.oldest_ms,
                self.clock,
                lambda destination: "payers" if destination == "queue://pay" else "",
                lambda: self.readiness,
            ),
            schedule=KeptSchedule(self.open_store),
            clock=self.clock,
            runner=runner,
            metrics=self.metrics,
            crash_point=crash_point if dies_at else no_crash,
        )

    def look(self, *reporters: Reporting, seconds: int = 60, step_s: int = 2) -> None:
        """Let reporters look for a while."""
        for _ in range(0, seconds, step_s):
            for one in reporters:
                one.look()
            self.clock.advance(step_s * 1000)

    def die(self, count: int, destination: str = "queue://a", cause: str = CAUSE) -> None:
        at_ms = self.clock.now_ms()
        events = [
            Received(
                at_ms=at_ms,
                source="queue://DLQ",
                origin=destination,
                redelivery_id=f"m-{at_ms}-{number}",
                cause=cause,
            )
            for number in range(count)
        ]
        with self.store.transaction() as tx:
            tx.record(events)

    def add_rows(self, first: int, count: int, state: RowState, **fields: Any) -> None:
        now = self.clock.now_ms()
        rows = [
            taken_row(number, state=state, cause=CAUSE, received_at_ms=now, **fields)
            for number in range(first, first + count)
        ]
        rows = [msgspec.structs.replace(row, cause_group=GROUP) for row in rows]
        cycle = self.store.state().cycle + 1
        take_rows(self.store, cycle, rows, [took(row) for row in rows])

    def said(self, kind: str = "") -> list[tuple[str, str, int]]:
        """Return phase, destination and count of each notice."""
        return [
            (one["data"]["phase"], one["data"]["destination"], one["data"]["count"])
            for one in self.receiver.events(kind)
        ]


@pytest.fixture
def site(open_store: MakeStore, running: Receiver) -> Site:
    running.requests, running.answers, running.more = [], 204, {}
    return Site(open_store, running)


def test_ten_thousand_deaths_of_one_cause_are_one_notice_and_then_an_update(site: Site) -> None:
    reporter = site.reporter()
    site.look(reporter, seconds=2)
    for part in range(4):
        site.die(DEATHS // 4)
        site.look(reporter, seconds=6 if part < 2 else 300)
    assert site.said() == [(Phase.BEGUN, "queue://a", DEATHS // 2)]
    site.look(reporter, seconds=900)
    assert site.said()[1:] == [(Phase.UPDATED, "queue://a", DEATHS)]
    assert site.receiver.events()[1]["data"]["more"] == DEATHS // 2
    site.look(reporter, seconds=3_600, step_s=60)
    assert len(site.said()) == 2


def test_what_was_known_before_the_first_look_is_not_new(site: Site) -> None:
    site.die(3)
    site.clock.advance(1_000)
    reporter = site.reporter()
    site.look(reporter)
    assert site.said() == []
    site.die(1, cause="b.Other: x")
    site.look(reporter)
    assert site.said() == [(Phase.BEGUN, "queue://a", 1)]


@pytest.mark.parametrize(("place", "sent"), [("notice_kept", 0), ("notice_sent", 1)])
def test_a_process_that_dies_loses_no_notice(site: Site, place: str, sent: int) -> None:
    site.reporter().look()
    site.die(5)
    with pytest.raises(Killed):
        site.look(site.reporter(dies_at=place))
    assert len(site.said()) == sent
    site.die(4)
    site.look(site.reporter())
    assert site.said() == [(Phase.BEGUN, "queue://a", 5)] * (sent + 1)
    assert len({one["id"] for one in site.receiver.events()}) == 1
    site.look(site.reporter(), seconds=1_000)
    assert site.said()[-1] == (Phase.UPDATED, "queue://a", 9)


def test_deaths_while_no_process_lived_are_reported(site: Site) -> None:
    site.reporter().look()
    site.die(5)
    site.clock.advance(3_600_000)
    site.look(site.reporter())
    assert site.said() == [(Phase.BEGUN, "queue://a", 5)]


def test_several_processes_send_once_and_another_takes_over(site: Site) -> None:
    first, second = (site.reporter(name) for name in ("first", "second"))
    site.look(first, second)
    for number in range(5):
        site.die(1, destination=f"queue://{number}")
    site.look(first, second)
    assert sorted(one[1] for one in site.said()) == [f"queue://{number}" for number in range(5)]
    # It hangs: after its lease another one sends.
    site.die(1, destination="queue://late")
    site.look(second, seconds=30)
    assert len(site.said()) == 5
    site.look(second, seconds=60)
    assert site.said()[5:] == [(Phase.BEGUN, "queue://late", 1)]
    site.die(1, destination="queue://later")
    site.look(first, second)
    assert len(site.said()) == 7


def test_one_with_a_clock_that_was_ahead_holds_nothing_up_once_it_is_gone(site: Site) -> None:
    """As after a step back of the wall clock, which the holder followed slowly until it ended."""
    first, second = (site.reporter(name) for name in ("first", "second"))
    site.clock.jump(3_600_000)
    site.receiver.answers = 500
    site.look(first)
    site.die(1)
    site.look(first)
    assert site.said()
    site.clock.jump(-3_600_000)
    site.receiver.requests, site.receiver.answers = [], 204
    site.look(second, seconds=30)
    assert site.said() == []
    site.look(second, seconds=30)
    assert site.said() == [(Phase.BEGUN, "queue://a", 1)]


def test_a_stale_process_overwrites_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = site.reporter()
    reporter.look()
    site.die(1)
    site.look(reporter, seconds=10)

    asked = []

    def stale(schedule: Any, outbox: Any) -> bool:
        asked.append(len(outbox.pending))
        if len(asked) == 1:
            assert request_test(schedule, "ops", "ann", site.clock.now_ms())
        outbox.dropped = 7
        return True

    monkeypatch.setattr(reporter, "_collect", stale)
    reporter.look()
    # The change ran again, on the outbox that the other process had written.
    assert asked == [0, 1]
    outbox = read_outbox(site.store.read_value(PREFIX + "ops"), 0)
    assert [one.matter.kind for one in outbox.log] == [Kind.TEST]
    assert outbox.dropped == 7


def test_a_receiver_that_fails_is_tried_again_and_then_gets_all(site: Site) -> None:
    reporter = site.reporter()
    reporter.look()
    site.receiver.answers = 503
    site.die(1)
    site.die(1, destination="queue://b")
    site.look(reporter, seconds=120)
    assert 6 < len(site.said()) < 20
    failed = site.metrics.render("")[0].decode()
    assert 'amqsidecar_webhook_pending{subscription="ops"} 2.0' in failed
    assert 'outcome="failed"' in failed
    site.receiver.requests, site.receiver.answers = [], 204
    site.look(reporter, seconds=400)
    assert sorted(site.said()) == [(Phase.BEGUN, "queue://a", 1), (Phase.BEGUN, "queue://b", 1)]
    assert (
        'amqsidecar_webhook_pending{subscription="ops"} 0.0' in site.metrics.render("")[0].decode()
    )


def test_exhausted_messages_begin_grow_and_end(site: Site) -> None:
    site.add_rows(1, 2, RowState.EXHAUSTED)
    reporter = site.reporter(kinds=frozenset({Kind.EXHAUSTED}))
    site.look(reporter)
    assert site.said() == []
    site.add_rows(11, 3, RowState.EXHAUSTED, destination="queue://pay")
    site.look(reporter)
    assert site.said() == [(Phase.BEGUN, "queue://pay", 3)]
    assert site.receiver.events()[0]["data"]["owner"] == "payers"
    gone = row_changes.discard(site.clock.now_ms(), "ann")
    site.store.change(RowFilter(destination="queue://pay"), gone)
    site.look(reporter)
    assert site.said()[1:] == [(Phase.ENDED, "queue://pay", 0)]


def test_operations_that_stop_or_wait_are_reported_once(site: Site) -> None:
    operation = Operation(
        id=0,
        action=Action.RETRY,
        selection=Selection(rows=RowFilter(destination="queue://a")),
        actor="ann",
        reason="",
        created_at_ms=site.clock.now_ms(),
        until_id=0,
    )
    running = site.store.add_operation(operation)
    waits = msgspec.structs.replace(operation, needs_second=True, state=OperationState.PAUSED)
    waiting = site.store.add_operation(waits)
    reporter = site.reporter()
    site.look(reporter)
    site.store.change_operation(
        running.id,
        lambda one: msgspec.structs.replace(
            one, state=OperationState.STOPPED, state_reason="7 of 9 came back"
        ),
    )
    site.look(reporter)
    titles = [one["data"]["title"] for one in site.receiver.events("operation")]
    links = [one["data"]["link"] for one in site.receiver.events("operation")]
    assert links == [f"https://c.example/x/operations/{one.id}" for one in (waiting, running)]
    assert titles == [
        f"Operation {waiting.id}, retry by ann, waits for a second person",
        f"Operation {running.id}, retry by ann, stopped by itself: 7 of 9 came back",
    ]


def test_a_destination_that_does_not_recover_is_reported(site: Site) -> None:
    at_ms = site.clock.now_ms()
    events: list[AnyEvent] = []
    for number in range(30):
        name = f"m-{number}"
        events.append(
            Resent(
                at_ms=at_ms,
                redelivery_id=name,
                redelivery_count=1,
                destination="queue://a",
                lateness_ms=0,
            )
        )
        events.append(
            Returned(
                at_ms=at_ms,
                redelivery_id=name,
                redelivery_count=1,
                source="queue://DLQ",
                origin="queue://a",
                cause=CAUSE,
            )
        )
    with site.store.transaction() as tx:
        tx.record(events)
    site.add_rows(1, 1, RowState.HELD, destination="queue://a")
    reporter = site.reporter(kinds=frozenset({Kind.NOT_RECOVERING}))
    site.look(reporter)
    assert site.said() == [(Phase.BEGUN, "queue://a", 1)]
    site.clock.advance(OUT_MS)
    site.look(reporter)
    assert len(site.said()) == 1
    # The last message is redirected to another queue.
    site.store.change(RowFilter(), row_changes.redirect(0, "ann", "queue://b"))
    site.look(reporter)
    assert site.said()[1:] == [(Phase.ENDED, "queue://a", 0)]


def test_an_old_message_is_reported_until_it_is_gone(site: Site) -> None:
    reporter = site.reporter(kinds=frozenset({Kind.OLDEST}), oldest_ms=3_600_000)
    site.add_rows(1, 2, RowState.HELD)
    site.look(reporter)
    assert site.said() == []
    site.clock.advance(3_600_000)
    site.look(reporter)
    assert site.said() == [(Phase.BEGUN, "queue://orders", 1)]


def test_a_schedule_without_a_sidecar_is_reported_until_it_has_one(site: Site) -> None:
    reporter = site.reporter()
    lost = ForeignToken(instance="lost", sent_at_ms=None, is_held=False)
    site.readiness = msgspec.structs.replace(site.readiness, other_schedules=(lost,))
    site.look(reporter)
    assert site.said() == [(Phase.BEGUN, "", 1)]
    # Without a link nothing is known.
    site.readiness = Readiness()
    site.look(reporter)
    assert len(site.said()) == 1
    site.readiness = Readiness(link=LinkPart(up=True, reason=""))
    site.look(reporter)
    assert site.said()[1:] == [(Phase.ENDED, "", 0)]


def test_only_wanted_destinations_and_owners_are_reported(site: Site) -> None:
    places = site.reporter(is_about=lambda place: place == "queue://b")
    places.look()
    site.die(1)
    site.die(2, destination="queue://b")
    note = GroupNote(
        destination="queue://a", cause_group=GROUP, at_ms=1, author="ann", text="", owner="bob"
    )
    site.store.add_note(note)
    lost = ForeignToken(instance="lost", sent_at_ms=None, is_held=False)
    site.readiness = msgspec.structs.replace(site.readiness, other_schedules=(lost,))
    site.look(places)
    assert site.said() == [(Phase.BEGUN, "queue://b", 2)]
    site.receiver.requests = []
    body = site.store.read_value(PREFIX + "ops")
    assert body
    assert site.store.swap_value(
        PREFIX + "ops",
        body,
        msgspec.json.encode(msgspec.structs.replace(read_outbox(body, 0), known={})),
    )
    site.look(site.reporter(owners=frozenset({"bob"})))
    assert site.said() == [(Phase.BEGUN, "queue://a", 1)]


def test_a_snoozed_group_is_quiet(site: Site) -> None:
    reporter = site.reporter()
    reporter.look()
    site.die(1)
    now = site.clock.now_ms()
    note = GroupNote(
        destination="queue://a",
        cause_group=GROUP,
        at_ms=now,
        author="ann",
        text="",
        snoozed_until_ms=now + 10**7,
    )
    site.store.add_note(note)
    site.look(reporter)
    assert site.said() == []


def test_a_test_is_sent_and_logged(site: Site) -> None:
    reporter = site.reporter()
    assert request_test(site.store, "ops", "console:ann", site.clock.now_ms())
    reporter.look()
    assert [one["data"]["title"] for one in site.receiver.events("test")] == [
        "console:ann tests this subscription"
    ]
    outbox = read_outbox(site.store.read_value(PREFIX + "ops"), 0)
    assert [(one.problem, one.attempts) for one in outbox.log] == [("", 1)]
    assert reporting.SEND_S < LOOK_S


def test_the_outbox_of_a_removed_subscription_goes(site: Site) -> None:
    """At once on a schedule of its own; where others may report, a day after the last did."""
    site.receiver.answers = 503
    reporter = site.reporter()
    reporter.look()
    site.die(1)
    site.look(reporter)
    assert read_outbox(site.store.read_value(PREFIX + "ops"), 0).pending
    assert [*forget_outboxes(site.store, {"ops"}, site.clock.now_ms())] == []
    assert [*forget_outboxes(site.store, set(), site.clock.now_ms())] == ["ops"]
    assert site.store.value_names(PREFIX) == []
    site.receiver.requests, site.receiver.answers = [], 204
    # Under the same name again, it knows nothing of before.
    site.look(reporter)
    assert site.said() == []

    shared = site.reporter("first")
    site.look(shared)
    for advance_ms, gone in ((GIVE_UP_MS - 60_000, []), (120_000, ["ops"])):
        site.clock.advance(advance_ms)
        assert [*forget_outboxes(site.store, set(), site.clock.now_ms())] == gone


def test_a_new_cause_names_the_marker_before_it(site: Site) -> None:
    reporter = site.reporter()
    reporter.look()
    set_marker(site.store, "orders 4.2", "a", "ci", site.clock.now_ms())
    site.clock.advance(14 * 60_000)
    site.die(3)
    site.die(1, destination="queue://b")
    site.look(reporter)
    events = site.receiver.events("new_cause")
    texts = {one["data"]["destination"]: one["data"]["text"] for one in events}
    # Why only the minutes: stores differ in how soon there is another look.
    assert texts.pop("queue://a").startswith("3 deaths, new since orders 4.2 (14m")
    assert texts == {"queue://b": "1 death"}


def test_the_schedule_is_read_once_for_all_subscriptions(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    tallies = site.store.tallies

    def count() -> list[Tally]:
        counted.append(1)
        return tallies()

    monkeypatch.setattr(site.store, "tallies", count)
    matters = site.reporter()._matters
    for _ in range(3):
        matters.look(site.store)
    assert len(counted) == 1
    site.die(1)
    site.clock.advance(2_000)
    matters.look(site.store)
    assert len(counted) == 2


def test_who_sees_one_destination_sees_nothing_of_the_others(site: Site) -> None:
    reporter = site.reporter()
    reporter.look()
    site.receiver.answers = 503
    for name in ("queue://a", "queue://b"):
        site.die(1, destination=name)
    site.look(reporter)
    assert request_test(site.store, "ops", "ann", site.clock.now_ms())
    rights = rights_of({"a": [Right.VIEW]})
    body = seen_schedule(site.store, rights).read_value(PREFIX + "ops")
    assert body
    assert b"queue://a" in body
    for hidden in (b"queue://b", b"ann", b"503"):
        assert hidden not in body
    found = read_outbox(body, 0)
    assert [len(found.log), len(found.pending), len(found.known), found.dropped] == [1, 1, 0, 0]


def test_links_open_the_page_of_the_matter(site: Site) -> None:
    reporter = site.reporter(oldest_ms=1_000)
    site.look(reporter, seconds=2)
    site.die(1, destination="queue://orders")
    site.add_rows(1, 1, RowState.EXHAUSTED)
    lost = ForeignToken(instance="lost", sent_at_ms=None, is_held=False)
    site.readiness = msgspec.structs.replace(site.readiness, other_schedules=(lost,))
    site.look(reporter)
    links = {one["data"]["kind"]: one["data"]["link"] for one in site.receiver.events()}
    number = group_number(site.store.group_key, "queue://orders", GROUP)
    group = f"/groups/one?destination=queue%3A%2F%2Forders&group=%23{number}"
    assert links == {
        "new_cause": f"https://c.example/x{group}",
        "exhausted": f"https://c.example/x{group}",
        "oldest": "https://c.example/x/groups?destination=queue%3A%2F%2Forders",
        "stranded": "https://c.example/x/",
    }
