"""Groups without messages left: since when, the cause of their end, and whether it solved them.

A group is solved if its last message was consumed anywhere, or discarded on purpose.
Leaving the schedule proves neither.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    Missed,
    Redirected,
    Resent,
    Retried,
)
from amqsidecar.model.operation import Operation, OperationPace, OutcomeKind
from amqsidecar.model.outcome import outcome_of
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.operations.failures.groups import HOUR_MS, Group
from amqsidecar.operations.words import many, span
from amqsidecar.schedule import Schedule

_OPERATIONS_LOOKED_AT: Final = 100
"""Maximum operations searched for a group's last one; older operations show on its page."""


class Ending(StrEnum):
    """The end of the last message of a group, as the predicate of a sentence about it."""

    CONSUMED = "was re-sent and consumed"
    CONSUMED_ELSEWHERE = "was sent elsewhere and consumed"
    DISCARDED = "was discarded"
    RESENT = "was re-sent"
    REDIRECTED = "was sent elsewhere"
    GIVEN_UP = "was moved to its final dead-letter queue"
    MISSED = "was lost to another program, which took it out of its final dead-letter queue"
    UNKNOWN = "left the schedule with an unknown outcome"


_SOLVES: Final = (Ending.CONSUMED, Ending.CONSUMED_ELSEWHERE, Ending.DISCARDED)


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """When and how the last message of a group left the schedule.

    Attributes:
        at_ms: when it left.
        ending: its fate.
        evidence: the reason for this ending, as a clause; "" = it needs none.
        actor: the person or program that acted; "" = the rules, or unknown.
        operation: the latest operation on it; None = not among the latest operations.
    """

    at_ms: int
    ending: Ending
    evidence: str
    actor: str
    operation: int | None

    @property
    def is_solved(self) -> bool:
        """Whether the group needs nobody any more."""
        return self.ending in _SOLVES


class SolvedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of which nothing is left in the schedule."""

    group: Group
    solution: Solution


def find_solutions(
    schedule: Schedule, groups: Iterable[Group], now_ms: int
) -> dict[Place, Solution]:
    """Return the solutions of groups that have no message left or still able to return.

    A message re-sent less than a window ago may return.
    """
    operations: list[Operation] | None = None
    found = {}
    for group in groups:
        if group.kept or group.last_at_ms > now_ms - OperationPace().window_ms:
            continue
        history = schedule.history(group.example_id)
        events = [event for event in history if event.at_ms >= group.last_at_ms]
        solution = _ended(schedule, group, events, now_ms)
        if solution.at_ms > now_ms - OperationPace().window_ms:
            continue
        if operations is None:
            operations = schedule.operations(_OPERATIONS_LOOKED_AT)
        place = group.destination, group.cause_group
        number = next((one.id for one in operations if _is_about(one, group, events)), None)
        found[place] = msgspec.structs.replace(solution, operation=number)
    return found


def _ended(schedule: Schedule, group: Group, events: Iterable[AnyEvent], now_ms: int) -> Solution:
    at_ms, ending, actor = group.last_at_ms, Ending.UNKNOWN, ""
    resent: Resent | None = None
    for event in events:
        match event:
            case Cancelled():
                actor = event.actor
            case Retried() | Redirected():
                actor = event.actor
                is_elsewhere = isinstance(event, Redirected)
                ending = Ending.REDIRECTED if is_elsewhere else ending
            case Resent():
                ending = ending if ending is Ending.REDIRECTED else Ending.RESENT
                at_ms, resent = event.at_ms, event
            case DeadLettered():
                at_ms, ending = event.at_ms, Ending.GIVEN_UP
            case Missed():
                at_ms, ending, actor = event.at_ms, Ending.MISSED, ""
            case Discarded():
                at_ms, ending, actor = event.at_ms, Ending.DISCARDED, event.actor or ""
            case _:
                pass
    evidence = ""
    if resent is not None and ending in (Ending.RESENT, Ending.REDIRECTED):
        evidence = _unproved(schedule, resent, now_ms)
        if not evidence:
            is_elsewhere = ending is Ending.REDIRECTED
            ending = Ending.CONSUMED_ELSEWHERE if is_elsewhere else Ending.CONSUMED
    return Solution(at_ms=at_ms, ending=ending, evidence=evidence, actor=actor, operation=None)


def _unproved(schedule: Schedule, resent: Resent, now_ms: int) -> str:
    """Return the known fate of a message that did not come back; "" = it was consumed."""
    place, at_ms = resent.destination, resent.at_ms
    # Why both: the first looks prove facts that a restart of the watcher hides from the last.
    seen = schedule.observations(place, at_ms, min(at_ms + HOUR_MS, now_ms + 1))
    seen += schedule.observations(place, max(at_ms + HOUR_MS, now_ms - HOUR_MS), now_ms + 1)
    outcome = outcome_of(at_ms, None, seen, now_ms, OperationPace().window_ms)
    if outcome.kind is OutcomeKind.CONSUMED:
        return ""
    last = seen[-1] if seen else None
    if last is None or not last.depth:
        return f"the outcome is unknown: {outcome.evidence}"
    unused = last.moved_at_ms is None or last.moved_at_ms <= at_ms
    lies = f"{many(last.depth, 'message lies', 'messages lie')} in {place}"
    idle = ", where no consumer has acknowledged any since" if unused else ""
    return f"{lies}{idle} (seen {span(max(0, now_ms - last.at_ms))} ago)"


def _is_about(operation: Operation, group: Group, events: Sequence[AnyEvent]) -> bool:
    """Return whether an operation may have changed a message of the group that has these events."""
    rows = operation.selection.rows
    return (
        (rows.ids is None or any(event.id in rows.ids for event in events))
        and (rows.destinations is None or group.destination in rows.destinations)
        and operation.changed > 0
        and operation.created_at_ms >= group.last_at_ms
        and rows.destination in (None, group.destination)
        and rows.cause_group in (None, group.cause_group)
        and rows.redelivery_id in (None, group.example_id)
    )
