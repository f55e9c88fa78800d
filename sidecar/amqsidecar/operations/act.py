"""Acting on what waits: retry, cancel, hold, release."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.store import Store

_ROWS_OF_ONE_MESSAGE = 2_000


class Action(StrEnum):
    """What a person can do with messages that wait."""

    RETRY = "retry"
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did.

    Attributes:
        matched: rows that the filter hit.
        changed: rows that were changed; the others were just being sent, or final already.
        stopped: it was ended before all rows were done; doing it again does the rest.
    """

    action: Action
    matched: int
    changed: int
    stopped: bool = False


def narrow(action: Action, row_filter: RowFilter) -> RowFilter:
    """Return the filter of the rows that an action can be about: holding needs a waiting row."""
    needed = {Action.HOLD: RowState.WAITING, Action.RELEASE: RowState.HELD}.get(action)
    if needed is None or row_filter.state is not None:
        return row_filter
    return msgspec.structs.replace(row_filter, state=needed)


def is_counted(row_filter: RowFilter) -> bool:
    """Whether the store knows how many rows a filter hits without looking at each."""
    return row_filter == RowFilter(destination=row_filter.destination, state=row_filter.state)


def resolve(store: Store, references: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the row numbers that row numbers and redelivery ids name, and what names no row."""
    ids: dict[int, None] = {}
    unknown = []
    for reference in references:
        if reference.isascii() and reference.isdigit():
            rows = store.list_rows(RowFilter(ids=(int(reference),)), 1)
        else:
            rows = store.list_rows(RowFilter(redelivery_id=reference), _ROWS_OF_ONE_MESSAGE)
        ids.update((row.id, None) for row in rows)
        if not rows:
            unknown.append(reference)
    return tuple(ids), unknown


class _Stopped(Exception):
    """Ends an action between two steps."""


def act(
    store: Store,
    action: Action,
    row_filter: RowFilter,
    *,
    now_ms: int,
    actor: str,
    suffix: str,
    progress: Callable[[int], None] = lambda _count: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Do it to every row that the filter hits now; each change is an event with the actor.

    Args:
        store: an open store.
        action: what to do.
        row_filter: which rows.
        now_ms: the time of the action.
        actor: who asked.
        suffix: of final dead-letter queues, for cancelling.
        progress: called with the number of rows done since the last call.
        is_stopped: asked after each step; True = leave the rest.

    Promise: done in small transactions; interrupted, calling it again does the rest.
    """
    row_filter = narrow(action, row_filter)
    matched = changed = 0

    def step(rows: int, changed_rows: int) -> None:
        nonlocal matched, changed
        matched += rows
        changed += changed_rows
        progress(rows)
        if is_stopped():
            raise _Stopped

    try:
        match action:
            case Action.RETRY:
                store.retry(row_filter, now_ms, actor, step)
            case Action.CANCEL:
                store.cancel(row_filter, now_ms, actor, suffix, step)
            case Action.HOLD:
                store.hold(row_filter, now_ms, actor, step)
            case Action.RELEASE:
                store.release(row_filter, now_ms, actor, step)
            case _:
                assert_never(action)
    except _Stopped:
        return Outcome(action=action, matched=matched, changed=changed, stopped=True)
    return Outcome(action=action, matched=matched, changed=changed)
