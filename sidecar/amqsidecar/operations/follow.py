"""Following the messages of operations: which were sent, which came back, and their outcomes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from amqsidecar.ledger import MemberOutcome, MemberUpdate
from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    DuplicateSuppressed,
    Resent,
    Returned,
)
from amqsidecar.model.operation import Member, Operation, OutcomeKind
from amqsidecar.model.outcome import Observation, outcome_of
from amqsidecar.schedule import Schedule

EVENTS_AT_ONCE: Final = 2_000
READS_AT_ONCE: Final = 50
SETTLED_AT_ONCE: Final = 1_000

UNSENT_MS: Final = 24 * 3_600_000
"""Time after the end of an operation in which a message that it changed may still be sent."""

NEVER_SENT = "not sent within a day: another action changed it, or it can't be sent"


def follow(schedule: Schedule) -> bool:
    """Note which members of operations were sent or died again; False = call it again.

    Promise: notes and the read position are stored together; if the process dies, or another does
    this at the same time, nothing is left out or counted twice.
    """
    position = schedule.followed_until()
    if position is None:
        schedule.update_members([], schedule.tail())
        return True
    for _ in range(READS_AT_ONCE):
        tail = schedule.events_after(position, EVENTS_AT_ONCE)
        if tail.position == position:
            return True
        schedule.update_members(list(updates(tail.events)), tail.position)
        position = tail.position
    return False


def updates(events: Iterable[AnyEvent]) -> Iterator[MemberUpdate]:
    """Return the updates in events: messages that were sent or died again."""
    for event in events:
        if isinstance(event, Returned):
            yield MemberUpdate(event.redelivery_id, event.at_ms, has_returned=True)
        elif isinstance(event, Resent | DuplicateSuppressed | DeadLettered):
            yield MemberUpdate(
                event.redelivery_id,
                event.at_ms,
                has_returned=False,
                destination=event.destination,
            )


def judge(schedule: Schedule, operation: Operation, now_ms: int) -> int:
    """Write the outcomes of members whose window has passed; return how many.

    Promise: durable together; if the process dies inside, nothing of it was written.
    """
    before_ms = now_ms - operation.pace.window_ms
    due = schedule.due_members(operation.id, before_ms, SETTLED_AT_ONCE)
    outcomes = list(_unsent(schedule, operation, now_ms))
    if due:
        seen = _observations(schedule, due, now_ms)
        # Why before the next look at them: a death that the observations count must be known.
        if not follow(schedule):
            return 0
        for member in schedule.due_members(operation.id, before_ms, SETTLED_AT_ONCE):
            resent_at_ms = member.resent_at_ms
            if resent_at_ms is None or member.destination not in seen:
                continue
            found = outcome_of(
                resent_at_ms, None, seen[member.destination], now_ms, operation.pace.window_ms
            )
            if found.kind is not OutcomeKind.RESENT:
                outcomes.append(MemberOutcome(member.redelivery_id, found.kind, found.evidence))
    if outcomes:
        schedule.settle_members(operation.id, outcomes)
    return len(outcomes)


def _observations(
    schedule: Schedule, members: Sequence[Member], now_ms: int
) -> dict[str, list[Observation]]:
    """Return the observations of the members' destinations since the first re-send of a member."""
    since_ms: dict[str, int] = {}
    for member in members:
        resent_at_ms = member.resent_at_ms or 0
        since_ms[member.destination] = min(
            resent_at_ms, since_ms.get(member.destination, resent_at_ms)
        )
    return {
        destination: schedule.observations(destination, from_ms, now_ms + 1)
        for destination, from_ms in since_ms.items()
    }


def _unsent(schedule: Schedule, operation: Operation, now_ms: int) -> Iterator[MemberOutcome]:
    """Give up waiting for members of an operation that ended long ago."""
    ended_at_ms = operation.ended_at_ms
    if ended_at_ms is None or now_ms < ended_at_ms + UNSENT_MS:
        return
    after = ""
    while members := schedule.members(operation.id, None, SETTLED_AT_ONCE, after):
        for member in members:
            if member.outcome is None:
                yield MemberOutcome(member.redelivery_id, OutcomeKind.UNKNOWN, NEVER_SENT)
        after = members[-1].redelivery_id
