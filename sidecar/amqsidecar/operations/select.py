"""The rows of an operation."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from amqsidecar.ledger import Select
from amqsidecar.messages.fields import OpenMessage
from amqsidecar.messages.kept_message import chosen_properties
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import Recall, RowFilter, RowState, RowView
from amqsidecar.operations.browse import filter_named
from amqsidecar.schedule import ScheduleView

NEEDED_STATES: Final = {
    Action.HOLD: RowState.WAITING,
    Action.RELEASE: RowState.HELD,
    Action.TAKE_BACK: RowState.EXHAUSTED,
}
"""Other actions accept rows in any state."""

_IN_PLACE: Final = {Action.HOLD: Recall.RULES, Action.RELEASE: Recall.HELD}

IDS_MAX: Final = 100_000
"""Maximum messages of one operation that are selected by their numbers; it holds them."""

_ROWS_OF_ONE_MESSAGE = 2_000


def narrow(action: Action, row_filter: RowFilter) -> RowFilter:
    """Return the filter of the rows that an action can change: holding needs a waiting row."""
    needed = NEEDED_STATES.get(action)
    if needed is None or row_filter.state is not None:
        return row_filter
    return msgspec.structs.replace(row_filter, state=needed)


def narrowed(action: Action, selection: Selection, schedule: ScheduleView) -> Selection:
    """Return a selection with the filter of `narrow`, where the schedule needs no wider one.

    A hold also changes messages that wait in their queues or for events; a release, those that are
    held in their queues.
    """
    is_wide = action in _IN_PLACE and bool(schedule.recalled(_IN_PLACE[action], 1))
    if is_wide or (action is Action.HOLD and any(not one.gate for one in schedule.gate_tallies(0))):
        return selection
    return msgspec.structs.replace(selection, rows=narrow(action, selection.rows))


def conditions(selection: Selection) -> dict[str, Any]:
    """Return the conditions of a selection that are set, by name."""
    given = {
        **msgspec.structs.asdict(selection.rows),
        "properties": selection.properties,
        "contains": selection.contains,
    }
    return {name: value for name, value in given.items() if value not in (None, "", ())}


def is_tallied(selection: Selection) -> bool:
    """Whether the ledger knows how many rows are selected without looking at each."""
    rows = selection.rows
    tallied = RowFilter(
        destination=rows.destination, state=rows.state, cause_group=rows.cause_group
    )
    return rows == tallied and not selection.looks_into_messages


def selector(selection: Selection) -> Select | None:
    """Return the predicate that selects among the rows of its filter; None = all."""
    if not selection.looks_into_messages:
        return None
    wanted = dict(selection.properties)
    read = chosen_properties(wanted)
    part = selection.contains.casefold()

    def is_selected(row: RowView, message: bytes) -> bool:
        found = (read(row.encoding, message) or {}) if wanted else {}
        return all(found.get(name) == text for name, text in wanted.items()) and (
            part in (row.cause or "").casefold()
            or OpenMessage(row.encoding, message).mentions(part)
        )

    return is_selected


def resolve(schedule: ScheduleView, references: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the row numbers of row numbers and redelivery ids, and the ids without a row."""
    ids: dict[int, None] = {}
    unknown = []
    for reference in references:
        rows = schedule.list_rows(filter_named(reference), _ROWS_OF_ONE_MESSAGE)
        ids.update((row.id, None) for row in rows)
        if not rows:
            unknown.append(reference)
    return tuple(ids), unknown
