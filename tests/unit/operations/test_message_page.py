"""One message: its life with what became of each re-send, and editing it in a real store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from proton import Message

from amqsidecar.clock import SystemClock
from amqsidecar.errors import EditRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.view import view_message
from amqsidecar.model import row_changes
from amqsidecar.model.event import Received, Resent, Returned
from amqsidecar.model.message import MessageEdit, PropertyEdit
from amqsidecar.model.operation import Action, OperationState, OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import Recall, RowFilter, RowState
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.fetch import fetch, is_here, not_here_yet, put_back
from amqsidecar.operations.message import (
    EditMessage,
    MessagePage,
    edit_and_retry,
    message_page,
    original_message,
    try_edit,
)
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import taken_row

NOW_MS = 1_700_000_000_000
PLACE = "queue://orders"
BYTES = bytes(Message(body="old", properties={"own": "x"}).encode())
EDIT = MessageEdit(text="new", set_properties=(PropertyEdit(name="own", value="y"),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock())
    store.open()
    yield store
    store.close()


def keep(store: SqliteStore, *events: Any, **fields: Any) -> int:
    """Keep a row of the message `r`, and what happened to it; returns its number."""
    row_id = store.allocate_ids(1)
    values: dict[str, Any] = {"redelivery_id": "r", "destination": PLACE, "message": BYTES}
    row = taken_row(row_id, **{**values, "encoding": ENCODING, "due_at_ms": NOW_MS, **fields})
    with store.transaction() as tx:
        tx.record_cycle(1, [row], [], [])
        tx.finish_cycle(1)
        tx.record(list(events))
    return row_id


def page_of(store: SqliteStore, reference: object = "r", at_ms: int = NOW_MS) -> MessagePage:
    page = message_page(store, str(reference), "uid", at_ms, view_message)
    assert page is not None
    return page


def resent(at_ms: int, count: int) -> Resent:
    return Resent(
        at_ms=at_ms, redelivery_id="r", destination=PLACE, redelivery_count=count, lateness_ms=0
    )


class Died(TypedDict):
    redelivery_id: str
    source: str
    origin: str


def test_each_re_send_is_shown_with_what_became_of_it(store: SqliteStore) -> None:
    died: Died = {"redelivery_id": "r", "source": "queue://DLQ", "origin": PLACE}
    keep(
        store,
        Received(at_ms=NOW_MS - 9_000_000, cause="a.B: order 7", **died),
        resent(NOW_MS - 8_500_000, 1),
        resent(NOW_MS - 8_000_000, 1),
        Returned(at_ms=NOW_MS - 7_999_000, expired=True, redelivery_count=1, **died),
        resent(NOW_MS - 1_000_000, 2),
        resent(NOW_MS - 1_000, 3),
    )
    empty_ms = NOW_MS - 900_000
    store.add_observations(
        [
            Observation(
                destination=PLACE,
                at_ms=empty_ms,
                depth=0,
                acknowledged=9,
                removed=0,
                steady_since_ms=NOW_MS - 2_000_000,
                moved_at_ms=empty_ms,
                empty_at_ms=empty_ms,
            )
        ]
    )
    life = page_of(store).life
    assert [one.cause_group for one in life] == [
        "a.B: order *",
        None,
        None,
        "(expired)",
        None,
        None,
    ]
    kinds = [None if one.outcome is None else one.outcome.kind for one in life]
    assert kinds == [
        None,
        OutcomeKind.UNKNOWN,
        OutcomeKind.CAME_BACK,
        None,
        OutcomeKind.CONSUMED,
        OutcomeKind.RESENT,
    ]
    assert life[2].outcome is not None
    assert life[2].outcome.evidence == "died again 1.0 s after it was re-sent"


def test_an_edited_message_is_retried_and_its_original_is_kept(store: SqliteStore) -> None:
    row_id = keep(store)
    looks = try_edit(store, row_id, EDIT, edit_message, view_message)
    assert (looks.body.text, store.message(row_id)) == ("new", BYTES)

    operation = edit_and_retry(
        store, row_id, EDIT, edit_message, now_ms=NOW_MS, actor="cli:anna", reason="T-1"
    )
    assert (operation.action, operation.state) == (Action.RETRY, OperationState.RUNNING)
    assert operation.selection.rows == RowFilter(ids=(row_id,))
    assert (operation.reason, operation.expected) == ("T-1", 1)
    page = page_of(store, row_id)
    assert page.view is not None
    assert page.view.body.text == "new"
    [original] = page.originals
    assert (original.view.body.text, original.actor) == ("old", "cli:anna")
    assert original_message(store, "r", "uid", original.number) == BYTES
    assert original_message(store, "r", "uid", 1) is None
    assert [one.kind for one in page.life] == ["edited"]


@pytest.mark.parametrize(
    ("fields", "change", "words"),
    [
        ({"is_final": True}, EDIT, "it goes to its final dead-letter queue"),
        ({}, MessageEdit(text="old"), "the edit changes nothing"),
    ],
)
def test_what_can_t_be_edited_is_refused(
    store: SqliteStore, fields: dict[str, Any], change: MessageEdit, words: str
) -> None:
    row_id = keep(store, **fields)
    with pytest.raises(ActionRefused, match=words):
        edit_and_retry(store, row_id, change, edit_message, now_ms=NOW_MS, actor="a")
    assert store.message(row_id) == BYTES
    assert store.operations(1) == []


def test_a_message_in_its_final_queue_has_its_row_and_says_how_to_edit_it(
    store: SqliteStore,
) -> None:
    row_id = keep(store, **LYING)
    page = page_of(store, row_id)
    assert page.row is not None
    assert (page.row.id, page.row.goes_to) == (row_id, "queue://DLQ.exhausted")
    assert page.view is None
    said = "it lies in queue://DLQ.exhausted, from where an edit takes it back first"
    assert page.edit_lock == said


def test_of_two_edits_at_once_the_second_is_refused(store: SqliteStore) -> None:
    """Another's edit gets in between, of the same length: it must not be lost."""
    row_id = keep(store)

    def change(text: str, edit: EditMessage) -> None:
        asked = MessageEdit(text=text)
        edit_and_retry(store, row_id, asked, edit, now_ms=NOW_MS, actor=text)

    def slow(encoding: str, message: bytes, asked: MessageEdit) -> bytes:
        change("abc", edit_message)
        return edit_message(encoding, message, asked)

    with pytest.raises(ActionRefused, match="changed by another action"):
        change("new", slow)
    page = page_of(store, row_id)
    assert page.view is not None
    assert page.view.body.text == "abc"
    assert [one.actor for one in page.originals] == ["abc"]


