"""Retention: messages older than their limit in days are discarded, moved or exported, announced.

It begins operations as a person does, so they can be seen, paused, cancelled and undone alike.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from amqsidecar.model.destination import parse_destination
from amqsidecar.model.operation import Action, Operation, OperationPace, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.operate import Wish, begin
from amqsidecar.policy.gate_entries import EntryFinder
from amqsidecar.schedule import Schedule

ACTOR: Final = "retention"
DAY_MS: Final = 86_400_000
LATEST_OPERATIONS: Final = 500
"""Operations among which an announcement is looked for, so that none is made twice."""


class KeepRule(NamedTuple):
    """How long messages are kept; `move_to` None = then they are discarded.

    Attributes:
        exports: they are written to the journal's folder before.
    """

    days: int
    move_to: str | None
    exports: bool = False

    def __str__(self) -> str:
        then = "written to the journal's folder and " * self.exports
        moved = f"moved to {self.move_to}, which can't be undone"
        then += "discarded" if self.move_to is None else moved
        return f"after {self.days} days they are {then}"


def announced(operations: Iterable[Operation], now_ms: int) -> int:
    """Return how many messages the retention of these operations has announced."""
    return sum(
        one.expected or 0
        for one in operations
        if one.actor == ACTOR and (one.pace.begin_at_ms or 0) > now_ms
    )


class Retention:
    """Announces operations on messages that have lain for too long.

    Args:
        keeps: by option: `parked_keep`, `exhausted_keep`, `in_place_keep`.
        notice_ms: from an announcement to its begin, and from a cancelled one to the next.
    """

    def __init__(self, keeps: Mapping[str, EntryFinder[KeepRule]], *, notice_ms: int) -> None:
        self._keeps = keeps
        self._notice_ms = notice_ms
        self._refused: set[str] = set()

    def announce(self, schedule: Schedule, now_ms: int) -> list[tuple[int, str]]:
        """Begin operations that act after the notice; return their numbers, and why.

        A number is 0 where none can begin, once for each reason.

        Promise: each is durable by itself; if the process dies between two, the next call goes on.

        Raises:
            StoreError: the store can't be asked.
        """
        if not self._keeps:
            return []
        begin_at_ms = now_ms + self._notice_ms
        known = {
            _place(one.selection.rows)
            for one in schedule.operations(LATEST_OPERATIONS)
            if one.actor == ACTOR
            and (one.ended_at_ms is None or now_ms < one.created_at_ms + self._notice_ms)
        }
        found = []
        for option, rows in self._places(schedule):
            keep = self._keep_of(option, rows)
            if keep is None or _place(rows) in known:
                continue
            before_ms = begin_at_ms - keep.days * DAY_MS
            selected = msgspec.structs.replace(rows, received_before_ms=before_ms)
            if not (count := schedule.count_rows(selected)):
                continue
            reason = f"redelivery.{option}: {keep}"
            wish = Wish(
                action=Action.DISCARD if keep.move_to is None else Action.REDIRECT,
                selection=Selection(rows=selected),
                actor=ACTOR,
                reason=reason,
                pace=OperationPace(begin_at_ms=begin_at_ms),
                target=keep.move_to,
                expected=count,
                exports=keep.exports,
            )
            try:
                found.append((begin(schedule, wish, now_ms).id, reason))
            except ActionRefused as refused:
                if reason not in self._refused:
                    self._refused.add(reason)
                    found.append((0, f"{reason}: {refused}"))
        return found

    def _keep_of(self, option: str, rows: RowFilter) -> KeepRule | None:
        entries = self._keeps.get(option)
        if entries is None or rows.destination is None:
            return None
        return entries.find(parse_destination(rows.destination))

    def _places(self, schedule: Schedule) -> Iterator[tuple[str, RowFilter]]:
        """Yield where messages lie that may be kept no longer, with the option that says so."""
        for parked in schedule.tallies():
            if parked.state is RowState.PARKED:
                yield (
                    "parked_keep",
                    RowFilter(state=RowState.PARKED, destination=parked.destination),
                )
        exhausted = schedule.exhausted_tallies()
        lying = {one.destination for one in exhausted if one.is_in_queue}
        for one in exhausted:
            if not one.is_in_queue and one.destination in lying:
                # Why: no filter separates these from rows in a queue, which have their turn.
                continue
            lying_in = one.queue if one.is_in_queue else None
            rows = RowFilter(
                state=RowState.EXHAUSTED, destination=one.destination, lies_in=lying_in
            )
            found = msgspec.structs.replace(rows, source=lying_in)
            # Why not both: no filter tells the exhausted messages of such a queue.
            is_in_place = lying_in is not None and schedule.count_rows(found) > 0
            yield ("in_place_keep", found) if is_in_place else ("exhausted_keep", rows)


def _place(rows: RowFilter) -> tuple[object, ...]:
    return rows.state, rows.destination, rows.lies_in
