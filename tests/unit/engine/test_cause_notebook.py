"""Notes and deaths, whichever comes first: joined once, bounded in time and in bytes."""

from __future__ import annotations

import json

import pytest

from amqsidecar.engine.cause_notebook import CauseNotebook, Death, MessageCopy, copy_at
from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.cause_note import (
    NOTE_BYTES_MAX,
    NOTES_KEPT_BYTES,
    NOTES_KEPT_S,
    CauseNote,
    Never,
    parse_cause_note,
)
from amqsidecar.model.destination import Destination, parse_destination, queue, topic

ORDERS = queue("orders")


def copy(attempt: int = 0, message_id: str = "m", origin: str = "queue://orders") -> MessageCopy:
    return copy_at(f"ID:{message_id}", origin, attempt)


def death(
    attempt: int = 0, row_id: int = 1, message_id: str = "m", origin: str = "queue://orders"
) -> Death:
    return Death(
        row_id=row_id,
        redelivery_id=f"u-{row_id}",
        at_ms=1_000,
        copy=copy(attempt, message_id, origin),
        destination=parse_destination(origin),
        cause_group="(no reason given)",
    )


def note(
    text: str = "why", message_id: str = "m", count: int | None = None, queue: str = "orders"
) -> CauseNote:
    queues = (queue,) if queue else ()
    return CauseNote(message_id=message_id, text=text, redelivery_count=count, queue=queues)


def alone(_origin: Destination) -> bool:
    return True


def copied(_origin: Destination) -> bool:
    return False


@pytest.mark.parametrize("place", ["orders", ""])
@pytest.mark.parametrize("is_early", [True, False])
def test_a_note_under_another_id_of_the_message_is_joined_with_its_death(
    place: str, *, is_early: bool
) -> None:
    book = CauseNotebook()
    other = note(message_id="other", queue=place)
    if is_early:
        book.add(other, 0, alone)
    book.learn_id(copy(), "ID:other", 1)
    book.assign(copy(), ORDERS, 1, alone)
    found = book.find(copy(), 1)
    assert (found is not None) == is_early
    book.meet(death(), is_explained=is_early, now_s=1)
    if is_early:
        assert [one.message_id for one in book.unshared(1)] in ([], ["m"])
        return
    book.add(other, 2, alone)
    [join] = book.take_late()
    assert (join.death, join.note.message_id, join.is_ambiguous) == (death(), "m", False)


def test_a_note_under_another_id_is_of_the_copy_in_its_queue_alone() -> None:
    book = CauseNotebook()
    book.add(note(message_id="other", queue="bills"), 0, alone)
    book.learn_id(copy(), "ID:other", 1)
    book.assign(copy(), ORDERS, 1, alone)
    assert book.find(copy(), 1) is None
    book.learn_id(copy(origin="queue://bills"), "ID:other", 1)
    assert book.find(copy(origin="queue://bills"), 1) is not None


def test_the_last_note_before_a_death_is_the_deaths() -> None:
    book = CauseNotebook()
    book.add(note("first"), 0, copied)
    book.add(note("second"), 1, copied)
    assert book.find(copy(), 2) == note("second")
    assert book.find(copy(message_id="other"), 2) is None


def test_a_note_after_its_death_is_joined_once_however_often_it_comes() -> None:
    book = CauseNotebook()
    book.meet(death(), is_explained=False, now_s=0)
    for _ in range(3):
        book.add(note(count=0), 1, copied)
    [join] = book.take_late()
    assert (join.death, join.note.text, join.is_ambiguous) == (death(), "why", False)
    book.add(note(count=0), 2, copied)
    assert not book.has_late
    assert book.find(copy(), 2) is None


def test_a_note_of_one_redelivery_is_no_other_deaths() -> None:
    book = CauseNotebook()
    book.add(note(count=1), 0, copied)
    assert book.find(copy(0), 0) is None
    assert book.find(copy(1), 0) == note(count=1)


def test_a_death_that_is_judged_again_after_an_undone_cycle_finds_its_note_again() -> None:
    book = CauseNotebook()
    book.add(note(count=0), 0, copied)
    assert book.find(copy(), 0) is not None
    book.meet(death(), is_explained=True, now_s=0)
    book.add(note(count=0), 1, copied)
    assert book.find(copy(), 1) is not None
    book.meet(death(row_id=2), is_explained=True, now_s=1)
    assert not book.has_late


