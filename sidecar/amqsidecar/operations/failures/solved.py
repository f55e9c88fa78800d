"""Solved groups: since when, and what ended them."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    Discarded,
    Missed,
    Redirected,
    Resent,
    Retried,
)
from amqsidecar.model.operation import Operation, OperationPace
from amqsidecar.operations.failures.groups import Group, Place
from amqsidecar.schedule import Schedule

_OPERATIONS_LOOKED_AT: Final = 100
"""Of the latest ones; an older one is on its page."""


class Ending(StrEnum):
    """The end of the last message of a group, as the predicate of a sentence about it."""

    RESENT = "was re-sent, and did not come back"
    REDIRECTED = "was sent elsewhere"
    GIVEN_UP = "was moved to its final dead-letter queue"
    MISSED = (
        "is gone from its final dead-letter queue: another program took it, or purged the queue"
    )
    DISCARDED = "was discarded"
    UNKNOWN = "left the schedule"


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """When and why the last message of a group ended.

    Attributes:
        at_ms: when the last message that died of it left the schedule.
        ending: what became of that one.
        actor: the person or program that acted; "" = the rules, or it is not known.
        operation: the latest operation about it; None = none of the latest ones.
    """

    at_ms: int
    ending: Ending
    actor: str
    operation: int | None


class SolvedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group without waiting messages."""

    group: Group
    solution: Solution


def find_solutions(
    schedule: Schedule, groups: Iterable[Group], now_ms: int
) -> dict[Place, Solution]:
    """Return how solved groups ended: none of their messages waits or may still return.

    What was re-sent less than a window ago may.
    """
    operations: list[Operation] | None = None
    found = {}
    for group in groups:
        if group.kept or group.last_at_ms > now_ms - OperationPace().window_ms:
            continue
        solution = _ended(group, schedule.history(group.example_id))
        if solution.at_ms > now_ms - OperationPace().window_ms:
            continue
        if operations is None:
            operations = schedule.operations(_OPERATIONS_LOOKED_AT)
        place = group.destination, group.cause_group
        number = next((one.id for one in operations if _is_about(one, group)), None)
        found[place] = msgspec.structs.replace(solution, operation=number)
    return found


def _ended(group: Group, history: Iterable[AnyEvent]) -> Solution:
    at_ms, ending, actor = group.last_at_ms, Ending.UNKNOWN, ""
    for event in history:
        if event.at_ms < group.last_at_ms:
            continue
        match event:
            case Retried() | Redirected():
                actor = event.actor
                is_elsewhere = isinstance(event, Redirected)
                ending = Ending.REDIRECTED if is_elsewhere else ending
            case Resent():
                ending = ending if ending is Ending.REDIRECTED else Ending.RESENT
                at_ms = event.at_ms
            case DeadLettered():
                at_ms, ending = event.at_ms, Ending.GIVEN_UP
            case Missed():
                at_ms, ending, actor = event.at_ms, Ending.MISSED, ""
            case Discarded():
                at_ms, ending, actor = event.at_ms, Ending.DISCARDED, event.actor or ""
            case _:
                pass
    return Solution(at_ms=at_ms, ending=ending, actor=actor, operation=None)


def _is_about(operation: Operation, group: Group) -> bool:
    """Whether an operation changed messages and may have changed the last ones of a group."""
    rows = operation.selection.rows
    return (
        operation.changed > 0
        and operation.created_at_ms >= group.last_at_ms
        and rows.destination in (None, group.destination)
        and rows.cause_group in (None, group.cause_group)
        and rows.redelivery_id in (None, group.example_id)
    )
