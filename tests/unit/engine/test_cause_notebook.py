"""Notes and deaths, whichever comes first: joined once, bounded in time and in bytes."""

from __future__ import annotations

import json

import pytest

from amqsidecar.engine.cause_notebook import CauseNotebook, Death
from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.cause_note import (
    NOTE_BYTES_MAX,
    NOTES_KEPT_BYTES,
    NOTES_KEPT_S,
    CauseNote,
    Never,
    parse_cause_note,
)


def death(attempt: int = 0, row_id: int = 1) -> Death:
    return Death(
        row_id=row_id,
        redelivery_id=f"u-{row_id}",
        at_ms=1_000,
        attempt=attempt,
        destination="queue://orders",
        cause_group="(no reason given)",
    )


def note(text: str = "why", message_id: str = "m", count: int | None = None) -> CauseNote:
    return CauseNote(message_id=message_id, text=text, redelivery_count=count)


def test_the_last_note_before_a_death_is_the_deaths() -> None:
    book = CauseNotebook()
    book.add(note("first"), 0)
    book.add(note("second"), 1)
    assert book.find("ID:m", 0, 2) == note("second")
    assert book.find("other", 0, 2) is None


def test_a_note_after_its_death_is_joined_once_however_often_it_comes() -> None:
    book = CauseNotebook()
    book.meet("ID:m", death(), is_explained=False, now_s=0)
    for _ in range(3):
        book.add(note(count=0), 1)
    [join] = book.take_late()
    assert (join.death, join.note.text) == (death(), "why")
    book.add(note(count=0), 2)
    assert not book.has_late
    assert book.find("m", 0, 2) is None


def test_a_note_of_one_redelivery_is_no_other_deaths() -> None:
    book = CauseNotebook()
    book.add(note(count=1), 0)
    assert book.find("m", 0, 0) is None
    assert book.find("m", 1, 0) == note(count=1)


def test_a_death_that_is_judged_again_after_an_undone_cycle_finds_its_note_again() -> None:
    book = CauseNotebook()
    book.add(note(count=0), 0)
    assert book.find("m", 0, 0) is not None
    book.meet("m", death(), is_explained=True, now_s=0)
    book.add(note(count=0), 1)
    assert book.find("m", 0, 1) is not None
    book.meet("m", death(row_id=2), is_explained=True, now_s=1)
    assert not book.has_late


def test_a_late_note_is_of_the_row_that_counts() -> None:
    book = CauseNotebook()
    book.meet("m", death(row_id=1), is_explained=False, now_s=0)
    book.meet("m", death(row_id=2), is_explained=False, now_s=0)
    book.add(note(), 1)
    assert [join.death.row_id for join in book.take_late()] == [2]


def test_notes_that_wait_are_handed_over_once() -> None:
    """One of a death that is here is not, unless it may be of a later death, too."""
    book = CauseNotebook()
    for name in ("early", "late", "other"):
        book.add(note(message_id=name, count=0), 0)
    book.add(note(message_id="any"), 0)
    for name in ("early", "any"):
        book.meet(name, death(), is_explained=True, now_s=1)
    assert [one.message_id for one in book.unshared(1)] == ["late", "other", "any"]
    book.forget_unshared()
    assert book.unshared(2) == []


def test_a_note_that_another_instance_handed_over_is_joined_and_not_handed_on() -> None:
    book = CauseNotebook()
    book.meet("m", death(), is_explained=False, now_s=0)
    for _ in range(2):
        book.add(note(count=0), 1, is_shared=True)
    book.add(note(message_id="later"), 1, is_shared=True)
    assert [join.death for join in book.take_late()] == [death()]
    assert book.find("later", 0, 2) == note(message_id="later")
    assert book.unshared(2) == []


@pytest.mark.parametrize("comes_first", ["note", "death"])
def test_neither_waits_for_ever(comes_first: str) -> None:
    book = CauseNotebook()
    if comes_first == "note":
        book.add(note(), 0)
        assert book.find("m", 0, NOTES_KEPT_S + 1) is None
    else:
        book.meet("m", death(), is_explained=False, now_s=0)
        book.add(note(), NOTES_KEPT_S + 1)
        assert not book.has_late


def test_a_flood_of_forged_notes_takes_bounded_memory() -> None:
    book = CauseNotebook()
    text = "x" * 8_000
    for number in range(3_000):
        book.add(note(text, f"forged-{number}"), 0)
    assert NOTES_KEPT_BYTES // 2 < book.size_bytes <= NOTES_KEPT_BYTES
    assert book.find("forged-2999", 0, 0) is not None
    assert book.find("forged-0", 0, 0) is None


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
        '{"message_id": 7}',
        '{"message_id": "m", "verdict": {"action": "explode"}}',
        '{"message_id": "m", "verdict": {"action": "retry_after", "delay_ms": -1}}',
        '{"message_id": "m", "verdict": {"action": "redirect", "destination": "queue://"}}',
        "[" * 50_000,
        '{"message_id": "m", "text": "' + "x" * NOTE_BYTES_MAX + '"}',
    ],
)
def test_what_is_no_note_is_refused(body: str) -> None:
    with pytest.raises(UndecodableMessage):
        parse_cause_note(body)