def test_a_late_note_is_of_the_row_that_counts() -> None:
    book = CauseNotebook()
    book.meet(death(row_id=1), is_explained=False, now_s=0)
    book.meet(death(row_id=2), is_explained=False, now_s=0)
    book.add(note(), 1, copied)
    assert [join.death.row_id for join in book.take_late()] == [2]


@pytest.mark.parametrize(
    ("said", "died_at"),
    [
        ("orders", "queue://orders"),
        ("queue://orders", "queue://orders"),
        ("jms.queue.orders", "queue://orders"),
        ("/queue/orders", "queue://orders"),
        ("prices::app.s", "topic://prices::app.s"),
        ("app.s", "topic://prices::app.s"),
        ("Consumer.a.VirtualTopic.t", "queue://Consumer.a.VirtualTopic.t"),
        ("VirtualTopic.t::Consumer.a.VirtualTopic.t", "queue://Consumer.a.VirtualTopic.t"),
        ("dead::dead", "queue://dead"),
    ],
)
def test_names_of_one_queue_are_equal_however_each_side_writes_them(
    said: str, died_at: str
) -> None:
    book = CauseNotebook()
    read = parse_cause_note(json.dumps({"message_id": "ID:m", "queue": said}))
    book.add(read, 0, copied)
    assert book.find(copy(origin=died_at), 0) == read
    book.meet(death(origin=died_at), is_explained=False, now_s=0)
    book.add(read, 0, copied)
    assert [join.is_ambiguous for join in book.take_late()] == [False]


@pytest.mark.parametrize("comes_first", ["note", "death"])
def test_a_note_is_of_no_copy_in_another_queue(comes_first: str) -> None:
    """Nor is it shown there: the consumer of the other queue said nothing."""
    book, ours, theirs = CauseNotebook(), "topic://t::b.s", "topic://t::a.s"
    if comes_first == "note":
        book.add(note(queue="a.s"), 0, alone)
    book.assign(copy(origin=ours), topic("t::b.s"), 0, alone)
    assert book.find(copy(origin=ours), 0) is None
    assert book.find_ambiguous(copy(origin=ours), 0) is None
    book.meet(death(origin=ours), is_explained=False, now_s=0)
    if comes_first == "death":
        book.add(note(queue="a.s"), 0, alone)
    assert not book.has_late
    assert book.find(copy(origin=theirs), 0) == note(queue="a.s")


def test_of_several_names_the_one_that_fits_counts() -> None:
    several = CauseNote(message_id="m", redelivery_count=0, queue=("c.s", "s:global"))
    book = CauseNotebook()
    book.add(several, 0, copied)
    assert book.find(copy(origin="topic://t::s:global"), 0) == several
    assert book.unshared(0) == [several]
    book.meet(death(origin="topic://t::s:global"), is_explained=True, now_s=0)
    assert book.unshared(0) == []


@pytest.mark.parametrize("comes_first", ["note", "death"])
def test_a_note_without_a_queue_counts_where_a_queue_has_no_copies(comes_first: str) -> None:
    book, old = CauseNotebook(), note(queue="")
    if comes_first == "note":
        book.add(old, 0, alone)
        book.assign(copy(), ORDERS, 0, alone)
        assert book.find(copy(), 0) == old
    else:
        book.meet(death(), is_explained=False, now_s=0)
        book.add(old, 0, alone)
        assert [join.is_ambiguous for join in book.take_late()] == [False]


@pytest.mark.parametrize(
    ("comes_first", "why"),
    [("note", "copied"), ("death", "copied"), ("death", "second death")],
)
def test_a_note_without_a_queue_is_shown_once_with_each_death_and_decides_nothing(
    comes_first: str, why: str
) -> None:
    book, old = CauseNotebook(), note(queue="", count=0)
    one = copied if why == "copied" else alone
    if why == "second death":
        book.meet(death(0, 7, origin="queue://audit"), is_explained=True, now_s=0)
    if comes_first == "note":
        book.add(old, 0, one)
    book.assign(copy(), ORDERS, 0, one)
    assert book.find(copy(), 0) is None
    shown = book.find_ambiguous(copy(), 0)
    assert shown == (old if comes_first == "note" else None)
    book.meet(death(), is_explained=False, now_s=0)
    late = []
    for _ in range(3):
        book.add(old, 1, one)
        late += book.take_late()
    assert [join.is_ambiguous for join in late] == ([] if comes_first == "note" else [True])
    book.add(note("certain", count=0), 2, one)
    assert [(join.note.text, join.is_ambiguous) for join in book.take_late()] == [
        ("certain", False)
    ]


