"""Every condition of a selection has its place on every surface."""

import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.datastructures import QueryParams

from amqsidecar.cli.main import run_command_line
from amqsidecar.cli.operate import commands as act_commands
from amqsidecar.cli.operate.options import Asked, read_chosen
from amqsidecar.cli.options import Chosen
from amqsidecar.clock import SystemClock
from amqsidecar.http.api.filter import Filter, understood
from amqsidecar.http.console.command import command_of
from amqsidecar.http.console.described import describe
from amqsidecar.http.console.query import query_of, read_query
from amqsidecar.http.masking import Masking
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.conditions import CONDITIONS, Condition, given
from amqsidecar.operations.operate import Wish
from amqsidecar.stores.sqlite.store import SqliteStore
from support.web.in_process import caller_as

NOW_MS = 1_800_000_000_000
VALUES: dict[str, Any] = {
    "ids": (3, 17),
    "redelivery_id": "s-000000000001",
    "destination": "queue://orders",
    "state": RowState.HELD,
    "cause_contains": "time out",
    "cause_group": "over limit <n>",
    "source": "queue://DLQ",
    "redelivery_count": 2,
    "received_from_ms": NOW_MS - 60_000,
    "received_before_ms": NOW_MS - 5_000,
    "due_before_ms": NOW_MS - 7_000,
    "count_at_least": 5,
    "event": "invoice-4711",
    "lies_in": "queue://DLQ.exhausted",
    "destinations": ("queue://orders", "topic://news"),
    "properties": (("colour", "red=blue"), ("size", "")),
    "contains": "E42",
}
ONLY_INSIDE = {"redelivery_id", "due_before_ms", "lies_in", "destinations"}
"""Commands resolve ids to rows, only the engine asks what is due, and only looks at final queues
what lies there."""


def selection_of(field: str) -> Selection:
    value = {field: VALUES[field]}
    if field in RowFilter.__struct_fields__:
        return Selection(rows=RowFilter(**value))
    return Selection(**value)


def test_the_table_has_each_field_of_a_selection_once() -> None:
    fields = [*RowFilter.__struct_fields__, *Selection.__struct_fields__]
    fields.remove("rows")
    assert sorted(one.field for one in CONDITIONS) == sorted(fields)
    assert {one.field for one in CONDITIONS if one.address is None} == ONLY_INSIDE


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: str(one.field))
def test_a_condition_has_words_an_address_a_parameter_and_an_option(
    condition: Condition, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    selection = selection_of(condition.field)
    assert [one for one, _ in given(selection)] == [condition]
    assert {name for name, _ in describe(selection)} == {condition.words}
    command = command_of(Wish(action=Action.DISCARD, selection=selection, actor=""), NOW_MS)
    assert (command is None) == (condition.field in ONLY_INSIDE)
    if command is None:
        return

    # The address of the console, also an hour later.
    query = query_of(selection).fixed()
    assert read_query(QueryParams(query), NOW_MS + 3_600_000).selection == selection

    # The API.
    value = VALUES[condition.field]
    texts = condition.write(value)
    is_list = condition.field in ("ids", "properties")
    parameter: Any = {condition.parameter: texts if is_list else texts[0]}
    asked = msgspec.convert(parameter, Filter, strict=False)
    with closing(SqliteStore(tmp_path / "schedule.db", clock=SystemClock())) as store:
        store.open()
        found = understood(
            QueryContext(store, store.state, NOW_MS, lambda _right: store),
            asked,
            Masking(),
            caller_as(),
        )
    assert found.selection == selection

    # The command line, as the console prints it.
    taken: list[Asked] = []
    monkeypatch.setattr(act_commands, "_act", lambda _name, asked, _config: taken.append(asked))
    assert run_command_line(shlex.split(command)[1:]) == 0
    if condition.field == "ids":
        assert tuple(map(int, taken[0].ids or ())) == value
    else:
        assert read_chosen(taken[0], NOW_MS) == selection


def test_no_surface_has_a_condition_of_its_own() -> None:
    parameters = {one.parameter for one in CONDITIONS} - {None}
    assert set(Filter.__struct_fields__) == parameters
    options = {one.attribute for one in CONDITIONS} - {""}
    chosen = set(Chosen.__dataclass_fields__) - {"group"}
    assert chosen | {"properties", "contains"} == options
