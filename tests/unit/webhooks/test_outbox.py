"""What is reported, when, and what stays in the outbox until it is delivered."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from amqsidecar.webhooks import outbox as outboxes
from amqsidecar.webhooks.outbox import (
    FIRST_PAUSE_MS,
    GIVE_UP_MS,
    LEASE_MS,
    LONGEST_PAUSE_MS,
    Kind,
    Matter,
    Phase,
    WantedMatters,
    WebhookOutbox,
    add_test,
    collect,
    due_notice,
    holds,
    read_outbox,
    settle,
    write_outbox,
)

WANTED = WantedMatters(kinds=frozenset(Kind), gather_ms=10, update_ms=100)


def new_cause(count: int = 1, group: str = "a.B: x", **fields: Any) -> Matter:
    matter = {"kind": Kind.NEW_CAUSE, "destination": "queue://a", "cause_group": group}
    return Matter(**(matter | {"count": count} | fields))


class Reports:
    """An outbox whose notices are delivered at once."""

    def __init__(self) -> None:
        self.outbox = WebhookOutbox(stream="s", begun_ms=0, has_looked=True)
        self.groups: dict[str, str] = {}

    def look(self, at_ms: int, *matters: Matter, kind: Kind | None = None) -> list[tuple[Any, ...]]:
        """Return phase, count and more of each notice."""
        found: Mapping[Kind, Sequence[Matter]] = {kind or matters[0].kind: matters}
        # Why packed: what the store does not keep must not decide.
        self.outbox = read_outbox(write_outbox(self.outbox), 0)
        collect(self.outbox, found, lambda _, one: self.groups.get(one, one), at_ms, WANTED)
        notices = []
        while (notice := due_notice(self.outbox, at_ms)) is not None:
            notices.append((notice.phase, notice.matter.count, notice.more))
            settle(self.outbox, notice.id, "", at_ms)
        return notices


@pytest.fixture
def reports() -> Reports:
    return Reports()


def test_a_matter_gathers_then_each_update_has_what_is_new(reports: Reports) -> None:
    assert reports.look(0, new_cause(1)) == []
    assert reports.look(9, new_cause(900)) == []
    assert reports.look(10, new_cause(1_000)) == [(Phase.BEGUN, 1_000, 1_000)]
    assert reports.look(109, new_cause(9_000)) == []
    assert reports.look(110, new_cause(10_000)) == [(Phase.UPDATED, 10_000, 9_000)]
    assert reports.look(999, new_cause(10_000)) == []


def test_what_was_there_at_the_first_look_is_not_reported_as_exhausted(reports: Reports) -> None:
    reports.outbox.has_looked = False
    assert reports.look(0, new_cause(5, kind=Kind.EXHAUSTED)) == []
    assert reports.look(50, new_cause(5, kind=Kind.EXHAUSTED)) == []
    found = reports.look(
        60, new_cause(7, kind=Kind.EXHAUSTED), new_cause(1, "b", kind=Kind.EXHAUSTED)
    )
    assert found == [(Phase.UPDATED, 7, 2)]
    assert reports.look(70, new_cause(1, "b", kind=Kind.EXHAUSTED))[-1] == (Phase.BEGUN, 1, 1)


def test_fewer_exhausted_then_more_are_new_again_and_none_is_the_end(reports: Reports) -> None:
    reports.look(0, new_cause(5, kind=Kind.EXHAUSTED))
    reports.look(10, new_cause(5, kind=Kind.EXHAUSTED))
    assert reports.look(200, new_cause(2, kind=Kind.EXHAUSTED)) == []
    assert reports.look(201, new_cause(3, kind=Kind.EXHAUSTED)) == [(Phase.UPDATED, 3, 1)]
    assert reports.look(202, kind=Kind.EXHAUSTED) == [(Phase.ENDED, 0, 0)]
    assert reports.outbox.known == {}


def test_a_cause_that_is_no_longer_new_has_no_end(reports: Reports) -> None:
    reports.look(0, new_cause())
    reports.look(10, new_cause())
    assert reports.look(20, kind=Kind.NEW_CAUSE) == []
    assert reports.outbox.known == {}


def test_groups_that_became_one_are_not_reported_again(reports: Reports) -> None:
    reports.look(0, new_cause(2, "a: x"), new_cause(3, "a: y"))
    reports.look(10, new_cause(2, "a: x"), new_cause(3, "a: y"))
    reports.groups = {"a: x": "a: *", "a: y": "a: *"}
    assert reports.look(20, new_cause(5, "a: *")) == []
    assert reports.look(200, new_cause(6, "a: *")) == [(Phase.UPDATED, 6, 1)]


def test_while_it_is_quiet_nothing_is_said_and_only_what_was_said_ends(reports: Reports) -> None:
    quiet = new_cause(5, is_quiet=True, kind=Kind.NOT_RECOVERING)
    loud = new_cause(5, kind=Kind.NOT_RECOVERING)
    assert reports.look(0, quiet) == []
    assert reports.outbox.known == {}
    reports.look(0, loud)
    assert reports.look(5, quiet) == []
    assert reports.outbox.known == {}
    reports.look(6, loud)
    assert reports.look(16, loud) == [(Phase.BEGUN, 5, 5)]
    assert reports.look(500, quiet) == reports.look(500, loud) == []
    assert reports.look(501, kind=Kind.NOT_RECOVERING) == [(Phase.ENDED, 0, 0)]


def test_what_finds_no_room_is_reported_later_and_too_many_matters_are_counted(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "PENDING_MAX", 2)
    monkeypatch.setattr(outboxes, "KNOWN_MAX", 4)
    matters = [new_cause(1, f"a: {one}") for one in "uvwxyz"]
    for _ in range(3):
        reports.look(0, *matters)
    assert (len(reports.outbox.known), reports.outbox.dropped) == (4, 2)
    assert len(reports.look(10, *matters)) == 2
    assert len(reports.look(11, *matters)) == 2
    assert reports.look(12, *matters) == []


def test_a_notice_stays_until_it_is_delivered_and_pauses_grow(reports: Reports) -> None:
    outbox = reports.outbox
    add_test(outbox, "console:ann", 0)
    notice = due_notice(outbox, 0)
    assert notice is not None
    settle(outbox, notice.id, "503", 0)
    assert due_notice(outbox, FIRST_PAUSE_MS - 1) is None
    assert (again := due_notice(outbox, FIRST_PAUSE_MS)) is not None
    assert again.id == notice.id
    settle(outbox, notice.id, "503", FIRST_PAUSE_MS, 60_000)
    assert due_notice(outbox, FIRST_PAUSE_MS + 59_999) is None
    settle(outbox, notice.id, "503", 70_000, 10**9)
    assert due_notice(outbox, 70_000 + LONGEST_PAUSE_MS) is not None
    assert [(one.problem, one.attempts) for one in outbox.log] == [("503", 3)]
    assert settle(outbox, notice.id, "503", GIVE_UP_MS - 1)
    assert (len(outbox.pending), outbox.dropped) == (1, 0)
    assert settle(outbox, notice.id, "503", GIVE_UP_MS)
    assert (outbox.pending, outbox.dropped) == ([], 1)
    assert not settle(outbox, notice.id, "", GIVE_UP_MS)


def test_a_notice_is_not_changed_while_it_waits(reports: Reports) -> None:
    outbox = reports.outbox
    for at_ms, count in ((0, 1), (10, 1), (500, 7)):
        collect(outbox, {Kind.NEW_CAUSE: [new_cause(count)]}, lambda _, one: one, at_ms, WANTED)
    assert [one.matter.count for one in outbox.pending] == [1]
    settle(outbox, outbox.pending[0].id, "", 500)
    collect(outbox, {Kind.NEW_CAUSE: [new_cause(7)]}, lambda _, one: one, 500, WANTED)
    assert [(one.matter.count, one.more) for one in outbox.pending] == [(7, 6)]


def test_one_process_holds_an_outbox_until_it_gave_no_sign_for_too_long() -> None:
    outbox = WebhookOutbox(stream="s", begun_ms=0)
    assert holds(outbox, "", 0)
    assert outbox.holder == ""
    assert holds(outbox, "one", 0)
    assert not holds(outbox, "two", LEASE_MS - 1)
    # A sign of life at half the time; before that nothing is written.
    assert holds(outbox, "one", LEASE_MS // 2)
    assert outbox.held_until_ms == LEASE_MS
    assert holds(outbox, "one", LEASE_MS // 2 + 1)
    assert not holds(outbox, "two", LEASE_MS + LEASE_MS // 2)
    assert holds(outbox, "two", LEASE_MS + LEASE_MS // 2 + 1)
    assert not holds(outbox, "one", LEASE_MS + LEASE_MS // 2 + 2)


def test_what_a_newer_version_wrote_is_kept_for_it_and_not_sent(reports: Reports) -> None:
    assert reports.look(10, new_cause(3)) == []
    assert reports.look(20, new_cause(3)) == [(Phase.BEGUN, 3, 3)]
    add_test(reports.outbox, "ann", 20)
    written = msgspec.to_builtins(reports.outbox)
    [plain] = written["pending"]
    newer = [
        plain | {"id": "s-8", "urgency": 2},
        plain | {"id": "s-9", "matter": plain["matter"] | {"kind": "drift"}},
        plain | {"id": "s-7", "matter": plain["matter"] | {"trace": "t"}},
        plain | {"id": "s-6", "phase": "muted"},
    ]
    known = {"drift\nqueue://a": {"matter": {"kind": "drift"}, "reported": 2}}
    written["pending"] = [*newer, plain | {"urgency": 0}]
    written["known"] |= known
    written["beyond"]["drift"] = 4
    written["region"] = "eu"
    reports.outbox = read_outbox(msgspec.json.encode(written), 0)
    assert reports.look(30, new_cause(3)) == [(Phase.BEGUN, 1, 1)]
    assert reports.look(200, new_cause(5)) == [(Phase.UPDATED, 5, 2)]
    after = msgspec.json.decode(write_outbox(reports.outbox))
    assert after["pending"] == newer
    assert known.items() <= after["known"].items()
    assert (after["beyond"]["drift"], after["region"]) == (4, "eu")
    body = write_outbox(reports.outbox)
    assert write_outbox(read_outbox(body, 0)) == body
    collect(reports.outbox, {}, lambda _, one: one, 20 + GIVE_UP_MS, WANTED)
    assert reports.outbox.dropped == 4
    assert "s-8" not in write_outbox(reports.outbox).decode()


def test_a_notice_of_a_newer_version_without_a_date_stays(reports: Reports) -> None:
    written = msgspec.to_builtins(reports.outbox) | {"pending": [{"id": "s-1", "since_ms": 0}]}
    outbox = read_outbox(msgspec.json.encode(written), 0)
    collect(outbox, {}, lambda _, one: one, GIVE_UP_MS, WANTED)
    assert msgspec.json.decode(write_outbox(outbox))["pending"] == written["pending"]
    assert outbox.dropped == 0


def test_what_a_clock_that_was_ahead_put_off_is_due(
    reports: Reports,
) -> None:
    ahead_ms = 1_000
    assert reports.look(ahead_ms, new_cause(1)) == []
    assert reports.look(0, new_cause(1)) == [(Phase.BEGUN, 1, 1)]
    assert add_test(reports.outbox, "ann", ahead_ms)
    [notice] = reports.outbox.pending
    settle(reports.outbox, notice.id, "it fails", ahead_ms)
    assert due_notice(reports.outbox, 0) == notice
    assert due_notice(reports.outbox, ahead_ms) is None


def test_long_names_take_the_room_of_more_matters(reports: Reports) -> None:
    """A stranger chooses the names; the whole outbox is written with each change."""
    name = 4_000 * "x"
    matters = [new_cause(1, destination=f"queue://{number}{name}") for number in range(200)]
    for at_ms in (0, 10):
        reports.look(at_ms, *matters)
    outbox = reports.outbox
    assert 50 < len(outbox.known) < 70
    assert outbox.dropped == 200 - len(outbox.known)
    assert len(write_outbox(outbox)) < 3 << 20


def test_a_kind_that_a_subscription_reports_no_longer_ends_and_leaves_its_room(
    reports: Reports,
) -> None:
    for at_ms in (0, 10):
        reports.look(at_ms, new_cause(5, kind=Kind.EXHAUSTED))
    outbox, fewer = reports.outbox, msgspec.structs.replace(WANTED, kinds=frozenset({Kind.OLDEST}))
    collect(outbox, {Kind.OLDEST: []}, lambda _, one: one, 20, fewer)
    assert [one.phase for one in outbox.pending] == [Phase.ENDED]
    assert outbox.known == {}
