"""An operation of a newer version on a shared schedule is left to that, and loses nothing here."""

from typing import Any

import msgspec
import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.ledger import MemberUpdate
from amqsidecar.model.operation import Operation, OperationState
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations import operate
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.progress import doing
from support.stores.newer import (
    NewerAction,
    NewerFilter,
    NewerPace,
    NewerSelection,
    NewerState,
    newer_operation,
)
from support.stores.postgres_schedule import EmptiedStore
from support.stores.rows import take_rows, taken_row
from support.stores.unsynced import UnsyncedStore

OwnStore = UnsyncedStore | EmptiedStore
NARROWED = NewerSelection(rows=NewerFilter(priority=9))
BEGUN_WITH = [
    ({"selection": NARROWED}, "selection.rows.priority"),
    ({"selection": NewerSelection(headers=(("tenant", "A"),))}, "selection.headers"),
    ({"pace": NewerPace(until_ms=9)}, "pace.until_ms"),
    ({"needs_third": True}, "needs_third"),
    ({"action": NewerAction.ARCHIVE}, "action"),
    ({"beside": ((NewerAction.ARCHIVE, "ann"),)}, "beside"),
]


def hold(store: OwnStore) -> None:
    take_rows(store, 1, [taken_row(number, state=RowState.HELD) for number in (1, 2)])


def states(store: OwnStore) -> list[RowState]:
    return [row.state for row in store.list_rows(RowFilter(), 9)]


def turn(store: OwnStore, operation: Operation, now_ms: int = 50_000) -> operate.Turn:
    return operate.carry_out(store, operation.id, "me", ".x", lambda: now_ms)


def written(store: OwnStore, number: int) -> dict[str, Any]:
    [(body,)] = store._database.rows("read_operation", number=number)
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


@pytest.mark.parametrize(("fields", "unread"), BEGUN_WITH, ids=[name for _, name in BEGUN_WITH])
def test_it_changes_no_row(store: OwnStore, fields: dict[str, Any], unread: str) -> None:
    hold(store)
    operation = store.add_operation(newer_operation(**fields))
    assert (turn(store, operation).changed, states(store)) == (0, [RowState.HELD] * 2)
    assert operation.unread_fields == (unread,)
    assert unread in doing(operation, 50_000)
    assert store.operation(operation.id) == operation
    assert store.operations(9) == store.open_operations() == [operation]


def test_unknown_fields_that_ask_for_nothing_stop_nothing(store: OwnStore) -> None:
    hold(store)
    operation = store.add_operation(newer_operation())
    assert "needs_third" in written(store, operation.id)
    assert (operation.unread_fields, turn(store, operation).changed) == ((), 2)


def test_a_step_that_a_newer_version_narrows_meanwhile_changes_nothing(
    store: OwnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(store)
    operation = store.add_operation(newer_operation())
    step_operation = store.step_operation

    def narrowed(number: int, *arguments: Any, **named: Any) -> Operation:
        store.change_operation(number, lambda one: msgspec.structs.replace(one, selection=NARROWED))
        return step_operation(number, *arguments, **named)

    monkeypatch.setattr(store, "step_operation", narrowed)
    assert turn(store, operation).changed == 0
    assert states(store) == [RowState.HELD] * 2


def test_writes_of_this_version_keep_all_fields(store: OwnStore) -> None:
    hold(store)
    operation = store.add_operation(newer_operation())
    assert turn(store, operation).changed == 2
    fields = {"selection": NARROWED, "action": NewerAction.ARCHIVE, "needs_third": True}

    def changed(one: Operation) -> Operation:
        values = msgspec.structs.asdict(one) | {"state": OperationState.RUNNING} | fields
        return newer_operation(**values)

    store.change_operation(operation.id, changed)
    before = written(store, operation.id)
    came_back = MemberUpdate("test-000000000001", 60_000, has_returned=True)
    store.update_members([came_back], store.tail())
    operate.pause(store, operation.id, 70_000, "console:ben", "wait")
    operate.cancel(store, operation.id, 80_000, "console:ben")
    after = written(store, operation.id)
    assert [one["state"] for one in after["state_changes"]] == ["done", "paused", "cancelled"]
    assert (after["state"], after["resent"], after["came_back"]) == ("cancelled", 1, 1)
    assert (before["selection"]["rows"]["priority"], before["needs_third"]) == (9, True)
    kept = ("selection", "action", "needs_third", "pace", "after_id", "changed")
    assert [after[name] for name in kept] == [before[name] for name in kept]


def test_no_person_resumes_or_undoes_it_here(store: OwnStore) -> None:
    operation = store.add_operation(newer_operation(needs_third=True, state=OperationState.PAUSED))
    with pytest.raises(ActionRefused, match=r"is paused: only .*newer version.* needs_third"):
        operate.resume(store, operation.id, 9, "console:ben")
    assert store.operation(operation.id) == operation


def test_a_state_of_a_newer_version_is_an_error_of_the_store(store: OwnStore) -> None:
    """No sidecar of this version carries out anything then: counts of members would be lost."""
    with pytest.raises(StoreUnavailable, match=r"a newer amqsidecar .*'asked'"):
        store.add_operation(newer_operation(state=NewerState.ASKED))