def test_an_edit_after_one_that_the_person_has_not_seen_is_refused(store: SqliteStore) -> None:
    """Both began before any edit; the second would undo the first's text."""
    row_id = keep(store)
    first, second = MessageEdit(text="first"), MessageEdit(text="second")
    edit_and_retry(store, row_id, first, edit_message, now_ms=NOW_MS, actor="a", edits=0)
    with pytest.raises(ActionRefused, match="was edited by another person"):
        edit_and_retry(store, row_id, second, edit_message, now_ms=NOW_MS, actor="b", edits=0)
    edit_and_retry(store, row_id, second, edit_message, now_ms=NOW_MS, actor="b", edits=1)
    assert [one.actor for one in store.originals("r")] == ["a", "b"]


def test_an_edit_keeps_what_would_go_back_to_its_final_queue(store: SqliteStore) -> None:
    """It came out beside chosen messages; put back before its retry, it would not be sent."""
    beside = {"state": RowState.EXHAUSTED, "recall": Recall.RETURN, "final_queue": FINAL}
    row_id = keep(store, **beside)
    wrong = MessageEdit(remove_properties=("nothing",))
    with pytest.raises(EditRefused):
        edit_and_retry(store, row_id, wrong, edit_message, now_ms=NOW_MS, actor="a")
    assert [row.id for row in store.recalled_by_due(Recall.RETURN, 9)] == [row_id]
    edit_and_retry(store, row_id, EDIT, edit_message, now_ms=NOW_MS, actor="a")
    assert store.recalled_by_due(Recall.RETURN, 9) == []
    [row] = store.list_rows(RowFilter(ids=(row_id,)), 1)
    assert (row.state, row.recall) == (RowState.EXHAUSTED, Recall.NONE)


FINAL = "queue://DLQ.exhausted"
LYING: dict[str, Any] = {"state": RowState.EXHAUSTED, "is_final": True, "final_queue": FINAL}


def test_a_fetched_message_is_awaited_and_given_back(store: SqliteStore) -> None:
    row_id = keep(store, **LYING)
    fetch(store, row_id, NOW_MS, "a")
    assert [row.id for row in store.recalled(Recall.KEEP, 9)] == [row_id]
    assert is_here(store, row_id) is False
    assert "still being taken out of queue://DLQ.exhausted" in str(not_here_yet(store, row_id))
    assert put_back(store, row_id, NOW_MS, "a", ".exhausted")
    assert store.recalled(Recall.KEEP, 9) == []
    assert not put_back(store, row_id, NOW_MS, "a", ".exhausted")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (row_changes.retry(NOW_MS, "b"), "changed by another action"),
        (row_changes.discard(NOW_MS, "b", 1), "changed by another action"),
        (row_changes.cancel(NOW_MS, "b", ".exhausted"), "changed by another action"),
        (row_changes.miss(NOW_MS, FINAL), "no longer in its final queue"),
    ],
)
def test_a_fetch_yields_to_what_others_do_to_the_message(
    store: SqliteStore, other: row_changes.RowChange, words: str
) -> None:
    row_id = keep(store, **LYING)
    fetch(store, row_id, NOW_MS, "a")
    assert store.change(RowFilter(ids=(row_id,)), other) == 1
    with pytest.raises(ActionRefused, match=words):
        is_here(store, row_id)


def test_what_an_edit_refuses_changes_nothing(store: SqliteStore) -> None:
    row_id = keep(store)
    locked = MessageEdit(remove_properties=("amqsidecarRedeliveryId",))
    with pytest.raises(EditRefused):
        edit_and_retry(store, row_id, locked, edit_message, now_ms=NOW_MS, actor="a")
    assert (store.message(row_id), store.originals("r")) == (BYTES, [])


def test_what_has_left_can_t_be_edited(store: SqliteStore) -> None:
    with pytest.raises(ActionRefused, match="waits no longer"):
        edit_and_retry(store, 7, EDIT, edit_message, now_ms=NOW_MS, actor="a")
    assert message_page(store, "7", "uid", NOW_MS, view_message) is None


def test_a_message_that_waits_no_longer_has_its_life(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.record([resent(NOW_MS - 10, 1)])
    page = page_of(store)
    assert (page.row, page.view, page.edit_lock) == (None, None, "it waits no longer")
    assert [one.kind for one in page.life] == ["resent"]
