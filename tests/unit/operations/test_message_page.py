"""One message: its life with what became of each re-send, and editing it in a real store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from amqsidecar.brokers.amqp_artemis.look import ENCODING
from amqsidecar.clock import SystemClock
from amqsidecar.errors import EditRefused
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.view import view_message
from amqsidecar.model.event import Received, Resent, Returned
from amqsidecar.model.message import MessageEdit, PropertyEdit
from amqsidecar.model.operation import Action, OperationState, OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.message import (
    EditMessage,
    MessagePage,
    edit_and_retry,
    message_page,
    original_message,
    try_edit,
)
from amqsidecar.stores.sqlite.store import SqliteStore
from support.schedule_rows import taken_row

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
    page = message_page(store, store, str(reference), "uid", at_ms, view_message)
    assert page is not None
    return page


def resent(at_ms: int, count: int) -> Resent:
    return Resent(
        at_ms=at_ms, redelivery_id="r", destination=PLACE, redelivery_count=count, lateness_ms=0
    )


def test_each_re_send_is_told_with_what_became_of_it(store: SqliteStore) -> None:
    died = {"redelivery_id": "r", "source": "queue://DLQ", "origin": PLACE}
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
        store, store, row_id, EDIT, edit_message, now_ms=NOW_MS, actor="cli:anna", reason="T-1"
    )
    assert (operation.action, operation.state) == (Action.RETRY, OperationState.RUNNING)
    assert operation.selection.rows == RowFilter(ids=(row_id,))
    assert (operation.reason, operation.expected) == ("T-1", 1)
    page = page_of(store, row_id)
    assert page.view is not None
    assert page.view.body.text == "new"
    [original] = page.originals
    assert (original.view.body.text, original.actor) == ("old", "cli:anna")
    assert original_message(store, "r", original.number) == BYTES
    assert original_message(store, "r", 1) is None
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
        edit_and_retry(store, store, row_id, change, edit_message, now_ms=NOW_MS, actor="a")
    assert store.message(row_id) == BYTES
    assert store.operations(1) == []


def test_of_two_edits_at_once_the_second_is_refused(store: SqliteStore) -> None:
    """Another's edit gets in between, of the same length: it must not be lost."""
    row_id = keep(store)

    def change(text: str, edit: EditMessage) -> None:
        asked = MessageEdit(text=text)
        edit_and_retry(store, store, row_id, asked, edit, now_ms=NOW_MS, actor=text)

    def slow(encoding: str, message: bytes, asked: MessageEdit) -> bytes:
        change("abc", edit_message)
        return edit_message(encoding, message, asked)

    with pytest.raises(ActionRefused, match="changed by another action"):
        change("new", slow)
    page = page_of(store, row_id)
    assert page.view is not None
    assert page.view.body.text == "abc"
    assert [one.actor for one in page.originals] == ["abc"]


def test_what_an_edit_refuses_changes_nothing(store: SqliteStore) -> None:
    row_id = keep(store)
    locked = MessageEdit(remove_properties=("amqsidecarRedeliveryId",))
    with pytest.raises(EditRefused):
        edit_and_retry(store, store, row_id, locked, edit_message, now_ms=NOW_MS, actor="a")
    assert (store.message(row_id), store.originals("r")) == (BYTES, [])


def test_what_has_left_can_t_be_edited(store: SqliteStore) -> None:
    with pytest.raises(ActionRefused, match="waits no longer"):
        edit_and_retry(store, store, 7, EDIT, edit_message, now_ms=NOW_MS, actor="a")
    assert message_page(store, store, "7", "uid", NOW_MS, view_message) is None


def test_a_message_that_waits_no_longer_has_its_life(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.record([resent(NOW_MS - 10, 1)])
    page = page_of(store)
    assert (page.row, page.view, page.edit_lock) == (None, None, "it waits no longer")
    assert [one.kind for one in page.life] == ["resent"]
