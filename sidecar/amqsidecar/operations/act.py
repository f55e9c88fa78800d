"""Acting on what waits: retry, cancel, hold, release."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.store import Store

CHUNK_ROWS = 2_000
"""So many rows are changed between two words about the progress."""


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
    """

    action: Action
    matched: int
    changed: int


def narrow(action: Action, row_filter: RowFilter) -> RowFilter:
    """Return the filter of the rows that an action can be about: holding needs a waiting row."""
    needed = {Action.HOLD: RowState.WAITING, Action.RELEASE: RowState.HELD}.get(action)
    if needed is None or row_filter.state is not None:
        return row_filter
    return msgspec.structs.replace(row_filter, state=needed)


def resolve(store: Store, references: Iterable[str]) -> tuple[tuple[int, ...], list[str]]:
    """Return the row numbers that row numbers and redelivery ids name, and what names no row."""
    ids: dict[int, None] = {}
    unknown = []
    for reference in references:
        if reference.isascii() and reference.isdigit():
            rows = store.list_rows(RowFilter(ids=(int(reference),)), 1)
        else:
            rows = store.list_rows(RowFilter(redelivery_id=reference), CHUNK_ROWS)
        ids.update((row.id, None) for row in rows)
        if not rows:
            unknown.append(reference)
    return tuple(ids), unknown


def act(
    store: Store,
    action: Action,
    row_filter: RowFilter,
    *,
    now_ms: int,
    actor: str,
    suffix: str,
    progress: Callable[[int], None] = lambda _count: None,
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

    Promise: done in small transactions; interrupted, calling it again does the rest.
    """
    row_filter = narrow(action, row_filter)
    matched = changed = after_id = 0
    while rows := store.list_rows(row_filter, CHUNK_ROWS, after_id):
        after_id = rows[-1].id
        chunk = msgspec.structs.replace(row_filter, ids=tuple(row.id for row in rows))
        match action:
            case Action.RETRY:
                changed += store.retry(chunk, now_ms, actor)
            case Action.CANCEL:
                changed += store.cancel(chunk, now_ms, actor, suffix)
            case Action.HOLD:
                changed += store.hold(chunk, now_ms, actor)
            case Action.RELEASE:
                changed += store.release(chunk, now_ms, actor)
            case _:
                assert_never(action)
        matched += len(rows)
        progress(len(rows))
    return Outcome(action=action, matched=matched, changed=changed)
