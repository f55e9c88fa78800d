"""Groups that became a part of another one: read as one, and their messages move."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.model.cause import group_number
from amqsidecar.model.event import Regrouped
from amqsidecar.model.operation import Action, OperationState, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.charts import deaths_of_group
from amqsidecar.operations.failures.find_group import the_group
from amqsidecar.operations.failures.former_groups import move_former_rows, read_cause_groups
from amqsidecar.operations.failures.groups import Group, read_group, read_groups
from amqsidecar.operations.failures.notes import read_notes, write_note
from amqsidecar.operations.operate import Wish, begin
from amqsidecar.operations.overview import read_overview
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, took
from support.web.console_store import dead

PLACE = "queue://orders"
HEAD = "shop.Refused: "
NAMES = ("bob", "alice", "carol", "dave", "erin")
LEARNED = f"{HEAD}user * may not pay"
STACKED = f"{HEAD}first words [stack=5f0c2a91d3e7]"
NOW_MS = 1_800_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
    made.open()
    yield made
    made.close()


def die(store: SqliteStore, *groups: str, at_ms: int = NOW_MS - 60_000) -> None:
    state = store.open()
    ids = store.allocate_ids(len(groups))
    rows = [
        msgspec.structs.replace(
            dead(ids + at, "x", at_ms + at, destination=PLACE),
            cause_group=group,
        )
        for at, group in enumerate(groups)
    ]
    events = [msgspec.structs.replace(took(row), cause_group=row.cause_group) for row in rows]
    take_rows(store, state.cycle + 1, rows, events)


def users(*names: str) -> list[str]:
    return [f"{HEAD}user {name} may not pay" for name in names]


def only(store: SqliteStore) -> Group:
    [group] = read_groups(store, NOW_MS)
    return group


def tend(store: SqliteStore) -> None:
    move_former_rows(store, read_cause_groups(store), NOW_MS)


def test_a_learned_group_has_all_of_its_former_ones(store: SqliteStore) -> None:
    die(store, *users(*NAMES[:-1]))
    write_note(store, (PLACE, users("bob")[0]), "ask ann", "cli:ann", NOW_MS, owner="ann")
    assert len(read_groups(store, NOW_MS)) == 4
    die(store, *users(NAMES[-1]), LEARNED)
    group = only(store)
    assert (group.cause_group, group.total, group.waiting) == (LEARNED, 6, 6)
    assert group.note is not None
    assert (group.note.owner, group.first_at_ms) == ("ann", NOW_MS - 60_000)
    former = PLACE, users("carol")[0]
    assert read_group(store, former, NOW_MS) == group
    assert [note.text for note in read_notes(store, former)] == ["ask ann"]
    number = group_number(store.group_key, *former)
    assert the_group(store, RowFilter(), part=None, number=number) == (PLACE, LEARNED)
    assert the_group(store, RowFilter(), part=former[1], number=None) == (PLACE, LEARNED)
    assert sum(deaths_of_group(store, (PLACE, LEARNED), NOW_MS).series[0].counts) == 6


def test_the_messages_of_former_groups_move_once_and_their_history_says_so(
    store: SqliteStore,
) -> None:
    die(store, *users(*NAMES), LEARNED)
    tend(store)
    tend(store)
    rows = store.list_rows(RowFilter(destination=PLACE, cause_group=LEARNED), 9)
    assert len(rows) == 6
    moved = [one for one in store.history(rows[0].redelivery_id) if isinstance(one, Regrouped)]
    assert [(one.former_group, one.cause_group) for one in moved] == [(users("bob")[0], LEARNED)]
    assert (only(store).total, only(store).waiting) == (6, 6)


def test_old_groups_of_one_stack_are_one_group(store: SqliteStore) -> None:
    die(store, STACKED, f"{HEAD}other words [stack=5f0c2a91d3e7]", f"{HEAD}x [stack=other]")
    found = {group.cause_group: group.total for group in read_groups(store, NOW_MS)}
    assert found == {STACKED: 2, f"{HEAD}x [stack=other]": 1}


def test_people_merge_groups_and_separate_them_again(store: SqliteStore) -> None:
    one, other = f"{HEAD}no card", f"{HEAD}no money"
    die(store, one, one, other)
    note = write_note(store, (PLACE, other), "same", "cli:ann", NOW_MS, merge_into=one)
    assert (note.cause_group, note.merged_into) == (other, one)
    assert (only(store).cause_group, only(store).waiting) == (one, 3)
    with pytest.raises(ActionRefused, match="one group already"):
        write_note(store, (PLACE, one), "", "cli:ann", NOW_MS, merge_into=other)
    with pytest.raises(ActionRefused, match=r"has no group .* to merge into"):
        write_note(store, (PLACE, one), "", "cli:ann", NOW_MS, merge_into="shop.Else")
    tend(store)
    assert len(store.list_rows(RowFilter(destination=PLACE, cause_group=one), 9)) == 3

    write_note(store, (PLACE, other), "", "cli:ann", NOW_MS + 1, merge_into="")
    assert {group.cause_group: group.total for group in read_groups(store, NOW_MS)} == {
        one: 2,
        other: 1,
    }


def test_messages_stay_while_an_operation_selects_their_group(store: SqliteStore) -> None:
    one, other = f"{HEAD}no card", f"{HEAD}no money"
    die(store, one, other)
    write_note(store, (PLACE, other), "", "cli:ann", NOW_MS, merge_into=one)
    rows = RowFilter(destination=PLACE, cause_group=other)
    running = begin(
        store, Wish(action=Action.HOLD, selection=Selection(rows=rows), actor="cli:ann"), NOW_MS
    )
    tend(store)
    assert len(store.list_rows(rows, 9)) == 1
    ended = msgspec.structs.replace
    store.change_operation(running.id, lambda one: ended(one, state=OperationState.DONE))
    tend(store)
    assert store.list_rows(rows, 9) == []


def test_a_muted_group_is_shown_again_when_more_die_of_it(store: SqliteStore) -> None:
    cause = f"{HEAD}no card"
    die(store, cause, cause)
    write_note(store, (PLACE, cause), "known", "cli:ann", NOW_MS, is_muted=True)
    die(store, cause, at_ms=NOW_MS - 1_000)
    found = read_overview(store, NOW_MS)
    assert ([one.is_muted for one in found.snoozed], found.groups) == ([True], [])
    die(store, *[cause] * 20, at_ms=NOW_MS - 500)
    assert [one.is_muted for one in read_overview(store, NOW_MS).groups] == [False]
    write_note(store, (PLACE, cause), "", "cli:ann", NOW_MS + 1, is_muted=True)
    assert read_overview(store, NOW_MS + 2).groups == []
    write_note(store, (PLACE, cause), "", "cli:ann", NOW_MS + 3, is_muted=False)
    assert len(read_overview(store, NOW_MS + 4).groups) == 1