def test_where_the_queue_of_a_death_is_not_known_every_note_is_ambiguous() -> None:
    book, origin = CauseNotebook(), "topic://prices"
    book.add(note(queue="a.s"), 0, alone)
    book.assign(copy(origin=origin), topic("prices"), 0, alone)
    assert book.find(copy(origin=origin), 0) is None
    assert book.find_ambiguous(copy(origin=origin), 0) == note(queue="a.s")


def test_notes_that_wait_are_handed_over_once() -> None:
    """One of a death that is here is not, unless it may be of a later death, too."""
    book = CauseNotebook()
    for name in ("early", "late", "other"):
        book.add(note(message_id=name, count=0), 0, copied)
    book.add(note(message_id="any"), 0, copied)
    for name in ("early", "any"):
        book.meet(death(message_id=name), is_explained=True, now_s=1)
    assert [one.message_id for one in book.unshared(1)] == ["late", "other", "any"]
    book.forget_unshared()
    assert book.unshared(2) == []


def test_a_note_that_another_instance_handed_over_is_joined_and_not_handed_on() -> None:
    book = CauseNotebook()
    book.meet(death(), is_explained=False, now_s=0)
    for _ in range(2):
        book.add(note(count=0), 1, copied, is_shared=True)
    book.add(note(message_id="later"), 1, copied, is_shared=True)
    assert [join.death for join in book.take_late()] == [death()]
    assert book.find(copy(message_id="later"), 2) == note(message_id="later")
    assert book.unshared(2) == []


@pytest.mark.parametrize("comes_first", ["note", "death"])
def test_neither_waits_for_ever(comes_first: str) -> None:
    book = CauseNotebook()
    if comes_first == "note":
        book.add(note(), 0, copied)
        assert book.find(copy(), NOTES_KEPT_S + 1) is None
    else:
        book.meet(death(), is_explained=False, now_s=0)
        book.add(note(), NOTES_KEPT_S + 1, copied)
        assert not book.has_late


@pytest.mark.parametrize("varies", ["message id", "queue"])
def test_a_flood_of_forged_notes_takes_bounded_memory(varies: str) -> None:
    book, text = CauseNotebook(), "x" * 8_000

    for number in range(3_000):
        message_id, queue = (f"m-{number}", "q") if varies == "message id" else ("m", f"q-{number}")
        book.add(note(text, message_id, queue=queue), 0, copied)
    assert NOTES_KEPT_BYTES // 2 < book.size_bytes <= NOTES_KEPT_BYTES
    for number, is_kept in ((2_999, True), (0, False)):
        message_id, queue = (f"m-{number}", "q") if varies == "message id" else ("m", f"q-{number}")
        found = book.find(copy(0, message_id, f"queue://{queue}"), 0)
        assert (found is not None) is is_kept


def test_a_note_is_read_with_its_parts_bounded() -> None:
    body = {
        "message_id": "ID:a-1",
        "exception": "a.B" * 200,
        "text": "t" * 20_000,
        "root_exception": "c.D",
        "root_text": "root",
        "verdict": {"action": "never"},
        "of a later version": 1,
    }
    read = parse_cause_note(json.dumps(body))
    assert read.message_id == "a-1"
    assert (len(read.exception), read.verdict) == (256, Never())
    assert read.cause.endswith("\nCaused by: c.D: root")
    assert len(read.cause.encode()) < 9_000


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"message_id": ""}',
        '{"message_id": "ID:"}',
        '{"message_id": 7}',
        '{"message_id": "m", "queue": 7}',
        '{"message_id": "m", "queue": ["a", "b", "c", "d", "e"]}',
        '{"message_id": "m", "verdict": {"action": "explode"}}',
        '{"message_id": "m", "verdict": {"action": "retry_after", "delay_ms": -1}}',
        '{"message_id": "m", "verdict": {"action": "redirect", "destination": "queue://"}}',
        '{"message_id": "m", "verdict": {"action": "wait_for", "event": ""}}',
        '{"message_id": "m", "verdict": {"action": "wait_for", "event": " a"}}',
        '{"message_id": "m", "verdict": {"action": "wait_for", "event": ".."}}',
        '{"message_id": "m", "verdict": {"action": "wait_for", "event": "a\\u0007"}}',
        '{"message_id": "m", "verdict": {"action": "wait_for", "event": "a", "longest_ms": -1}}',
        "[" * 50_000,
        '{"message_id": "m", "text": "' + "x" * NOTE_BYTES_MAX + '"}',
    ],
)
def test_what_is_no_note_is_refused(body: str) -> None:
    with pytest.raises(UndecodableMessage):
        parse_cause_note(body)
